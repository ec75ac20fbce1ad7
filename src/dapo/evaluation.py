"""Measures a policy on held-out problems: mean of k samples a problem, with an interval over problems."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dapo.maths.statistics import mean_over_problems, pass_at_k
from dapo.ports import Engine, Task
from dapo.seeds import derive_seed
from dapo.types import Problem, Prompt, RolloutGroup, Sampling, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """The samples of one problem and their scores, in the same order."""

    group: RolloutGroup
    scores: tuple[Score, ...]

    @property
    def accuracy(self) -> float:
        """Share of right samples."""
        return sum(score.correct for score in self.scores) / len(self.scores)

    @property
    def majority_is_right(self) -> float:
        """Whether the most frequent extracted answer is right; ties share the credit, no answer at all is wrong."""
        votes = Counter(score.extracted for score in self.scores if score.extracted is not None)
        if not votes:
            return 0.0
        most = max(votes.values())
        leaders = {answer for answer, count in votes.items() if count == most}
        right = {score.extracted for score in self.scores if score.correct}
        return len(leaders & right) / len(leaders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Results of one evaluation, problem by problem."""

    results: tuple[ProblemResult, ...]
    sampling: Sampling
    seconds: float

    def summary(self, step: int, data: str) -> dict[str, Any]:
        """The line that goes to `eval.jsonl`; shares lie in [0, 1], lengths are in tokens."""
        samples = len(self.results[0].scores)
        interval = mean_over_problems([result.accuracy for result in self.results])
        replies = [rollout for result in self.results for rollout in result.group.rollouts]
        correct = [sum(score.correct for score in result.scores) for result in self.results]
        ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples} | {samples})
        return {
            "step": step,
            "data": data,
            "problems": len(self.results),
            "samples": samples,
            "avg": interval.mean,
            "ci_low": interval.low,
            "ci_high": interval.high,
            "pass_at": {str(k): sum(pass_at_k(samples, c, k) for c in correct) / len(correct) for k in ks},
            "maj": sum(result.majority_is_right for result in self.results) / len(self.results),
            "truncated": sum(rollout.is_truncated for rollout in replies) / len(replies),
            "length_mean": sum(rollout.length for rollout in replies) / len(replies),
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seconds": round(self.seconds, 3),
        }


async def evaluate(
    problems: Sequence[Problem],
    render: Callable[[Problem], Prompt],
    engine: Engine,
    task: Task,
    *,
    sampling: Sampling,
    samples: int,
    seed: int,
) -> Evaluation:
    """Draw `samples` replies to each problem and score them. Nothing is filtered and no penalty is applied."""
    if not problems:
        raise ValueError("an evaluation over no problem was asked for; give it at least one")
    started = time.perf_counter()

    async def one(problem: Problem) -> ProblemResult:
        group = await engine.sample(render(problem), samples, sampling, derive_seed(seed, "evaluation", problem.id))
        scores = await asyncio.gather(*(task.score(problem, rollout) for rollout in group.rollouts))
        return ProblemResult(group=group, scores=tuple(scores))

    results = await asyncio.gather(*(one(problem) for problem in problems))
    return Evaluation(results=tuple(results), sampling=sampling, seconds=time.perf_counter() - started)
