"""What goes from step to step: carried groups and their ratio, overlapping, waiting, skipped updates, and resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dapo.collect import MAX_STEPS_WITHOUT_UPDATE
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError, NoSignalError, RunError
from dapo.loop import Ending, Outcome
from dapo.types import Minibatch, Prompt, Reason, RolloutGroup, Sampling, Total, Update
from tests.fakes import FakeTrainer, engine_of
from tests.unit.test_loop import MIXED, RIGHT, WRONG, Hanging, Recording, Scene, half_of

CARRYING = {"oversample": 2.0, "max_staleness": 2}


def scene_of(engine: FakeEngine | None = None, *, plan: Mapping[str, Any] | None = None, **settings: Any) -> Scene:
    """A scene whose plan is changed."""
    from dataclasses import replace

    scene = Scene(engine, **settings)
    scene.run = replace(scene.run, plan=replace(scene.run.plan, **plan or {}))
    return scene


def two_of_three(name: str) -> str:
    """Two problems of three give a group to learn from."""
    return MIXED if int(name.removeprefix("p")) % 3 else WRONG


# The ratio of carried groups


def test_a_carried_row_is_compared_with_the_policy_that_sampled_it_and_a_fresh_one_with_the_present() -> None:
    """Step 1 leaves two groups of four; step 2 trains on them and on two of its own, with one update a step."""
    scene = scene_of(steps=2, updates=1, plan={"oversample": 1.5, "max_staleness": 1})
    scene.train()
    first, second = scene.trainer.minibatches
    assert set(first.columns) == {"advantages"} and scene.trainer.asked[0] == frozenset()
    assert second.version_B.tolist() == [0] * 4 + [1] * 4
    assert scene.trainer.asked[1] == frozenset({"old_logprobs"})
    old_BT = second.columns["old_logprobs"]
    assert torch.equal(old_BT[:4], second.sampled_logprobs_BT[:4]) and old_BT[0].tolist() == [-0.5, -0.5, -0.5]
    assert old_BT[4:].unique().tolist() == [-0.25]  # the trainer's, of now


def test_the_gradient_of_a_carried_row_carries_its_ratio() -> None:
    """Advantage A, log-ratio log p - log q: the gradient of the loss in log p is -A p / q, and -A in a fresh row."""
    scene = scene_of(steps=2, updates=1, plan={"oversample": 1.5, "max_staleness": 1})
    scene.train()
    part = scene.trainer.minibatches[1]
    now_BT = torch.full_like(part.sampled_logprobs_BT, -0.4).requires_grad_()
    fresh_BT = torch.full_like(part.sampled_logprobs_BT, -0.4)
    columns = {**part.columns, "old_logprobs": part.columns["old_logprobs"].clone()}
    columns["old_logprobs"][4:] = fresh_BT[4:]  # what the trainer would have computed for the present policy
    scene.run.algorithm.loss(now_BT, columns).loss_BT.sum().backward()
    assert now_BT.grad is not None
    advantages_BT = part.columns["advantages"]
    ratio = torch.exp(torch.tensor(-0.4 + 0.5))
    torch.testing.assert_close(now_BT.grad[:4], -advantages_BT[:4] * ratio)
    torch.testing.assert_close(now_BT.grad[4:], -advantages_BT[4:])


def test_with_several_updates_a_step_only_the_carried_rows_are_the_engine_s() -> None:
    scene = scene_of(steps=2, updates=2, reuses_rollouts=True, plan={"oversample": 1.5, "max_staleness": 2})
    scene.train()
    carried, fresh = scene.trainer.minibatches[2:]
    assert torch.equal(carried.columns["old_logprobs"], carried.sampled_logprobs_BT)
    assert fresh.columns["old_logprobs"].unique().tolist() == [-0.25]


def test_where_the_engine_s_serve_they_serve_for_all_rows() -> None:
    scene = scene_of(steps=2, updates=1, engine_is_old=True, plan={"oversample": 1.5, "max_staleness": 1})
    scene.train()
    assert scene.trainer.asked == [frozenset(), frozenset()]
    part = scene.trainer.minibatches[1]
    assert torch.equal(part.columns["old_logprobs"], part.sampled_logprobs_BT)


# A step that is short


def test_a_step_that_waits_makes_no_update_and_the_engine_keeps_its_weights() -> None:
    """Two problems of three are mixed: one round of four holds fewer than four, and two steps hold enough."""
    plan = {"max_rounds": 1, "when_short": "carry_over"}
    scene = scene_of(engine := Recording(two_of_three), steps=4, plan=plan, prompts=100)
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=4)
    kept = [len(scene.recorder.collected[step].kept) for step in (1, 2, 3, 4)]
    trained = [name for name in kept if name]
    assert kept[0] == 0 and trained and scene.trainer.version == 2 * len(trained)
    assert engine.versions == list(range(0, 2 * len(trained) + 1, 2))
    assert scene.recorder.labelled[1] is None and "optim/loss" not in scene.recorder.numbers[1]
    assert (
        scene.recorder.numbers[1]["sampling/groups_carried_out"]
        == scene.recorder.numbers[2]["sampling/groups_carried_in"]
    )
    assert scene.recorder.notes[0].startswith("step 1: Only ")


def test_steps_that_wait_for_what_never_comes_end_with_an_error() -> None:
    plan = {"max_rounds": 1, "when_short": "carry_over"}
    scene = scene_of(Recording(lambda name: WRONG), steps=99, prompts=2000, plan=plan)
    with pytest.raises(NoSignalError, match="Nearly nothing is right"):
        scene.train()
    assert list(scene.recorder.collected) == list(range(1, MAX_STEPS_WITHOUT_UPDATE + 2))
    assert scene.recorder.saved == [MAX_STEPS_WITHOUT_UPDATE]
    assert scene.recorder.notes[0].startswith("step 1: None of 4 groups") and len(scene.recorder.notes) == 1


def test_after_waiting_long_enough_a_step_trains_on_what_there_is() -> None:
    """One prompt in twenty is mixed."""
    rare = Recording(lambda name: WRONG if int(name.removeprefix("p")) % 20 else MIXED)
    plan = {"max_rounds": 1, "when_short": "carry_over"}
    scene = scene_of(rare, steps=99, prompts=120, epochs=1, groups=8, plan=plan)
    scene.train()
    trained = [step for step, found in scene.recorder.collected.items() if found.kept]
    assert trained[0] == MAX_STEPS_WITHOUT_UPDATE + 1 < trained[1] <= 2 * trained[0]
    names = [judged.name for found in scene.recorder.collected.values() for judged in found.groups]
    assert len(names) == len(set(names)) == 120
    assert sum(part.num_rows for part in scene.trainer.minibatches) == 6 * 2  # every mixed group, once


def test_a_short_step_can_be_an_error_and_says_what_to_do() -> None:
    plan = {"max_rounds": 1, "when_short": "error"}
    scene = scene_of(Recording(two_of_three), steps=4, plan=plan, prompts=100)
    with pytest.raises(NoSignalError, match=r"Only \d groups? of 4 .* Raise algorithm.dynamic_sampling.max_rounds"):
        scene.train()
    reasons = {judged.reason for judged in scene.recorder.collected[1].groups}
    assert reasons == {Reason.SURPLUS, Reason.ALL_WRONG}  # nothing was trained on


def test_a_task_that_is_all_but_solved_ends_as_a_success_whatever_is_said_of_short_steps() -> None:
    lucky = Recording(lambda name: MIXED if name == "p7" else RIGHT)
    scene = scene_of(lucky, steps=4, prompts=200, groups=2, plan={"max_rounds": 80, "when_short": "error"})
    assert scene.train() == Outcome(ending=Ending.SOLVED, steps=0)
    assert {judged.reason for judged in scene.recorder.collected[1].groups} == {Reason.ALL_RIGHT, Reason.SURPLUS}
    for when_short in ("train_partial", "carry_over", "top_up"):
        scene = scene_of(Recording(lambda name: RIGHT), prompts=200, plan={"when_short": when_short})
        assert scene.train() == Outcome(ending=Ending.SOLVED, steps=0)


# Updates that are skipped


class NotFinite(FakeTrainer):
    """Skips the updates with these numbers, counted from 0, because of row 1."""

    def __init__(self, *skips: int) -> None:
        super().__init__()
        self._skips = skips
        self._made = 0

    def step(self, minibatch: Minibatch) -> Update:
        number, self._made = self._made, self._made + 1
        if number not in self._skips:
            return super().step(minibatch)
        return Update(
            policy_version=self.version, stats={"optim/skipped": Total(value=1)}, is_skipped=True, suspect_rows=(1,)
        )


def test_a_skipped_update_is_counted_and_its_replies_are_kept_by_their_rows_in_the_batch() -> None:
    scene = Scene(trainer=(trainer := NotFinite(1, 2)), steps=3)
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=3)
    assert trainer.version == 4
    assert scene.recorder.suspected == {1: (5,), 2: (1,)}  # four rows an update
    assert [scene.recorder.numbers[step]["optim/skipped"] for step in (1, 2, 3)] == [1, 1, 0]
    written = [
        {reply.rollout.policy_version for group in scene.recorder.collected[step].kept for reply in group.rollouts}
        for step in (1, 2, 3)
    ]
    assert written == [{0}, {1}, {2}]


def test_after_too_many_on_end_the_run_stops_with_an_error_after_saving() -> None:
    scene = Scene(trainer=NotFinite(0, 2, 3, 4), steps=9)
    with pytest.raises(RunError, match=r"3 updates on end were skipped, the last of them in step 3.*step-000003"):
        scene.train()
    assert list(scene.recorder.numbers) == [1, 2, 3] and scene.recorder.saved == [3]
    assert scene.recorder.states[3]["counters"]["skipped_in_a_row"] == 0  # the second update of step 3 was made


def test_the_count_of_skipped_updates_goes_on_after_a_resume() -> None:
    scene = Scene(trainer=NotFinite(2, 3), steps=2)
    scene.train()
    state = json.loads(json.dumps(scene.recorder.states[2]))
    again = Scene(trainer=NotFinite(0), first_step=3, steps=9, resumed=state)
    with pytest.raises(RunError, match="3 updates on end"):
        again.train()


# Overlapping


class Timed(Recording):
    """Tells what happens when."""

    def __init__(self, pattern: Any = lambda name: MIXED) -> None:
        super().__init__(pattern)
        self.story: list[str] = []

    async def load(self, weights: Any) -> None:
        await super().load(weights)
        self.story.append(f"load {weights.policy_version}")

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        self.story.append(f"sample {self.policy_version}")
        return await super().sample(prompt, n, sampling, seed)


def test_the_next_step_s_groups_are_generated_with_the_weights_of_before_the_update() -> None:
    engine = Timed()
    scene = scene_of(engine, steps=3, groups=2, updates=2, overlaps=True, plan={"max_staleness": 2})
    assert scene.train() == Outcome(ending=Ending.FINISHED, steps=3)
    once = ["sample 0"] * 2
    assert engine.story == ["load 0", *once, *once, "load 2", "sample 2", "sample 2", "load 4", "load 6"]
    assert [part.version_B.unique().tolist() for part in scene.trainer.minibatches] == [[0], [0], [0], [0], [2], [2]]
    assert [set(part.columns) for part in scene.trainer.minibatches[:2]] == [{"advantages"}] * 2
    for part in scene.trainer.minibatches[2:]:
        assert torch.equal(part.columns["old_logprobs"], part.sampled_logprobs_BT)
    for numbers in scene.recorder.numbers.values():
        assert numbers["time/step"] >= sum(numbers.get(f"time/{name}", 0) for name in ("generate", "grade", "train"))


def test_a_stop_while_runs_overlap_gives_up_the_groups_of_the_step_to_come() -> None:
    engine = Hanging(hangs_at=6)
    scene = scene_of(engine, steps=9, overlaps=True, plan={"max_staleness": 2})
    engine.stop = scene.run.stop
    assert scene.train() == Outcome(ending=Ending.STOPPED, steps=1)
    assert engine.was_cancelled and scene.stream.position == 4
    assert scene.recorder.states[1]["ahead"] is None and scene.recorder.states[1]["stream"]["position"] == 4


def test_an_error_while_runs_overlap_is_met_again_by_the_step_it_belongs_to() -> None:
    class Failing(Recording):
        async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
            group = await super().sample(prompt, n, sampling, seed)
            if len(self.calls) > 4:
                raise EngineError("out of memory")
            return group

    scene = scene_of(Failing(lambda name: MIXED), steps=9, overlaps=True, plan={"max_staleness": 2})
    with pytest.raises(EngineError, match="out of memory"):
        scene.train()
    assert list(scene.recorder.numbers) == [1] and scene.recorder.saved == [1] and scene.trainer.version == 2


def test_an_update_that_fails_while_runs_overlap_ends_the_run_at_once() -> None:
    class Broken(FakeTrainer):
        def step(self, minibatch: Minibatch) -> Update:
            raise RunError("the disk is on fire")

    scene = scene_of(trainer=Broken(), steps=9, overlaps=True, plan={"max_staleness": 2})
    with pytest.raises(RunError, match="on fire"):
        scene.train()


# Going on


def numbers_of(scene: Scene) -> dict[int, dict[str, float]]:
    return {
        step: {name: value for name, value in numbers.items() if not name.startswith("time/")}
        for step, numbers in scene.recorder.numbers.items()
    }


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "carrying": ({"oversample": 2.0, "max_staleness": 4}, {}),
    "waiting": ({"max_rounds": 1, "when_short": "carry_over"}, {}),
    "overlapping": ({"oversample": 1.5, "max_staleness": 4}, {"overlaps": True}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stops_after", range(1, 7))
def test_a_run_that_goes_on_from_a_saved_state_is_the_run_that_would_have_been(way: str, stops_after: int) -> None:
    plan, settings = WAYS[way]
    common: dict[str, Any] = {"plan": plan, "prompts": 60, **settings}
    whole = scene_of(Recording(half_of), steps=7, saves_at=lambda step: True, **common)
    assert whole.train() == Outcome(ending=Ending.FINISHED, steps=7)
    state = json.loads(json.dumps(whole.recorder.states[stops_after]))
    trainer = FakeTrainer()
    trainer.version = sum(1 for step in range(1, stops_after + 1) if whole.recorder.collected[step].kept) * 2
    rest = scene_of(Recording(half_of), steps=7, first_step=stops_after + 1, trainer=trainer, resumed=state, **common)
    assert rest.train() == Outcome(ending=Ending.FINISHED, steps=7)
    later = range(stops_after + 1, 8)
    for step in later:
        assert rest.recorder.collected[step].groups == whole.recorder.collected[step].groups
    assert numbers_of(rest) == {step: numbers_of(whole)[step] for step in later}
    assert rest.stream.state() == whole.stream.state()
    before = len(whole.trainer.minibatches) - len(rest.trainer.minibatches)
    for ours, theirs in zip(rest.trainer.minibatches, whole.trainer.minibatches[before:], strict=True):
        assert ours.prompt_ids == theirs.prompt_ids
        assert ours.columns.keys() == theirs.columns.keys()
        for name, column in ours.columns.items():
            assert torch.equal(column, theirs.columns[name])


def test_no_group_is_lost_or_trained_on_twice_over_a_whole_run() -> None:
    for plan, settings in WAYS.values():
        scene = scene_of(Recording(half_of), steps=7, prompts=60, plan=plan, **settings)
        scene.train()
        names = [judged.name for found in scene.recorder.collected.values() for judged in found.groups]
        assert len(names) == len(set(names)) == scene.stream.position


def test_a_stop_gives_carried_groups_back_with_the_step() -> None:
    engine = Hanging(hangs_at=10)
    scene = scene_of(engine, steps=9, plan={"oversample": 2.0, "max_staleness": 2})
    engine.stop = scene.run.stop
    outcome = scene.train()
    state = scene.recorder.states[outcome.steps]
    assert outcome.ending is Ending.STOPPED and outcome.steps == 2
    assert [group["name"] for group in state["pending"]] == []
    assert state["stream"]["position"] == scene.stream.position == 8


def test_asyncio_debug_has_nothing_to_say() -> None:
    """No task is left alone with an exception."""
    scene = scene_of(engine_of(lambda name: MIXED), steps=2, overlaps=True, plan={"max_staleness": 2})
    problems: list[Mapping[str, Any]] = []

    async def story() -> None:
        from dapo.loop import train

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        await train(scene.run)

    asyncio.run(story(), debug=True)
    assert problems == []


def test_only_the_first_of_several_short_steps_on_end_is_told() -> None:
    scene = scene_of(Recording(two_of_three), steps=6, prompts=100, plan={"max_rounds": 1})
    scene.train()
    short = [step for step, found in scene.recorder.collected.items() if len(found.kept) < 4]
    first = [step for step in short if step - 1 not in short]
    assert len(first) < len(short)  # or the test shows nothing
    assert [note.partition(":")[0] for note in scene.recorder.notes] == [f"step {step}" for step in first]
