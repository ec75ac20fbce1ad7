"""What one step leaves to the next, what it does when it is short, and what it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dapo.algorithms.config import DAPOConfig
from dapo.collect import CollectPlan, Standing, collect, shortage
from dapo.engines.fake import FakeEngine
from dapo.prompts import PromptStream
from dapo.types import Collected, Inherited, KeptShare, Mean, Peak, Problem, Prompt, Rollout, Sampling, Score, Total
from tests.fakes import FakeTask, problems, render

DAPO = DAPOConfig.model_validate({"soft_overlong": {"enabled": False}}).build(8)
MIXED, RIGHT, WRONG = "+-", "++", "--"


class Scene:
    """Steps on one stream whose prompts have the given outcomes in the order in which they are drawn."""

    def __init__(self, *outcomes: str, groups: int, task: FakeTask | None = None, **plan: Any) -> None:
        names = [prompt.problem.id for prompt in self._stream(len(outcomes)).take(len(outcomes))]
        pattern = dict(zip(names, outcomes, strict=True))
        self.stream = self._stream(len(outcomes))
        self.engine = FakeEngine(lambda prompt, index: "yes" if pattern[prompt.problem.id][index] == "+" else "no")
        self.task = task or FakeTask()
        settings = {"groups": groups, "group_size": 2, "sampling": Sampling(max_tokens=8), "seed": 1, "max_rounds": 10}
        self.plan = CollectPlan(**settings | plan)
        self.left = Inherited()

    def _stream(self, count: int) -> PromptStream:
        return PromptStream(problems(count), render, seed=0, epochs=1)

    def step(self, step: int, *, version: int = 0) -> Collected:
        self.engine.policy_version = version
        work = collect(
            step,
            self.plan,
            self.stream,
            self.engine,
            self.task,
            DAPO,
            inherited=self.left,
            version=version,
        )
        found = asyncio.run(work)
        self.left = found.left
        return found


def fates(found: Collected) -> list[tuple[str, str]]:
    return [(judged.name, judged.reason.value) for judged in found.groups]


def names(inherited: Inherited) -> list[str]:
    return [judged.name for judged in inherited.groups]


def counts(found: Collected, *which: str) -> list[int]:
    return [int(found.stats[f"sampling/{name}"].value) for name in which]


# Carrying


def test_what_is_beyond_the_step_goes_to_the_next_one_and_comes_first_there() -> None:
    scene = Scene(*[MIXED] * 9, groups=2, oversample=2.5, max_staleness=2)
    first = scene.step(1)
    assert fates(first) == [("1-0000", "kept"), ("1-0001", "kept")]
    assert names(first.left) == ["1-0002", "1-0003", "1-0004"]
    second = scene.step(2, version=2)
    assert fates(second) == [("1-0002", "carried"), ("1-0003", "carried")]
    assert names(second.left) == ["1-0004"]
    assert {scored.rollout.policy_version for group in second.kept for scored in group.rollouts} == {0}
    third = scene.step(3, version=2)
    assert fates(third) == [("1-0004", "carried"), ("3-0000", "kept")]
    assert names(third.left) == ["3-0001", "3-0002"]  # 1 was missing: 2.5 prompts for it, rounded up
    numbers = ("groups_generated", "groups_carried_in", "groups_kept", "groups_carried_out")
    assert counts(first, *numbers) == [5, 0, 2, 3]
    assert counts(second, *numbers) == [0, 3, 2, 1]
    assert counts(third, *numbers) == [3, 1, 2, 2]


def test_a_group_is_used_at_the_limit_of_its_age_and_stale_beyond_it() -> None:
    def second(version: int) -> Collected:
        scene = Scene(*[MIXED] * 9, groups=2, oversample=2.0, max_staleness=2)
        scene.step(1, version=5)
        return scene.step(2, version=version)

    assert fates(second(7)) == [("1-0002", "carried"), ("1-0003", "carried")]
    late = second(8)
    assert fates(late)[:4] == [("1-0002", "stale"), ("1-0003", "stale"), ("2-0000", "kept"), ("2-0001", "kept")]
    assert counts(late, "groups_stale", "groups_carried_in", "groups_kept", "groups_generated") == [2, 2, 2, 4]


def test_without_a_staleness_what_is_beyond_the_step_is_surplus() -> None:
    found = Scene(*[MIXED] * 4, groups=2, oversample=2.0).step(1)
    assert [reason for _, reason in fates(found)] == ["kept", "kept", "surplus", "surplus"] and names(found.left) == []


# A step that is short


def test_a_short_step_can_wait_and_the_next_one_goes_on_from_its_groups() -> None:
    scene = Scene(MIXED, WRONG, WRONG, MIXED, MIXED, MIXED, groups=3, max_rounds=1, when_short="carry_over")
    first = scene.step(1)
    assert fates(first) == [("1-0001", "all_wrong"), ("1-0002", "all_wrong")] and first.kept == ()
    assert names(first.left) == ["1-0000"]
    second = scene.step(2)
    assert fates(second) == [("1-0000", "carried"), ("2-0000", "kept"), ("2-0001", "kept"), ("2-0002", "surplus")]


def test_the_end_of_the_data_waits_for_nothing() -> None:
    scene = Scene(MIXED, WRONG, WRONG, MIXED, groups=3, max_rounds=1, when_short="carry_over")
    scene.step(1)
    assert fates(scene.step(2)) == [("1-0000", "carried"), ("2-0000", "kept")]


def test_a_short_step_can_be_topped_up_with_the_first_groups_that_say_nothing() -> None:
    found = Scene(WRONG, MIXED, RIGHT, WRONG, groups=3, max_rounds=1, max_groups=3, when_short="top_up").step(1)
    assert [reason for _, reason in fates(found)] == ["top_up", "kept", "top_up"]
    assert counts(found, "groups_kept", "groups_top_up", "groups_all_right", "groups_all_wrong") == [3, 2, 0, 0]
    nothing = Scene(WRONG, RIGHT, groups=2, max_rounds=1, when_short="top_up").step(1)
    assert [reason for _, reason in fates(nothing)] == ["all_wrong", "all_right"]  # nothing to learn, nothing to fill
    full = Scene(WRONG, MIXED, MIXED, groups=2, when_short="top_up").step(1)
    assert [reason for _, reason in fates(full)] == ["all_wrong", "kept", "kept"]


@pytest.mark.parametrize(
    ("plan", "generated", "cap"),
    [
        ({"max_rounds": 2}, 4, "max_rounds = 2 of 2 groups"),
        ({"max_rounds": 9, "max_groups": 5}, 5, "max_groups = 5"),
        ({"max_rounds": 9, "max_tokens": 12}, 5, "max_tokens = 12"),
    ],
)
def test_a_search_ends_at_its_cap_and_says_which(plan: dict[str, Any], generated: int, cap: str) -> None:
    """Each group has 4 tokens: with 12 of them judged, no more are asked for, and those under way are let finish."""
    scene = Scene(*[WRONG] * 40, groups=2, **plan)
    found = scene.step(1)
    assert counts(found, "groups_generated") == [generated] and found.kept == ()
    assert f"(cap: algorithm.dynamic_sampling.{cap})" in shortage(found, scene.plan)


def test_a_short_step_says_what_it_found_and_names_groups_to_read() -> None:
    scene = Scene(*[WRONG] * 199, MIXED, groups=2, max_rounds=100)
    text = shortage(scene.step(4), scene.plan)
    assert text.startswith("Only 1 group of 2 that a step trains on had both right and wrong replies after 100 rounds")
    assert "0 all right, 199 all wrong; accuracy 0.2%, 0.0% of the replies truncated" in text
    assert "rollouts (4-0000, 4-0001, 4-0002)" in text


# What is counted


def test_tokens_are_kept_wasted_or_carried_on() -> None:
    scene = Scene(MIXED, RIGHT, MIXED, MIXED, groups=1, oversample=4.0, max_staleness=1)
    first = scene.step(1)
    numbers = ("tokens_generated", "tokens_carried_in", "tokens_kept", "tokens_wasted", "tokens_carried_out")
    assert counts(first, *numbers) == [5 + 6 + 5 + 5, 0, 5, 6, 10]
    assert counts(scene.step(2, version=2), *numbers) == [0, 10, 0, 10, 0]
    assert counts(first, "replies_generated", "rounds") == [8, 1]


def test_a_step_that_generates_nothing_has_no_accuracy_of_its_own() -> None:
    scene = Scene(*[MIXED] * 4, groups=2, oversample=2.0, max_staleness=1)
    scene.step(1)
    second = scene.step(2)
    assert "reward/accuracy_all" not in second.stats and second.stats["reward/accuracy_kept"].value == 0.5
    assert second.left.share == KeptShare(kept=2.0, judged=2.0)


class Watching(PromptStream):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.seen: list[tuple[str, int, int]] = []

    def observe(self, problem_id: str, *, correct: int, size: int) -> None:
        self.seen.append((problem_id, correct, size))


def test_the_stream_hears_of_each_judged_group_in_prompt_order() -> None:
    scene = Scene(RIGHT, MIXED, WRONG, MIXED, groups=2)
    scene.stream = Watching(problems(4), render, seed=0, epochs=1)
    found = scene.step(1)
    drawn = [judged.group.prompt.problem.id for judged in found.groups]
    assert scene.stream.seen == list(zip(drawn, [2, 1, 0, 1], [2] * 4, strict=True))


# What is slow


class Slow(FakeTask):
    """Never gives a score for the replies in `hangs`; the others come one after another, each after `seconds`."""

    def __init__(self, seconds: float, hangs: Callable[[Problem, Rollout], bool]) -> None:
        super().__init__()
        self._seconds = seconds
        self._hangs = hangs
        self._gate: asyncio.Lock | None = None

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        if self._hangs(problem, rollout):
            await asyncio.Event().wait()
        self._gate = self._gate or asyncio.Lock()
        async with self._gate:
            await asyncio.sleep(self._seconds)
            return await super().score(problem, rollout)


def test_a_scorer_that_hangs_is_given_up_and_the_reply_is_wrong_with_an_error() -> None:
    task = Slow(0.0, lambda problem, rollout: rollout.text == "yes")
    found = Scene(MIXED, groups=1, task=task, max_rounds=1, scoring_seconds=1.0).step(1)
    (judged,) = found.groups
    assert judged.reason.value == "all_wrong" and found.stats["reward/errors"].value == 1
    error = judged.group.rollouts[0].score.error
    assert error == "the scorer gave no score back for 1 seconds and was given up"


def test_a_reply_that_waits_behind_many_is_not_given_up_while_scores_come_back() -> None:
    """Eight replies of 0.3 s, one at a time: the last waits longer than the limit."""
    task = Slow(0.3, lambda problem, rollout: False)
    found = Scene(*[MIXED] * 4, groups=4, task=task, max_rounds=1, scoring_seconds=2.0).step(1)
    assert found.stats["reward/errors"].value == 0 and len(found.kept) == 4


def test_grading_beside_generation_adds_nothing_to_the_time_that_grading_took_alone() -> None:
    task = Slow(0.05, lambda problem, rollout: False)
    found = Scene(MIXED, MIXED, groups=2, task=task, max_rounds=1).step(1)
    alone, in_all = found.stats["time/grade"].value, found.stats["time/grade_all"].value
    assert alone >= 0.2  # four replies, one at a time, and nothing is generated beside them
    assert alone < in_all <= 2 * alone
    assert found.stats["time/generate"].value < alone


# State


def test_what_goes_from_step_to_step_survives_json_to_the_last_bit() -> None:
    scene = Scene(*[MIXED] * 9, groups=2, oversample=2.5, max_staleness=2)
    scene.engine = FakeEngine(lambda prompt, index: ["yes", "n\ud800o"][index], logprob=-1 / 3)
    ahead = scene.step(1)
    standing = Standing(
        stream=scene.stream.state(),
        inherited=ahead.left,
        ahead=ahead,
        skipped_in_a_row=2,
        steps_without_update=1,
        short_in_a_row=3,
    )
    again = Standing.from_json(json.loads(json.dumps(standing.to_json())))
    assert again == standing
    assert again.inherited.groups[0].group.rollouts[0].rollout.logprobs == (-1 / 3,) * 3
    kinds: Sequence[type] = [type(again.ahead.stats[name]) for name in ("reward/mean", "length/max", "reward/errors")]
    assert kinds == [Mean, Peak, Total]
    assert list(standing.to_json()) == ["stream", "pending", "ahead", "counters"]


def test_a_prompt_is_asked_for_as_soon_as_the_judged_prefix_allows_it() -> None:
    """Two groups under way; the second ends first and frees nothing, the first is dropped and makes room."""

    class Gated(FakeEngine):
        def __init__(self) -> None:
            super().__init__(lambda prompt, index: "no")
            self.gates: dict[int, asyncio.Event] = {}

        async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> Any:
            gate = self.gates[len(self.gates)] = asyncio.Event()
            await gate.wait()
            return await super().sample(prompt, n, sampling, seed)

    async def story() -> list[int]:
        scene = Scene(*[WRONG] * 9, groups=2, max_rounds=3)
        engine = Gated()
        work = asyncio.create_task(collect(1, scene.plan, scene.stream, engine, FakeTask(), DAPO))
        seen = []
        for place in (None, 1, 0):
            if place is not None:
                engine.gates[place].set()
            for _ in range(20):
                await asyncio.sleep(0)
            seen.append(len(engine.gates))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return seen

    assert asyncio.run(story()) == [2, 2, 5]


def test_an_engine_that_is_idle_gets_its_next_batch_whole() -> None:
    """Four groups end together and are judged one by one; the four that replace them are asked for together."""
    task = Slow(0.0, lambda problem, rollout: False)
    scene = Scene(*[WRONG] * 12, groups=4, task=task, max_rounds=2)
    scored_before: list[int] = []

    class Counting(FakeEngine):
        async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> Any:
            scored_before.append(len(task.seen))
            return await super().sample(prompt, n, sampling, seed)

    scene.engine = Counting(lambda prompt, index: "no")
    scene.step(1)
    assert scored_before == [0] * 4 + [8] * 4
