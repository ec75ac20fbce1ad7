"""One group: asked for, graded within a limit, and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dapo.algorithms.value import Algorithm
from dapo.collect.handover import Handover
from dapo.collect.plan import CollectPlan
from dapo.errors import EngineError
from dapo.ports import Engine, Task
from dapo.seeds import derive_seed
from dapo.types import (
    Finish,
    JudgedGroup,
    Problem,
    Prompt,
    Reason,
    Rollout,
    RolloutGroup,
    Score,
    ScoredGroup,
    ScoredRollout,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One group that was asked for and what came of it. `failure` is the engine's error, if it gave no reply at all."""

    judged: JudgedGroup
    failure: EngineError | None = None

    @property
    def tokens(self) -> int:
        """Reply tokens that were generated."""
        return sum(scored.rollout.length for scored in self.judged.group.rollouts)


class Stopwatch:
    """Tells grading from generating, which overlap: seconds in which groups were graded and none was generated."""

    def __init__(self) -> None:
        self._started = self._since = time.perf_counter()
        self._running = {"generating": 0, "grading": 0}
        self.grading_alone = 0.0
        self.grading_in_all = 0.0

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        self._turn(what, 1)
        started = time.perf_counter()
        try:
            yield
        finally:
            self._turn(what, -1)
            self.grading_in_all += time.perf_counter() - started if what == "grading" else 0.0

    def _turn(self, what: str, change: int) -> None:
        now = time.perf_counter()
        if self._running["grading"] and not self._running["generating"]:
            self.grading_alone += now - self._since
        self._since = now
        self._running[what] += change

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._started


class Scorer:
    """Asks a task for scores, and gives up replies for which nothing comes back.

    A reply is given up when `seconds` have passed since it was handed over and since any score came back: where many wait
    for one slow scorer, each that is done gives the others time.
    """

    def __init__(self, task: Task, seconds: float) -> None:
        self._task = task
        self._seconds = seconds
        self._last = time.monotonic()

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """The task's score; a wrong one with its `error` for a reply that was given up."""
        started = time.monotonic()
        asked = asyncio.ensure_future(self._task.score(problem, rollout))
        try:
            while not asked.done():
                left = max(started, self._last) + self._seconds - time.monotonic()
                if left <= 0:
                    return _given_up(self._seconds)
                await asyncio.wait({asked}, timeout=left)
            self._last = time.monotonic()
            return asked.result()
        finally:
            asked.cancel()


def _given_up(seconds: float) -> Score:
    error = f"the scorer gave no score back for {seconds:g} seconds and was given up"
    return Score(correct=False, reward=-1.0, error=error)


async def attempt(
    name: str,
    prompt: Prompt,
    plan: CollectPlan,
    engine: Engine,
    scorer: Scorer,
    algorithm: Algorithm,
    watch: Stopwatch,
    handover: Handover,
) -> Attempt:
    """Ask for one group, grade it as soon as it is there, and judge it. A failing engine makes it an `error`."""
    seed = derive_seed(plan.seed, "rollout", name)
    try:
        with watch("generating"):
            group = await engine.sample(prompt, plan.group_size, plan.sampling, seed)
            handover.hand_out()
    except EngineError as failure:
        handover.hand_out()
        empty = ScoredGroup(prompt=prompt, rollouts=())
        return Attempt(judged=JudgedGroup(name=name, group=empty, reason=Reason.ERROR), failure=failure)
    with watch("grading"):
        scored = await score_group(group, scorer, algorithm)
    broken = any(item.rollout.finish is Finish.ERROR for item in scored.rollouts)
    reason = Reason.ERROR if broken else algorithm.judge(scored)
    return Attempt(judged=JudgedGroup(name=name, group=scored, reason=reason))


async def score_group(group: RolloutGroup, scorer: Scorer | Task, algorithm: Algorithm) -> ScoredGroup:
    """Score every reply of a group; each reply keeps its own score, whatever order the scores come in."""
    scores = await asyncio.gather(*(scorer.score(group.prompt.problem, rollout) for rollout in group.rollouts))
    return ScoredGroup(
        prompt=group.prompt,
        rollouts=tuple(
            ScoredRollout(
                rollout=rollout, score=score, parts={"correctness": score.reward, **algorithm.penalise(rollout)}
            )
            for rollout, score in zip(group.rollouts, scores, strict=True)
        ),
    )
