from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch

from dapo.algorithms.config import DAPOConfig
from dapo.collect import CollectPlan
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError, NoSignalError, RunError
from dapo.loop import Ending, Outcome, Run, train
from dapo.metrics import METRICS
from dapo.prompts import PromptStream
from dapo.trainers.core import OptimizerSettings
from dapo.types import Minibatch, Problem, Prompt, Reason, Rollout, RolloutGroup, Sampling, Score, Update, Weights
from tests.fakes import FakeRecorder, FakeTask, FakeTrainer, engine_of, problems, render

MIXED, RIGHT, WRONG = "+-", "++", "--"


class Recording(FakeEngine):
    """An engine that answers by a pattern for each problem, and remembers the versions that it was given."""

    def __init__(self, pattern_of: Callable[[str], str], *, fails_at_load: int | None = None) -> None:
        super().__init__(lambda prompt, index: "yes" if pattern_of(prompt.problem.id)[index] == "+" else "no")
        self._fails_at_load = fails_at_load
        self.loads = 0
        self.versions: list[int] = []

    async def load(self, weights: Weights) -> None:
        self.loads += 1
        if self.loads == self._fails_at_load:
            raise RunError("The weights do not fit.")
        await super().load(weights)
        self.versions.append(weights.policy_version)


class FirstLetter(FakeTask):
    """A reply is right if it begins like the answer, though it was cut off."""

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        right = rollout.text[:1] == problem.answer[:1]
        return Score(correct=right, reward=1.0 if right else -1.0)


class Scene:
    """A run of fakes: what to train on, and what came of it."""

    def __init__(
        self,
        engine: FakeEngine | None = None,
        *,
        groups: int = 4,
        prompts: int = 40,
        epochs: int | None = None,
        steps: int = 3,
        first_step: int = 1,
        updates: int = 2,
        trainer: FakeTrainer | None = None,
        algorithm: dict[str, Any] | None = None,
        max_tokens: int = 8,
        task: FakeTask | None = None,
        evaluate: Callable[[int], Awaitable[None]] | None = None,
        **settings: Any,
    ) -> None:
        self.engine = engine or Recording(lambda name: MIXED)
        self.trainer = trainer or FakeTrainer()
        self.recorder = FakeRecorder()
        self.stream = PromptStream(problems(prompts), render, seed=0, epochs=epochs)
        self.evaluated: list[int] = []

        async def measure(step: int) -> None:
            self.evaluated.append(step)

        self.run = Run(
            algorithm=DAPOConfig.model_validate({"soft_overlong": {"enabled": False}} | (algorithm or {})).build(8),
            task=task or FakeTask(),
            stream=self.stream,
            engine=self.engine,
            trainer=self.trainer,
            recorder=self.recorder,
            evaluate=evaluate or measure,
            plan=CollectPlan(
                groups=groups, group_size=2, sampling=Sampling(max_tokens=max_tokens), seed=0, max_rounds=10
            ),
            first_step=first_step,
            last_step=steps,
            updates_per_step=updates,
            **{
                "reuses_rollouts": False,
                "engine_is_old": False,
                "saves_at": lambda step: False,
                "evaluates_at": lambda step: False,
                "peak_memory_gb": lambda: 1.5,
            }
            | settings,
        )

    def train(self) -> Outcome:
        return asyncio.run(train(self.run))


def half_of(name: str) -> str:
    """Every second problem gives a group to learn from."""
    return MIXED if int(name.removeprefix("p")) % 2 else WRONG


# Steps, updates, versions


def test_each_step_is_recorded_and_the_engine_gets_each_version_as_it_rises() -> None:
    scene = Scene(engine := Recording(lambda name: MIXED))
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=3)
    assert engine.versions == [0, 2, 4, 6]
    assert list(scene.recorder.numbers) == list(scene.recorder.collected) == [1, 2, 3]
    written = [
        {reply.rollout.policy_version for group in scene.recorder.collected[step].kept for reply in group.rollouts}
        for step in (1, 2, 3)
    ]
    assert written == [{0}, {2}, {4}]
    assert scene.evaluated == [0]
    assert scene.recorder.stages == ["generate", "train"] * 3


def test_every_number_of_a_step_is_in_the_catalogue_and_finite() -> None:
    scene = Scene()
    scene.train()
    for numbers in scene.recorder.numbers.values():
        assert set(numbers) <= set(METRICS)
        assert all(math.isfinite(value) for value in numbers.values())
        assert list(numbers) == sorted(numbers)
        json.dumps(numbers, allow_nan=False)
    assert scene.recorder.numbers[1]["memory/peak_gb"] == 1.5


def test_updates_and_warm_up_are_as_planned_however_many_groups_are_dropped() -> None:
    """Half of the groups are dropped: generation doubles, while updates and learning rate keep to the plan."""
    rate = OptimizerSettings(learning_rate=1.0, warmup_updates=4).rate
    trainer = FakeTrainer(rate)
    scene = Scene(Recording(half_of), trainer=trainer, steps=4, updates=2, prompts=100)
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=4)
    assert trainer.version == 4 * 2
    assert trainer.rates == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5, 1, 1, 1, 1])
    numbers = scene.recorder.numbers
    assert [numbers[step]["optim/updates"] for step in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert [numbers[step]["sampling/groups_kept"] for step in (1, 2, 3, 4)] == [4, 4, 4, 4]
    generated = sum(numbers[step]["sampling/groups_generated"] for step in (1, 2, 3, 4))
    assert generated == scene.stream.position == numbers[4]["sampling/prompts_drawn"]
    assert 24 <= generated <= 60


def test_the_groups_of_a_step_are_spread_over_its_updates() -> None:
    scene = Scene(steps=1, groups=5, updates=2)
    scene.train()
    assert [part.num_rows for part in scene.trainer.minibatches] == [6, 4]
    assert scene.recorder.numbers[1]["tokens/trained"] == sum(
        reply.rollout.length for group in scene.recorder.collected[1].kept for reply in group.rollouts
    )


def test_no_prompt_comes_twice_within_an_epoch() -> None:
    """9 prompts, 3 a step, 2 replies to each: in 3 steps each prompt once."""
    scene = Scene(prompts=9, groups=3, steps=6)
    scene.train()
    asked = [prompt.problem.id for prompt, _, _, _ in scene.engine.calls]
    everything = sorted(one.id for one in problems(9))
    assert sorted(asked[:9]) == sorted(asked[9:]) == everything
    assert {n for _, n, _, _ in scene.engine.calls} == {2}


def test_saving_and_measuring_happen_at_their_steps() -> None:
    scene = Scene(steps=4, saves_at=lambda step: step % 2 == 0, evaluates_at=lambda step: step == 3)
    scene.train()
    assert scene.recorder.saved == [2, 4]
    assert scene.evaluated == [0, 3]


def test_a_run_that_goes_on_starts_at_its_step_and_does_not_measure_again() -> None:
    trainer = FakeTrainer()
    trainer.version = 4
    scene = Scene(engine := Recording(lambda name: MIXED), first_step=3, steps=4, trainer=trainer)
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=4)
    assert (list(scene.recorder.numbers), engine.versions, scene.evaluated) == ([3, 4], [4, 6, 8], [])
    assert scene.recorder.collected[3].groups[0].name == "3-0000"


# What the trainer is given


def test_with_one_use_of_a_rollout_no_old_log_probabilities_are_asked_for() -> None:
    scene = Scene(steps=1)
    scene.train()
    assert scene.trainer.asked == [frozenset()]
    assert set(scene.trainer.minibatches[0].columns) == {"advantages"}


def test_with_more_the_trainer_computes_them_before_the_first_update_for_all_later_ones() -> None:
    """In the first update they are what its own pass computes: nothing is asked for it."""
    scene = Scene(steps=1, reuses_rollouts=True)
    scene.train()
    first, *later = scene.trainer.minibatches
    assert later
    assert scene.trainer.asked == [frozenset(), *(frozenset({"old_logprobs"}) for _ in later)]
    assert "old_logprobs" not in first.columns
    for part in later:
        assert part.columns["old_logprobs"].unique().tolist() == [-0.25]


def test_the_engine_s_own_serve_where_both_sides_compute_alike() -> None:
    scene = Scene(steps=1, engine_is_old=True)
    scene.train()
    for part in scene.trainer.minibatches:
        assert torch.equal(part.columns["old_logprobs"], part.sampled_logprobs_BT)


def test_advantages_of_filtered_replies_are_in_no_mean() -> None:
    """The truncated reply of a group has the far advantage; it trains nothing and is not measured."""
    engine = FakeEngine(lambda prompt, index: "yes" if index == 0 else "no, and on and on")
    scene = Scene(engine, steps=1, algorithm={"overlong_filtering": True})
    scene.train()
    numbers = scene.recorder.numbers[1]
    assert numbers["tokens/trained"] == 4 * len("yes")
    assert numbers["advantage/mean_abs"] == pytest.approx(1 / math.sqrt(2), abs=1e-5)
    assert numbers["length/truncated"] == 0.5


def test_a_step_whose_replies_are_all_filtered_makes_no_update_and_no_nan() -> None:
    engine = FakeEngine(lambda prompt, index: "yes" if index == 0 else "no")
    scene = Scene(engine, steps=2, max_tokens=1, algorithm={"overlong_filtering": True}, task=FirstLetter())
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=2)
    assert scene.trainer.minibatches == []
    numbers = scene.recorder.numbers[2]
    assert numbers["advantage/mean_abs"] == 0.0 and numbers["length/truncated"] == 1.0
    assert all(math.isfinite(value) for value in numbers.values())


# Endings


def test_a_solved_task_ends_the_run_as_a_success() -> None:
    scene = Scene(Recording(lambda name: RIGHT), prompts=200)
    assert scene.train() == Outcome(ending=Ending.SOLVED, steps=0)
    assert {judged.reason for judged in scene.recorder.collected[1].groups} == {Reason.ALL_RIGHT}
    assert scene.recorder.labelled == {1: None} and scene.trainer.minibatches == []


def test_a_run_that_finds_nothing_to_learn_is_an_error_and_keeps_what_it_saw() -> None:
    scene = Scene(Recording(lambda name: WRONG), prompts=2000)
    with pytest.raises(NoSignalError, match="Nearly nothing is right"):
        scene.train()
    assert {judged.reason for judged in scene.recorder.collected[1].groups} == {Reason.ALL_WRONG}


def test_where_the_prompts_run_out_the_last_step_trains_on_what_was_accepted() -> None:
    """Three prompts for a step of two groups, good, dropped, good; and then no fourth."""
    order = [prompt.problem.id for prompt in PromptStream(problems(3), render, seed=0).take(3)]
    outcomes = dict(zip(order, [MIXED, WRONG, MIXED], strict=True))
    scene = Scene(engine_of(outcomes), prompts=3, epochs=1, groups=2, steps=9)
    assert scene.train() == Outcome(ending=Ending.DATA_ENDED, steps=1)
    assert sum(part.num_rows for part in scene.trainer.minibatches) == 4
    assert scene.recorder.numbers[1]["sampling/groups_kept"] == 2


def test_a_refill_at_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    """Five prompts, steps of four groups, half of the groups dropped, two epochs: six groups are trained on in all."""
    outcomes = {f"p{number}": outcome for number, outcome in enumerate([MIXED, WRONG, MIXED, RIGHT, MIXED])}
    scene = Scene(engine_of(outcomes), prompts=5, epochs=2, steps=9)
    assert scene.train() == Outcome(ending=Ending.DATA_ENDED, steps=2)
    kept = [len(scene.recorder.collected[step].kept) for step in (1, 2)]
    assert kept == [4, 2] and scene.recorder.collected[3].groups == ()
    assert sum(part.num_rows for part in scene.trainer.minibatches) == 2 * 6


# Stopping


class Hanging(Recording):
    """From the n-th request on it asks the run to stop and never answers."""

    def __init__(self, hangs_at: int) -> None:
        super().__init__(lambda name: MIXED)
        self._hangs_at = hangs_at
        self.stop: asyncio.Event | None = None
        self.was_cancelled = False

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        group = await super().sample(prompt, n, sampling, seed)
        if len(self.calls) >= self._hangs_at:
            assert self.stop is not None
            self.stop.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        return group


def test_a_stop_in_the_middle_of_generation_leaves_the_stream_where_the_step_began() -> None:
    scene = Scene(engine := Hanging(hangs_at=6), steps=9)
    engine.stop = scene.run.stop
    assert scene.train() == Outcome(ending=Ending.STOPPED, steps=1)
    assert scene.stream.position == 4  # the first step's; the second drew four more
    assert len(engine.calls) >= 6 and engine.was_cancelled
    assert list(scene.recorder.collected) == list(scene.recorder.numbers) == [1]
    assert scene.trainer.version == 2
    drawn_again = [prompt.problem.id for prompt in scene.stream.take(4)]
    assert drawn_again == [prompt.problem.id for prompt, _, _, _ in engine.calls[4:8]]


class Stopping(FakeTrainer):
    """Asks the run to stop while it makes its first update."""

    stop: asyncio.Event

    def step(self, minibatch: Minibatch) -> Update:
        self.stop.set()
        return super().step(minibatch)


def test_a_stop_while_training_ends_the_run_after_the_step() -> None:
    scene = Scene(trainer=(trainer := Stopping()), steps=9)
    trainer.stop = scene.run.stop
    assert scene.train() == Outcome(ending=Ending.STOPPED, steps=1)
    assert list(scene.recorder.numbers) == [1] and trainer.version == 2


def test_a_stop_while_measuring_gives_the_measurement_up() -> None:
    measured: list[int] = []

    async def measure(step: int) -> None:
        scene.run.stop.set()
        await asyncio.sleep(3600)
        measured.append(step)

    scene = Scene(evaluate=measure)
    assert scene.train() == Outcome(ending=Ending.STOPPED, steps=0)
    assert measured == [] and scene.stream.position == 0 and scene.trainer.version == 0


# Failures


def test_weights_that_could_not_be_loaded_raise_no_version_and_end_the_run() -> None:
    scene = Scene(engine := Recording(lambda name: MIXED, fails_at_load=2))
    with pytest.raises(RunError, match="do not fit"):
        scene.train()
    assert engine.policy_version == 0 and engine.versions == [0]
    assert len(engine.calls) == 4  # nothing was generated with weights that are not there


class Dead(FakeEngine):
    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        raise EngineError("out of memory")


def test_an_engine_that_is_dead_ends_the_run_with_its_error() -> None:
    scene = Scene(Dead(lambda prompt, index: ""))
    with pytest.raises(EngineError, match="out of memory"):
        scene.train()
    assert scene.recorder.numbers == {}


class Broken(FakeTrainer):
    def step(self, minibatch: Minibatch) -> Update:
        raise RunError("the gradient is not finite")


def test_an_update_that_fails_ends_the_run_with_its_error() -> None:
    scene = Scene(engine := Recording(lambda name: MIXED), trainer=Broken())
    with pytest.raises(RunError, match="not finite"):
        scene.train()
    assert engine.versions == [0] and scene.recorder.numbers == {}
