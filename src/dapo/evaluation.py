"""Measures a policy on held-out problems: mean of k samples a problem, with intervals over problems and over samples.

`summarise` is the one place where samples become numbers: evaluation in training, saved replies and replies that are
graded again all go through it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dapo.collect.attempts import Scorer
from dapo.errors import EngineError
from dapo.maths.statistics import Interval, mean_over_problems, mean_over_samples, paired_difference, pass_at_k
from dapo.ports import Engine, Task
from dapo.seeds import derive_seed
from dapo.types import Problem, Prompt, RolloutGroup, Sampling, Score

FEW_PROBLEMS = 10
"""With fewer problems than this a comparison gives no verdict: their bootstrap says too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What counts of one graded reply; `length` is in tokens. `has_error`: its scorer failed, so that it counts as wrong."""

    correct: bool
    extracted: str | None
    truncated: bool
    length: int
    has_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSamples:
    """The samples of one problem, in the order in which they were drawn."""

    id: str
    gold: str
    samples: tuple[Sample, ...]

    @property
    def num_correct(self) -> int:
        return sum(sample.correct for sample in self.samples)

    @property
    def accuracy(self) -> float:
        """Share of right samples."""
        return self.num_correct / len(self.samples)

    @property
    def leaders(self) -> tuple[str, ...]:
        """The most frequent extracted answers, more than one where they tie; none where no answer was read."""
        votes = Counter(sample.extracted for sample in self.samples if sample.extracted is not None)
        most = max(votes.values(), default=0)
        return tuple(answer for answer, count in votes.items() if count == most)

    @property
    def majority_is_right(self) -> float:
        """Whether the most frequent extracted answer is right; ties share the credit, no answer at all is wrong."""
        leaders = self.leaders
        right = {sample.extracted for sample in self.samples if sample.correct}
        return sum(answer in right for answer in leaders) / len(leaders) if leaders else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """The replies to one problem and their scores, in the same order."""

    group: RolloutGroup
    scores: tuple[Score, ...]

    @property
    def measured(self) -> ProblemSamples:
        """What counts of them."""
        problem = self.group.prompt.problem
        samples = tuple(
            Sample(
                correct=score.correct,
                extracted=score.extracted,
                truncated=rollout.is_truncated,
                length=rollout.length,
                has_error=score.error is not None,
            )
            for rollout, score in zip(self.group.rollouts, self.scores, strict=True)
        )
        return ProblemSamples(id=problem.id, gold=problem.answer, samples=samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Results of one evaluation, problem by problem."""

    results: tuple[ProblemResult, ...]
    sampling: Sampling
    seconds: float

    def summary(self, step: int, data: str) -> dict[str, Any]:
        """The line that goes to `eval.jsonl`; shares lie in [0, 1], lengths are in tokens."""
        return {
            "step": step,
            "data": data,
            **summarise([result.measured for result in self.results]),
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seconds": round(self.seconds, 3),
        }


def summarise(problems: Sequence[ProblemSamples]) -> dict[str, Any]:
    """Reduce the samples of all problems to the numbers of an evaluation.

    Raises ValueError where there is no problem, or where problems have different numbers of samples.
    """
    if not problems:
        raise ValueError("an evaluation over no problem was asked for; give it at least one")
    counts = {len(problem.samples) for problem in problems}
    if len(counts) != 1 or 0 in counts:
        raise ValueError(
            f"problems have {sorted(counts)} samples; an evaluation needs equally many of each, at least one"
        )
    (k,) = counts
    samples = [sample for problem in problems for sample in problem.samples]
    over_problems = mean_over_problems([problem.accuracy for problem in problems])
    over_samples = mean_over_samples([[sample.correct for sample in problem.samples] for problem in problems])
    ks = sorted({size for size in (1, 2, 4, 8, 16, 32, 64) if size <= k} | {k})
    right = [problem.num_correct for problem in problems]
    return {
        "problems": len(problems),
        "samples": k,
        "avg": over_problems.mean,
        "ci_low": over_problems.low,
        "ci_high": over_problems.high,
        "samples_low": over_samples.low,
        "samples_high": over_samples.high,
        "pass_at": {str(size): sum(pass_at_k(k, count, size) for count in right) / len(right) for size in ks},
        "maj": sum(problem.majority_is_right for problem in problems) / len(problems),
        "truncated": sum(sample.truncated for sample in samples) / len(samples),
        "length_mean": sum(sample.length for sample in samples) / len(samples),
        "errors": sum(sample.has_error for sample in samples),
    }


def problem_table(problems: Sequence[ProblemSamples]) -> list[dict[str, Any]]:
    """One row a problem, in their order; `majority` holds several answers where they tie."""
    return [
        {
            "id": problem.id,
            "right": problem.num_correct,
            "of": len(problem.samples),
            "majority": list(problem.leaders),
            "gold": problem.gold,
        }
        for problem in problems
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One problem whose accuracy differs between two evaluations."""

    id: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two evaluations on the same problems. `difference` is the second's accuracy less the first's."""

    problems: int
    before: float
    after: float
    difference: Interval
    changed: tuple[Change, ...]

    @property
    def is_more_than_noise(self) -> bool | None:
        """Whether the interval of the difference leaves out 0; None where there are too few problems to tell."""
        if self.problems < FEW_PROBLEMS:
            return None
        return not self.difference.low <= 0 <= self.difference.high

    def sentence(self, first: str, second: str) -> str:
        """Say in words whether the two differ. `first` and `second` are their names."""
        points = f"{abs(100 * self.difference.mean):.1f} points"
        better, worse = (second, first) if self.difference.mean >= 0 else (first, second)
        said = f"{better} is {points} ahead of {worse}" if self.difference.mean else f"{second} and {first} are level"
        interval = f"95% interval of the difference {_points(self.difference.low)} to {_points(self.difference.high)}"
        verdict = {
            True: "more than noise",
            False: f"no more than noise would give on {self.problems} problems",
            None: f"{self.problems} {'problem is' if self.problems == 1 else 'problems are'} too few to tell from noise",
        }[self.is_more_than_noise]
        return f"{said} ({interval}): {verdict}."


def compare(before: Sequence[ProblemSamples], after: Sequence[ProblemSamples]) -> Comparison:
    """Pair two evaluations problem by problem; both hold the same problems in the same order. Raises ValueError."""
    if [problem.id for problem in before] != [problem.id for problem in after]:
        raise ValueError("two evaluations were compared that are not of the same problems in the same order")
    pairs = [Change(id=a.id, before=a.accuracy, after=b.accuracy) for a, b in zip(before, after, strict=True)]
    difference = paired_difference([pair.before for pair in pairs], [pair.after for pair in pairs])
    changed = [pair for pair in pairs if pair.before != pair.after]
    return Comparison(
        problems=len(pairs),
        before=sum(pair.before for pair in pairs) / len(pairs),
        after=sum(pair.after for pair in pairs) / len(pairs),
        difference=difference,
        changed=tuple(sorted(changed, key=lambda pair: -abs(pair.after - pair.before))),
    )


async def evaluate(
    problems: Sequence[Problem],
    render: Callable[[Problem], Prompt],
    engine: Engine,
    task: Task,
    *,
    sampling: Sampling,
    samples: int,
    seed: int,
    scoring_seconds: float = 300.0,
    on_result: Callable[[ProblemResult], None] | None = None,
) -> Evaluation:
    """Draw `samples` replies to each problem and score them. Nothing is filtered and no penalty is applied.

    A problem's replies follow from `seed` and its id alone, whatever is asked beside it. A reply for which no score has come
    back for `scoring_seconds` is wrong, with an `error`. `on_result` is called with each problem's result as soon as it is
    complete.
    """
    if not problems:
        raise ValueError("an evaluation over no problem was asked for; give it at least one")
    started, scorer = time.perf_counter(), Scorer(task, scoring_seconds)

    grading: set[Any] = set()

    async def one(problem: Problem) -> ProblemResult:
        group = await engine.sample(render(problem), samples, sampling, derive_seed(seed, "evaluation", problem.id))
        grading.add(asyncio.current_task())
        scores = await asyncio.gather(*(scorer.score(problem, rollout) for rollout in group.rollouts))
        result = ProblemResult(group=group, scores=tuple(scores))
        if on_result is not None:
            on_result(result)
        return result

    try:
        results = await asyncio.gather(*(one(problem) for problem in problems))
    except EngineError:
        if grading:  # what was generated by then is not lost
            await asyncio.wait(grading)
        raise
    return Evaluation(results=tuple(results), sampling=sampling, seconds=time.perf_counter() - started)


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
