"""The training loop. Prompt -> RolloutGroup -> ScoredGroup -> Batch -> Minibatch -> Update; only weights come back.

It sees the four Protocols and an algorithm's value, and asks neither for its name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from dapo.algorithms.value import ADVANTAGES, OLD_LOGPROBS, Algorithm
from dapo.batching import minibatches, pack
from dapo.collect import SOLVED_ACCURACY, CollectPlan, collect, no_signal
from dapo.errors import DapoError
from dapo.ports import Engine, Task, Trainer
from dapo.prompts import PromptStream
from dapo.types import Collected, LabelledBatch, Mean, Stat, Total, Update, merge_stats

T = TypeVar("T")


class Ending(StrEnum):
    """Why a training run ended without an error."""

    FINISHED = "finished"
    SOLVED = "solved"
    DATA_ENDED = "data_ended"
    STOPPED = "stopped"


class Recorder(Protocol):
    """Where a run's results go: files, screen, checkpoints."""

    def stage(self, name: str) -> None:
        """Say which stage runs now."""
        ...

    def groups(self, step: int, collected: Collected, labelled: LabelledBatch | None) -> None:
        """Keep every group that was generated in a step, with the advantages of those that were trained on."""
        ...

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep and show the numbers of a step."""
        ...

    def save(self, step: int) -> None:
        """Write a checkpoint of the state after `step` steps."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a training run needs, opened and ready."""

    algorithm: Algorithm
    task: Task
    stream: PromptStream
    engine: Engine
    trainer: Trainer
    recorder: Recorder
    evaluate: Callable[[int], Awaitable[None]]
    plan: CollectPlan
    first_step: int
    last_step: int
    updates_per_step: int
    reuses_rollouts: bool
    """Whether the ratio needs the log-probabilities of the policy that sampled, recomputed by the trainer."""
    engine_is_old: bool
    """Whether the engine's own log-probabilities serve as the old ones."""
    saves_at: Callable[[int], bool]
    evaluates_at: Callable[[int], bool]
    peak_memory_gb: Callable[[], float]
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended and how many steps it made in all."""

    ending: Ending
    steps: int


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - started

    def stats(self) -> dict[str, Stat]:
        """`time/STAGE` for each stage, and `time/step` for all since the clock was made."""
        stages: dict[str, Stat] = {f"time/{stage}": Total(value=seconds) for stage, seconds in self._seconds.items()}
        return stages | {"time/step": Total(value=time.perf_counter() - self._started)}


async def train(run: Run) -> Outcome:
    """Train until the last step, the end of the data, a solved task or a request to stop."""
    await run.engine.load(run.trainer.publish())  # engine and trainer start equal
    if run.first_step == 1:
        await unless_stopped(run.evaluate(0), run.stop)
    done = run.first_step - 1
    for step in range(run.first_step, run.last_step + 1):
        clock = Clock()
        collected = await _collect(run, step, done)
        if isinstance(collected, Ending):
            return Outcome(ending=collected, steps=done)
        run.recorder.stage("train")
        with clock("train"):
            labelled, updates = await asyncio.to_thread(_update, run, collected)
        with clock("sync"):
            await run.engine.load(run.trainer.publish())
        done = step
        with clock("save"):
            run.recorder.groups(step, collected, labelled)
        measured = merge_stats(collected.stats, labelled.stats, *(update.stats for update in updates), clock.stats())
        measured["advantage/mean_abs"] = _mean_advantage(labelled)
        values = {name: stat.value for name, stat in measured.items()} | {"memory/peak_gb": run.peak_memory_gb()}
        run.recorder.metrics(step, dict(sorted(values.items())))
        if run.saves_at(step):
            run.recorder.save(step)  # last: what a checkpoint says is done stands in the other files already
        if run.evaluates_at(step):
            await unless_stopped(run.evaluate(step), run.stop)
        if run.stop.is_set():
            return Outcome(ending=Ending.STOPPED, steps=done)
    return Outcome(ending=Ending.FINISHED, steps=done)


async def _collect(run: Run, step: int, done: int) -> Collected | Ending:
    """Collect a step's groups, or say why the run ends here. A run that fails here is saved as far as it had come."""
    run.recorder.stage("generate")
    position = run.stream.position
    try:
        collected = await unless_stopped(
            collect(step, run.plan, run.stream, run.engine, run.task, run.algorithm), run.stop
        )
        if collected is None:
            run.stream.position = position  # the step was not made: what it drew will be drawn again
            return Ending.STOPPED
        if collected.kept:
            return collected
        run.recorder.groups(step, collected, None)
        return _ending_without_signal(run, collected)
    except DapoError:
        run.stream.position = position
        if done >= run.first_step:
            run.recorder.save(done)
        raise


def _update(run: Run, collected: Collected) -> tuple[LabelledBatch, list[Update]]:
    """Make the optimizer steps of one rollout step."""
    batch = pack(collected.kept)
    needs = run.algorithm.needs | ({OLD_LOGPROBS} if run.reuses_rollouts else set())
    if run.engine_is_old:
        needs = needs - {OLD_LOGPROBS}
    notes = dict(run.trainer.annotate(batch, frozenset(needs)))
    if run.engine_is_old:
        notes[OLD_LOGPROBS] = batch.sampled_logprobs_BT
    labelled = run.algorithm.label(batch, notes)
    parts = minibatches(labelled, run.algorithm.weigh, run.updates_per_step)
    return labelled, [run.trainer.step(part) for part in parts]


def _ending_without_signal(run: Run, collected: Collected) -> Ending:
    """Tell a solved task and the end of the data from a run that cannot learn; the last raises NoSignalError."""
    if collected.groups and collected.stats["reward/accuracy_all"].value >= SOLVED_ACCURACY:
        return Ending.SOLVED
    if run.stream.is_exhausted:
        return Ending.DATA_ENDED
    raise no_signal(collected, run.plan)


def _mean_advantage(labelled: LabelledBatch) -> Mean:
    trained_BT = labelled.trained_BT
    advantages = labelled.columns[ADVANTAGES][trained_BT].abs()
    return Mean(total=float(advantages.sum()), count=float(advantages.numel()))


async def unless_stopped(work: Coroutine[Any, Any, T] | Awaitable[T], stop: asyncio.Event) -> T | None:
    """Await `work`, or give it up and return None once `stop` is set."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    finally:
        stopping.cancel()
        if not task.done():
            task.cancel()
