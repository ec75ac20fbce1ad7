from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.types import Collected, Finish, JudgedGroup, Mean, Peak, Reason, Rollout, Total, merge_stats
from tests.fakes import rollout, scored, scored_group


@pytest.mark.parametrize("field", ["token_ids", "mask", "logprobs"])
def test_a_rollout_of_parts_that_do_not_line_up_is_refused(field: str) -> None:
    parts = {"token_ids": (1, 2), "mask": (True, True), "logprobs": (-0.5, -0.5)}
    parts[field] = parts[field][:1]
    with pytest.raises(AssertionError, match="tokens has"):
        Rollout(**parts, text="a", finish=Finish.STOP, policy_version=0)  # type: ignore[arg-type]


def test_a_reply_is_truncated_by_its_finish_reason_alone() -> None:
    assert [rollout(length=8, finish=finish).is_truncated for finish in Finish] == [False, True, False]


def test_values_cannot_be_filled_in_later() -> None:
    made = rollout("yes")
    with pytest.raises(FrozenInstanceError):
        made.text = "no"  # type: ignore[misc]
    assert (made.length, made.text) == (3, "yes")


def test_the_reward_is_the_sum_of_its_parts() -> None:
    reply = scored(-1.0)
    assert reply.reward == -1.0
    punished = type(reply)(rollout=reply.rollout, score=reply.score, parts={"correctness": 1.0, "overlong": -0.25})
    assert punished.reward == 0.75


def test_the_groups_to_train_on_are_the_kept_ones_in_order() -> None:
    reasons = [Reason.KEPT, Reason.ALL_WRONG, Reason.KEPT, Reason.SURPLUS, Reason.ERROR]
    groups = tuple(
        JudgedGroup(name=f"1-{place:04d}", group=scored_group(scored(1), name=f"p{place}"), reason=reason)
        for place, reason in enumerate(reasons)
    )
    kept = Collected(groups=groups, stats={}).kept
    assert [group.prompt.problem.id for group in kept] == ["p0", "p2"]
    assert [group.num_correct for group in kept] == [1, 1]


def test_words_on_disk_are_fixed() -> None:
    assert [str(finish) for finish in Finish] == ["stop", "length", "error"]
    names = ["kept", "all_right", "all_wrong", "surplus", "carried", "stale", "top_up", "error"]
    assert [str(reason) for reason in Reason] == names


def test_statistics_add_up_each_in_its_way() -> None:
    merged = merge_stats(
        {"a": Mean(total=6, count=3), "b": Peak(value=2.0), "c": Total(value=1.0)},
        {"a": Mean(total=4, count=1), "b": Peak(value=-1.0), "c": Total(value=2.0), "d": Total(value=9.0)},
    )
    assert {name: stat.value for name, stat in merged.items()} == {"a": 2.5, "b": 2.0, "c": 3.0, "d": 9.0}


def test_a_mean_of_nothing_is_zero_and_adds_nothing() -> None:
    nothing = Mean(total=0.0, count=0)
    assert nothing.value == 0.0
    assert (nothing + Mean(total=3.0, count=2)).value == 1.5


def test_one_name_is_one_kind_of_statistic() -> None:
    with pytest.raises(AssertionError, match="a is a Mean here and a Total there"):
        merge_stats({"a": Mean(total=1, count=1)}, {"a": Total(value=1)})


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), max_size=5), min_size=1, max_size=5))
def test_a_mean_over_parts_is_the_mean_over_all_of_them(parts: list[list[int]]) -> None:
    merged = merge_stats(*({"a": Mean(total=sum(part), count=len(part))} for part in parts))
    values = [value for part in parts for value in part]
    assert merged["a"].value == (sum(values) / len(values) if values else 0.0)
