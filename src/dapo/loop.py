"""The training loop. Prompt -> RolloutGroup -> ScoredGroup -> Batch -> Minibatch -> Update; only weights come back.

It sees the four Protocols and an algorithm's value, and asks neither for its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from dapo.algorithms.value import Algorithm
from dapo.clock import Clock
from dapo.collect import (
    MAX_STEPS_WITHOUT_UPDATE,
    CollectPlan,
    Standing,
    collect,
    given_up,
    goes_on,
    looks_solved,
    no_signal,
    shortage,
    without_waiting,
)
from dapo.errors import DapoError
from dapo.learning import Learnt, learn, mean_advantage, not_finite
from dapo.ports import Engine, Task, Trainer
from dapo.prompts import PromptStream
from dapo.signals import unless_stopped
from dapo.types import Collected, Inherited, LabelledBatch, Stats, merge_stats


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

    def note(self, text: str) -> None:
        """Tell the person at the screen."""
        ...

    def suspects(self, step: int, collected: Collected, labelled: LabelledBatch, rows: Sequence[int]) -> None:
        """Keep the replies, by their rows in the batch, at which a loss or gradient was not finite."""
        ...

    def groups(self, step: int, collected: Collected, labelled: LabelledBatch | None) -> None:
        """Keep every group that a step settled, with the advantages of those that were trained on."""
        ...

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep and show the numbers of a step."""
        ...

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Take a checkpoint of the state after `step` steps: a copy now, written while training goes on.

        `state` is what the loop needs to go on from there, as JSON has it. The checkpoint counts only once the step's
        metrics are written. A step that was saved already is not saved again.
        """
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
    overlaps: bool = False
    """Whether the next step's groups are generated while this step trains."""
    max_skipped_in_a_row: int = 3
    """Updates on end that may be skipped because a number was not finite, before the run ends with an error."""
    resumed: Mapping[str, Any] | None = None
    """The state that `Recorder.save` was given after step `first_step - 1`."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended and how many steps it made in all."""

    ending: Ending
    steps: int


async def train(run: Run) -> Outcome:
    """Train until the last step, the end of the data, a solved task or a request to stop."""
    weights = run.trainer.publish()
    await run.engine.load(weights)  # engine and trainer start equal
    done = run.first_step - 1
    if done == 0 or run.evaluates_at(done):  # after a step too: a crash may have come between it and its evaluation
        await unless_stopped(run.evaluate(done), run.stop)
    outcome, standing = await _steps(run, done, _standing(run), weights.policy_version)
    if outcome.steps > done:
        run.recorder.save(outcome.steps, standing.to_json())
    return outcome


def _standing(run: Run) -> Standing:
    """Where the run stands as it begins, or as it was saved."""
    if run.resumed is None:
        return Standing(stream=run.stream.state())
    standing = Standing.from_json(run.resumed)
    run.stream.restore(standing.stream)
    return standing


async def _steps(run: Run, done: int, standing: Standing, version: int) -> tuple[Outcome, Standing]:
    """Make the steps after the first `done`; return how it ended, and where the run stood after the last one made."""
    for step in range(run.first_step, run.last_step + 1):
        clock = Clock()
        collected = await _collect(run, step, done, standing, version)
        if isinstance(collected, Ending):
            return Outcome(ending=collected, steps=done), standing
        learnt, ahead = await _learn(run, step, collected, version, clock)
        with clock("sync"):
            version = await _synchronise(run, version)
        done, standing, most_skipped = step, *_after(run, standing, collected, learnt, ahead)
        with clock("save"):
            run.recorder.groups(step, collected, learnt.labelled if learnt else None)
            if run.saves_at(step):
                run.recorder.save(step, standing.to_json())
        _report(run, step, collected, learnt, clock)
        if most_skipped >= run.max_skipped_in_a_row:
            run.recorder.save(step, standing.to_json())
            raise not_finite(step, most_skipped)
        if run.evaluates_at(step):
            await unless_stopped(run.evaluate(step), run.stop)
        if run.stop.is_set():
            return Outcome(ending=Ending.STOPPED, steps=done), standing
    return Outcome(ending=Ending.FINISHED, steps=done), standing


async def _collect(run: Run, step: int, done: int, standing: Standing, version: int) -> Collected | Ending:
    """Collect a step's groups, or say why the run ends here. A run that fails here is saved as far as it had come."""
    run.recorder.stage("generate")
    plan = without_waiting(run.plan) if standing.steps_without_update >= MAX_STEPS_WITHOUT_UPDATE else run.plan
    try:
        collected = standing.ahead
        if collected is None:
            collected = await unless_stopped(_gather(run, step, plan, standing.inherited, version), run.stop)
        if collected is None:
            run.stream.restore(standing.stream)  # the step was not made: what it drew will be drawn again
            return Ending.STOPPED
        if goes_on(collected, plan, data_has_ended=run.stream.is_exhausted):
            if len(collected.kept) < plan.groups and standing.short_in_a_row == 0:
                run.recorder.note(f"step {step}: {shortage(collected, plan)}")
            return collected
        run.recorder.groups(step, given_up(collected), None)
        if looks_solved(collected):
            return Ending.SOLVED
        if not collected.kept and run.stream.is_exhausted:
            return Ending.DATA_ENDED
        raise no_signal(collected, plan)
    except DapoError:
        run.stream.restore(standing.stream)
        if done >= run.first_step:
            run.recorder.save(done, standing.to_json())
        raise


async def _gather(run: Run, step: int, plan: CollectPlan, inherited: Inherited, version: int) -> Collected:
    return await collect(
        step,
        plan,
        run.stream,
        run.engine,
        run.task,
        run.algorithm,
        inherited=inherited,
        version=version,
    )


async def _learn(
    run: Run, step: int, collected: Collected, version: int, clock: Clock
) -> tuple[Learnt | None, Collected | None]:
    """Make a step's updates, and where runs overlap collect the next step's groups meanwhile, with the engine's weights."""
    if not collected.kept:
        return None, None
    run.recorder.stage("train")
    work = asyncio.to_thread(
        learn,
        run.trainer,
        run.algorithm,
        collected,
        version=version,
        updates=run.updates_per_step,
        reuses_rollouts=run.reuses_rollouts,
        engine_is_old=run.engine_is_old,
    )
    if not run.overlaps or step == run.last_step:
        with clock("train"):
            return await work, None
    following = asyncio.ensure_future(_ahead(run, step + 1, collected.left, version + run.updates_per_step))
    try:
        with clock("train"):
            learnt = await work
        with clock("generate"):
            return learnt, await following
    finally:
        following.cancel()


async def _ahead(run: Run, step: int, inherited: Inherited, version: int) -> Collected | None:
    """Collect a step's groups before their time. None, and the stream as it was, where a stop or an error came between.

    `version` is what the policy will be if no update is skipped, so that no group is older than it is allowed to be.
    """
    before = run.stream.state()
    try:
        found = await unless_stopped(_gather(run, step, run.plan, inherited, version), run.stop)
    except DapoError:
        found = None  # if it was no chance, the step itself meets it again, where it can be reported
    if found is None:
        run.stream.restore(before)
        return None
    return replace(found, stats={name: stat for name, stat in found.stats.items() if not name.startswith("time/")})


async def _synchronise(run: Run, version: int) -> int:
    """Hand the engine the policy, if it is a new version; return the version."""
    weights = run.trainer.publish()
    if weights.policy_version != version:
        await run.engine.load(weights)
    return weights.policy_version


def _after(
    run: Run, standing: Standing, collected: Collected, learnt: Learnt | None, ahead: Collected | None
) -> tuple[Standing, int]:
    """Where the run stands after a step, and the most updates on end that were skipped by then."""
    in_a_row, most = learnt.skipped(standing.skipped_in_a_row) if learnt else (standing.skipped_in_a_row, 0)
    after = Standing(
        stream=run.stream.state(),
        inherited=collected.left,
        ahead=ahead,
        skipped_in_a_row=in_a_row,
        steps_without_update=0 if learnt else standing.steps_without_update + 1,
        short_in_a_row=0 if len(collected.kept) >= run.plan.groups else standing.short_in_a_row + 1,
    )
    return after, most


def _report(run: Run, step: int, collected: Collected, learnt: Learnt | None, clock: Clock) -> None:
    """Hand on the numbers of a step, and the replies at which a number was not finite."""
    stats: list[Stats] = [collected.stats, clock.stats()]
    if learnt:
        stats += [learnt.labelled.stats, {"advantage/mean_abs": mean_advantage(learnt.labelled)}]
        stats += [update.stats for update in learnt.updates]
        if learnt.suspects:
            run.recorder.suspects(step, collected, learnt.labelled, learnt.suspects)
    values = {name: stat.value for name, stat in merge_stats(*stats).items()} | {"memory/peak_gb": run.peak_memory_gb()}
    if learnt:
        values["optim/skipped"] = sum(update.is_skipped for update in learnt.updates)
    run.recorder.metrics(step, dict(sorted(values.items())))
