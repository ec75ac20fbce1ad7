from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dapo.algorithms.config import DAPOConfig
from dapo.algorithms.value import Algorithm
from dapo.batching import pack
from dapo.collect import CollectPlan, collect, no_signal, prompts_under_way
from dapo.collect.ledger import Ledger
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError, RewardError
from dapo.prompts import PromptStream
from dapo.types import (
    Collected,
    Finish,
    JudgedGroup,
    KeptShare,
    Problem,
    Prompt,
    Reason,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    ScoredRollout,
)
from tests.fakes import FakeTask, LateFirstEngine, engine_of, problems, render, rollout

DAPO = DAPOConfig.model_validate({"soft_overlong": {"enabled": False}}).build(8)
MIXED, RIGHT, WRONG, BROKEN = "+-", "++", "--", "!!"


def plan_of(groups: int, **settings: Any) -> CollectPlan:
    return CollectPlan(
        **{"groups": groups, "group_size": 2, "sampling": Sampling(max_tokens=8), "seed": 1, "max_rounds": 10}
        | settings
    )


def stream_of(count: int, epochs: int | None = 1) -> PromptStream:
    return PromptStream(problems(count), render, seed=0, epochs=epochs)


def draw_order(count: int, epochs: int = 1) -> list[str]:
    """The ids of `count` problems in the order in which a stream of the tests draws them."""
    return [prompt.problem.id for prompt in stream_of(count, epochs).take(count * epochs)]


def in_draw_order(*outcomes: str) -> dict[str, str]:
    """Outcomes by problem, so that the first that is drawn has the first outcome."""
    return dict(zip(draw_order(len(outcomes)), outcomes, strict=True))


class Unreliable(FakeEngine):
    """Fails for the groups whose outcome is `!!`."""

    def __init__(self, outcomes: dict[str, str]) -> None:
        super().__init__(lambda prompt, index: "yes" if outcomes[prompt.problem.id][index] == "+" else "no")
        self._outcomes = outcomes

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        group = await super().sample(prompt, n, sampling, seed)
        if self._outcomes[prompt.problem.id] == BROKEN:
            raise EngineError(f"{prompt.problem.id} does not fit")
        return group


def run(
    engine: FakeEngine,
    plan: CollectPlan,
    stream: PromptStream,
    *,
    task: Any = None,
    algorithm: Algorithm = DAPO,
    step: int = 1,
) -> Collected:
    return asyncio.run(collect(step, plan, stream, engine, task or FakeTask(), algorithm))


def outcomes_of(collected: Collected) -> list[tuple[str, str]]:
    return [(judged.group.prompt.problem.id, judged.reason.value) for judged in collected.groups]


def count(collected: Collected, name: str) -> int:
    return int(collected.stats[f"sampling/{name}"].value)


# What a step brings


def test_prompts_are_drawn_until_the_step_has_its_groups() -> None:
    outcomes = in_draw_order(MIXED, RIGHT, WRONG, MIXED, MIXED, MIXED)
    found = run(engine_of(outcomes), plan_of(3), stream := stream_of(6))
    assert [judged.reason.value for judged in found.groups] == [
        "kept",
        "all_right",
        "all_wrong",
        "kept",
        "kept",
        "surplus",
    ]
    assert [judged.name for judged in found.groups] == [f"1-{place:04d}" for place in range(6)]
    assert [group.prompt.problem.id for group in found.kept] == [draw_order(6)[place] for place in (0, 3, 4)]
    assert stream.position == 6
    names = ("groups_generated", "groups_kept", "groups_all_right", "groups_all_wrong", "groups_surplus", "rounds")
    assert {name: count(found, name) for name in names} == {
        "groups_generated": 6,
        "groups_kept": 3,
        "groups_all_right": 1,
        "groups_all_wrong": 1,
        "groups_surplus": 1,
        "rounds": 2,
    }


class Tagged(FakeTask):
    """Replies carry their own verdict, and the later ones are judged first."""

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        for _ in range(10 - int(rollout.text[-2])):
            await asyncio.sleep(0)
        right = rollout.text.endswith("+")
        return Score(correct=right, reward=1.0 if right else -1.0, extracted=rollout.text)


def test_after_the_filter_rewards_replies_and_prompts_still_belong_together() -> None:
    """Groups 1 and 3 of 4 are kept: row by row, the reward is that of the row's own text and prompt."""
    outcomes = in_draw_order("++++", "+-+-", "----", "-++-")
    engine = FakeEngine(lambda prompt, index: f"{prompt.problem.id}:{index}{outcomes[prompt.problem.id][index]}")
    found = run(engine, plan_of(2, group_size=4), stream_of(4), task=Tagged())
    assert [group.prompt.problem.id for group in found.kept] == [draw_order(4)[place] for place in (1, 3)]
    batch = pack(found.kept)
    texts = [
        "".join(map(chr, tokens[:length].tolist()))
        for tokens, length in zip(batch.tokens_BT, batch.lengths_B.tolist(), strict=True)
    ]
    assert texts == [
        f"{name}:{index}{outcomes[name][index]}" for name in (draw_order(4)[1], draw_order(4)[3]) for index in range(4)
    ]
    assert batch.rewards_B.tolist() == [1.0 if text.endswith("+") else -1.0 for text in texts]
    extracted = [scored.score.extracted for group in found.kept for scored in group.rollouts]
    assert extracted == texts
    assert batch.group_B.tolist() == [0] * 4 + [1] * 4


def test_the_groups_drawn_first_stay_even_where_later_ones_are_done_first() -> None:
    outcomes = in_draw_order(*[MIXED] * 6)
    engine = LateFirstEngine(lambda prompt, index: "yes" if index else "no")
    found = run(engine, plan_of(2, oversample=3.0), stream_of(6))
    assert engine.finished == draw_order(6)[::-1]
    assert outcomes_of(found) == list(zip(outcomes, ["kept"] * 2 + ["surplus"] * 4, strict=True))


def test_where_the_prompts_run_out_what_was_accepted_stays() -> None:
    """Three prompts for a step of two groups: good, dropped, good."""
    found = run(engine_of(in_draw_order(MIXED, WRONG, MIXED)), plan_of(2), stream_of(3))
    assert [reason for _, reason in outcomes_of(found)] == ["kept", "all_wrong", "kept"]
    short = run(engine_of(in_draw_order(MIXED, WRONG, RIGHT)), plan_of(2), stream := stream_of(3))
    assert [reason for _, reason in outcomes_of(short)] == ["kept", "all_wrong", "all_right"]
    assert len(short.kept) == 1 and stream.is_exhausted


def test_a_refill_goes_on_with_the_next_epoch() -> None:
    """Five prompts, steps of four groups, half of the groups dropped, two epochs: no step trips over an epoch's end."""
    outcomes = dict(zip([f"p{number}" for number in range(5)], [MIXED, WRONG, MIXED, RIGHT, MIXED], strict=True))
    stream = stream_of(5, epochs=2)
    steps = [run(engine_of(outcomes), plan_of(4), stream, step=step) for step in (1, 2)]
    drawn = [name for step in steps for name, _ in outcomes_of(step)]
    assert sorted(drawn) == sorted([f"p{number}" for number in range(5)] * 2)
    assert [len(step.kept) for step in steps] == [4, 2] and stream.is_exhausted
    assert run(engine_of(outcomes), plan_of(4), stream, step=3).groups == ()


def test_rounds_are_capped() -> None:
    found = run(engine_of(lambda name: WRONG), plan_of(2, max_rounds=3), stream := stream_of(100))
    assert (count(found, "rounds"), found.kept) == (3, ())
    assert len(found.groups) == count(found, "groups_all_wrong") == stream.position == 3 * 2
    assert count(found, "prompts_drawn") == 6


def test_without_dynamic_sampling_every_group_is_kept_in_one_round() -> None:
    keeps_all = DAPOConfig.model_validate({"dynamic_sampling": {"enabled": False}}).build(8)
    found = run(
        engine_of(in_draw_order(WRONG, RIGHT, MIXED)), plan_of(3, max_rounds=1), stream_of(3), algorithm=keeps_all
    )
    assert [reason for _, reason in outcomes_of(found)] == ["kept"] * 3


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([MIXED, RIGHT, WRONG, BROKEN]), min_size=1, max_size=14),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([1.0, 1.5, 3.0]),
    st.integers(1, 2),
)
def test_every_prompt_that_was_drawn_is_accounted_for_once_with_its_reason(
    outcomes: list[str], groups: int, max_rounds: int, oversample: float, epochs: int
) -> None:
    named = {f"p{number}": outcome for number, outcome in enumerate(outcomes)}
    stream = stream_of(len(outcomes), epochs)
    plan = plan_of(groups, max_rounds=max_rounds, oversample=oversample)
    try:
        found = run(Unreliable(named), plan, stream)
    except EngineError:
        assume(False)
        raise
    drawn = draw_order(len(outcomes), epochs)[: stream.position]
    assert [name for name, _ in outcomes_of(found)] == drawn
    expected = {MIXED: {"kept", "surplus"}, RIGHT: {"all_right"}, WRONG: {"all_wrong"}, BROKEN: {"error"}}
    for name, reason in outcomes_of(found):
        assert reason in expected[named[name]]
    mixed = [reason for name, reason in outcomes_of(found) if named[name] == MIXED]
    assert mixed == ["kept"] * min(len(mixed), groups) + ["surplus"] * max(0, len(mixed) - groups)
    by_reason = Counter(reason for _, reason in outcomes_of(found))
    for reason in ("kept", "all_right", "all_wrong", "surplus", "error"):
        assert count(found, f"groups_{reason}") == by_reason[reason]
    assert count(found, "groups_generated") == sum(by_reason.values())
    is_full = len(found.kept) == groups
    is_capped = len(found.groups) == max_rounds * plan.round
    names = [judged.reason for judged in found.groups]
    is_down = Reason.ERROR in names and names[-plan.round :] == [Reason.ERROR] * plan.round
    assert is_full or is_capped or is_down or stream.is_exhausted


# How many prompts a round draws


@pytest.mark.parametrize(
    ("oversample", "judged", "kept", "expected"),
    [
        (1.0, 0, 0, 8),
        (1.5, 0, 0, 12),
        (3.0, 0, 0, 24),
        (1.0, 8, 4, 6),  # 4 are missing, and 8 of 12 are expected to be kept, the guess of 4 in 4 included
        (1.0, 12, 4, 8),  # half of 16
        (1.0, 16, 7, 2),  # 20 / 11
        (3.0, 24, 7, 4),  # 28 / (7 + 4/3) is more than 3
        (3.0, 8, 7, 3),
        (1.0, 64, 1, 32),  # at most four times the groups of a step
        (1.0, 8, 0, 24),
        (6.0, 100, 1, 48),
        (1.0, 8, 8, 0),
        (1.0, 20, 9, 0),
    ],
)
def test_what_is_missing_is_under_way_at_the_price_that_was_seen(
    oversample: float, judged: int, kept: int, expected: int
) -> None:
    plan = plan_of(8, oversample=oversample)
    assert prompts_under_way(plan, KeptShare(), missing=8 - kept, judged=judged, kept=kept) == expected


def test_the_steps_before_say_what_a_kept_group_costs() -> None:
    """A quarter of 28 was kept: with the guess of 4 in 4 that is 11 of 32, and 8 groups cost 24."""
    before = KeptShare(kept=7, judged=28)
    assert prompts_under_way(plan_of(8), before, missing=8, judged=0, kept=0) == 24
    assert before.after(8, 20) == KeptShare(kept=11.5, judged=34.0)


# Failures


def test_a_group_that_the_engine_fails_on_is_counted_and_replaced() -> None:
    found = run(Unreliable(in_draw_order(MIXED, BROKEN, MIXED)), plan_of(2), stream_of(3))
    assert [reason for _, reason in outcomes_of(found)] == ["kept", "error", "kept"]
    assert found.groups[1].group.rollouts == ()
    assert (count(found, "groups_error"), found.stats["reward/accuracy_all"].value) == (1, 0.5)


def test_an_engine_that_fails_on_everything_ends_the_step_with_its_error() -> None:
    with pytest.raises(EngineError, match="does not fit"):
        run(Unreliable(in_draw_order(*[BROKEN] * 4)), plan_of(2), stream_of(4))


class HalfFinished(FakeEngine):
    """Its second reply broke off."""

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        return RolloutGroup(prompt=prompt, rollouts=(rollout("yes"), rollout("no", finish=Finish.ERROR)))


def test_a_group_with_a_reply_that_broke_off_is_not_trained_on() -> None:
    found = run(HalfFinished(lambda prompt, index: ""), plan_of(1, max_rounds=2), stream_of(9))
    assert {reason for _, reason in outcomes_of(found)} == {"error"} and found.kept == ()


class Misbehaving(FakeTask):
    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        raise RewardError("my.module:score returned None, which is no score")


def test_a_scorer_that_misbehaves_ends_the_step_with_its_error() -> None:
    with pytest.raises(RewardError, match="returned None"):
        run(engine_of(lambda name: MIXED), plan_of(2), stream_of(4), task=Misbehaving())


# What decides, and what is measured


def test_a_group_that_is_all_wrong_is_dropped_although_its_rewards_differ_by_length() -> None:
    punishing = DAPOConfig.model_validate({"soft_overlong": {"max_length": 8, "cache": 4}}).build(8)
    engine = FakeEngine(lambda prompt, index: "n" * (4 + 2 * index))
    found = run(engine, plan_of(1, group_size=3, max_rounds=1), stream_of(1), algorithm=punishing)
    rewards = [reply.reward for reply in found.groups[0].group.rollouts]
    assert rewards == [-1.0, -1.5, -2.0]
    assert [reply.parts for reply in found.groups[0].group.rollouts] == [
        {"correctness": -1.0, "overlong": 0.0},
        {"correctness": -1.0, "overlong": -0.5},
        {"correctness": -1.0, "overlong": -1.0},
    ]
    assert outcomes_of(found) == [("p0", "all_wrong")]


def test_the_share_of_truncated_replies_is_counted_by_finish_reason() -> None:
    """Lengths 3, 8 and 8 of a limit of 8, one of the 8s ended by itself: a third."""
    texts = ["abc", "abcdefgh", "abcdefghi"]
    engine = FakeEngine(lambda prompt, index: texts[index])
    found = run(engine, plan_of(1, group_size=3, max_rounds=1), stream_of(1))
    assert [reply.rollout.length for reply in found.groups[0].group.rollouts] == [3, 8, 8]
    assert found.stats["length/truncated"].value == pytest.approx(1 / 3)
    assert found.stats["length/mean"].value == pytest.approx(19 / 3)
    assert found.stats["length/max"].value == 8
    assert count(found, "tokens_generated") == 19


def judged(reason: Reason, *rewards: float, error: str | None = None) -> JudgedGroup:
    replies = tuple(
        ScoredRollout(
            rollout=rollout(length=2),
            score=Score(correct=reward > 0, reward=reward, error=error),
            parts={"correctness": reward},
        )
        for reward in rewards
    )
    return JudgedGroup(name="1-0000", group=ScoredGroup(prompt=render(problems(1)[0]), rollouts=replies), reason=reason)


def test_accuracy_is_measured_before_and_after_the_filter_under_two_names() -> None:
    stats = Ledger(
        new=(judged(Reason.KEPT, 1, -1, -1, -1), judged(Reason.ALL_RIGHT, 1, 1, 1, 1)),
        new_left=(judged(Reason.KEPT, 1, 1, 1, -1),),
        old=(judged(Reason.CARRIED, 1, 1, -1, -1),),
    ).stats()
    assert stats["reward/accuracy_all"].value == pytest.approx(8 / 12)
    assert stats["reward/accuracy_kept"].value == pytest.approx(3 / 8)
    assert stats["reward/mean"].value == pytest.approx(4 / 12)
    assert stats["reward/mean_kept"].value == pytest.approx(-2 / 8)
    assert stats["length/mean_kept"].value == 2
    assert stats["reward/std"].value == pytest.approx((1 - (1 / 3) ** 2) ** 0.5)


def test_scorer_faults_are_counted_and_a_step_of_nothing_is_measured_without_nan() -> None:
    assert Ledger(new=(judged(Reason.ALL_WRONG, -1, -1, error="timed out"),)).stats()["reward/errors"].value == 2
    nothing = Ledger().stats()
    assert all(stat.value == 0 for stat in nothing.values())
    assert not any(name.startswith(("reward/", "length/")) for name in nothing)


# Seeds


def seeds_of(engine: FakeEngine) -> dict[str, int]:
    return {prompt.problem.id: seed for prompt, _, _, seed in engine.calls}


def test_a_group_s_seed_follows_from_run_step_and_place_and_from_nothing_beside_it() -> None:
    def made(outcome: Callable[[str], str], *, seed: int = 1, step: int = 1) -> FakeEngine:
        engine = engine_of(outcome)
        run(engine, plan_of(3, seed=seed, max_rounds=1), stream_of(3), step=step)
        return engine

    first = seeds_of(made(lambda name: MIXED))
    assert len(set(first.values())) == 3
    assert seeds_of(made(lambda name: WRONG)) == first
    assert not set(seeds_of(made(lambda name: MIXED, step=2)).values()) & set(first.values())
    assert not set(seeds_of(made(lambda name: MIXED, seed=2)).values()) & set(first.values())


def test_the_engine_is_asked_for_the_group_s_replies_with_the_plan_s_sampling() -> None:
    engine = engine_of(lambda name: MIXED * 4)
    sampling = Sampling(temperature=0.6, max_tokens=8)
    run(engine, plan_of(2, group_size=8, sampling=sampling), stream_of(2))
    assert [(n, asked) for _, n, asked, _ in engine.calls] == [(8, sampling)] * 2


# A step that found nothing


def nothing_learnt(*groups: str, size: int = 4) -> tuple[str, float]:
    outcomes = in_draw_order(*groups)
    plan = plan_of(len(groups), group_size=size, max_rounds=1)
    error = no_signal(run(engine_of(outcomes), plan, stream_of(len(groups))), plan)
    assert error.exit_code == 1
    return str(error), error.accuracy


def test_a_step_without_a_signal_says_what_was_seen() -> None:
    message, accuracy = nothing_learnt("++++", "----", "----", "----")
    assert message.startswith("None of 4 groups of 4 replies had both right and wrong ones after 1 round (")
    assert "cap: algorithm.dynamic_sampling.max_rounds = 1" in message
    assert "1 all right, 3 all wrong; accuracy 25.0%, 0.0% of the replies truncated" in message
    assert accuracy == 0.25
    assert "Raise batch.group_size or the temperature" in message


def test_a_step_in_which_nothing_is_right_points_at_the_reward_and_the_limit() -> None:
    message, accuracy = nothing_learnt("----", "----")
    assert accuracy == 0.0
    assert "Nearly nothing is right. Read a few replies" in message
    assert "cut off by batch.max_tokens" in message and "easier problems" in message


def test_a_step_in_which_all_is_right_says_that_the_task_is_solved() -> None:
    message, accuracy = nothing_learnt("++++", "++++")
    assert accuracy == 1.0
    assert "The task is solved" in message and "harder problems" in message


def test_the_share_of_truncated_replies_is_named() -> None:
    engine = FakeEngine(lambda prompt, index: "far too long")
    plan = plan_of(1, max_rounds=1)
    assert "100.0% of the replies truncated" in str(no_signal(run(engine, plan, stream_of(1)), plan))
