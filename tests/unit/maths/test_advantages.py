from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.advantages import group_centred, group_means, group_normalised, leave_one_out
from tests import restatement

NAN, INF = math.nan, math.inf


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one_group(*rewards: float, counted: tuple[bool, ...] | None = None) -> list[float]:
    counted_B = None if counted is None else torch.tensor(counted)
    return group_normalised(row(*rewards), torch.zeros(len(rewards), dtype=torch.long), counted_B).tolist()


def test_a_pair_of_right_and_wrong_has_the_advantages_of_one_over_the_square_root_of_two() -> None:
    # mean 0; deviation sqrt((1 + 1) / (2 - 1)) = sqrt 2
    size = 1 / (math.sqrt(2) + 1e-6)
    assert one_group(1, -1) == pytest.approx([size, -size], abs=1e-12)


def test_three_right_and_one_wrong() -> None:
    # mean 1/2; squares 3 * 1/4 + 9/4 = 3; deviation sqrt(3 / 3) = 1
    size = 1 / (1 + 1e-6)
    assert one_group(1, 1, 1, -1) == pytest.approx([0.5 * size] * 3 + [-1.5 * size], abs=1e-12)
    assert one_group(1, -1, -1, -1) == pytest.approx([1.5 * size] + [-0.5 * size] * 3, abs=1e-12)


def test_rewards_are_normalised_once_and_in_their_own_group() -> None:
    """Not twice, and not over the batch: each group reads as if it stood alone, whatever the order of the rows."""
    rewards, groups = row(1, 1, -1, 1, 1, -1), torch.tensor([0, 1, 0, 1, 1, 1])
    pair, four = 1 / (math.sqrt(2) + 1e-6), 1 / (1 + 1e-6)
    expected = [pair, 0.5 * four, -pair, 0.5 * four, 0.5 * four, -1.5 * four]
    assert group_normalised(rewards, groups).tolist() == pytest.approx(expected, abs=1e-12)
    assert group_centred(rewards, groups).tolist() == [1.0, 0.5, -1.0, 0.5, 0.5, -1.5]


@pytest.mark.parametrize(
    "rewards", [(1,), (1, 1), (1, NAN), (NAN, 1), (NAN,), (NAN, NAN), (INF, 1), (-INF, -1, -1), (0.1,) * 7]
)
def test_a_group_without_a_comparison_has_advantage_zero_and_never_nan(rewards: tuple[float, ...]) -> None:
    assert one_group(*rewards) == [0.0] * len(rewards)
    assert group_centred(row(*rewards), torch.zeros(len(rewards), dtype=torch.long)).tolist() == [0.0] * len(rewards)


def test_a_reward_that_is_not_finite_leaves_its_siblings_as_they_are_without_it() -> None:
    alone = one_group(1, -1, -1)
    assert one_group(1, NAN, -1, -1) == [alone[0], 0.0, *alone[1:]]
    assert one_group(INF, 1, -1, -1) == [0.0, *alone]


@pytest.mark.parametrize("size", [2, 8, 16, 64, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_have_advantage_zero_whatever_their_mean_is_rounded_to(size: int, dtype: torch.dtype) -> None:
    """The rounding error of a mean, over a deviation that is one too, would pass for an advantage of 0.1 and more."""
    group_B = torch.zeros(size, dtype=torch.long)
    for reward in (-1.1767586602392277, -0.5436819317533033, 0.7, 1 / 3, 1e6 + 0.1, -1e-9):
        assert not group_normalised(torch.full((size,), reward, dtype=dtype), group_B).any()
        assert not group_centred(torch.full((size,), reward, dtype=dtype), group_B).any()


def test_a_group_of_large_rewards_does_not_silence_another() -> None:
    rewards, groups = torch.tensor([1.0, -1.0, 1e9, 1e9]), torch.tensor([0, 0, 1, 1])
    assert group_normalised(rewards, groups).tolist() == pytest.approx([0.7071, -0.7071, 0, 0], abs=1e-4)


def test_a_masked_reply_stays_in_the_statistics_or_leaves_them() -> None:
    stays = one_group(1, -1, -1, -1, counted=(True, True, True, True))
    assert stays == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert one_group(1, -1, -1, -1, counted=(False, True, True, True)) == [0.0] * 4
    # rewards 1, -1, -1 are counted: mean -1/3, deviation sqrt(4/3); the fourth reply moves neither
    size = 1 / (math.sqrt(4 / 3) + 1e-6)
    found = one_group(1, -1, -1, 9, counted=(True, True, True, False))
    assert found[:3] == pytest.approx([4 / 3 * size, -2 / 3 * size, -2 / 3 * size], abs=1e-12)
    assert all(math.isfinite(value) for value in found)


def test_a_group_of_which_no_reply_counts_has_advantage_zero() -> None:
    assert one_group(1, -1, counted=(False, False)) == [0.0, 0.0]


def test_group_means_say_how_many_rows_they_are_of() -> None:
    means, counts = group_means(row(1, 2, 4, 8), torch.tensor([0, 1, 1, 2]), torch.tensor([True, True, True, False]))
    assert means.tolist() == [1.0, 3.0, 3.0, 0.0]
    assert counts.tolist() == [1.0, 2.0, 2.0, 0.0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-3, 3, width=16)), min_size=1, max_size=24))
def test_it_is_the_formula_for_groups_of_any_size_and_order(rows: list[tuple[int, float]]) -> None:
    groups = [group for group, _ in rows]
    rewards = [reward for _, reward in rows]
    found = group_normalised(row(*rewards), torch.tensor(groups)).tolist()
    assert found == pytest.approx(restatement.group_advantages(rewards, groups), abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, 1.0, -1.5, 0.25]), min_size=2, max_size=16))
def test_the_advantages_of_a_group_sum_to_zero_and_have_deviation_one(rewards: list[float]) -> None:
    advantages = one_group(*rewards)
    assert sum(advantages) == pytest.approx(0, abs=1e-9)
    if len(set(rewards)) > 1:
        assert restatement.sample_deviation(advantages) == pytest.approx(1, abs=1e-4)


def test_the_centred_reward_is_exact_on_fractions() -> None:
    rewards = [Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(1, 4)]
    expected = [float(reward - sum(rewards) / 4) for reward in rewards]
    found = group_centred(row(*map(float, rewards)), torch.zeros(4, dtype=torch.long))
    assert found.tolist() == expected


def test_single_precision_is_kept() -> None:
    assert group_normalised(torch.tensor([1.0, -1.0]), torch.tensor([0, 0])).dtype is torch.float32


def test_the_baseline_of_a_reply_is_the_mean_of_its_siblings() -> None:
    """1 minus 0 and -1 minus 1/2 in a group of three; a group of one has no sibling."""
    rewards, groups = row(1, 1, -1, 7), torch.tensor([0, 0, 0, 1])
    assert leave_one_out(rewards, groups).tolist() == [1.0, 1.0, -2.0, 0.0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-3, 3, width=16)), min_size=1, max_size=24))
def test_leaving_one_out_is_the_formula_for_groups_of_any_size_and_order(rows: list[tuple[int, float]]) -> None:
    groups = [group for group, _ in rows]
    rewards = [reward for _, reward in rows]
    found = leave_one_out(row(*rewards), torch.tensor(groups)).tolist()
    assert found == pytest.approx(restatement.leave_one_out(rewards, groups), abs=1e-9)


def test_replies_that_are_not_counted_are_in_no_other_reply_s_baseline() -> None:
    counted_B = torch.tensor([True, True, False, True])
    found = leave_one_out(row(1, -1, 50, math.nan), torch.zeros(4, dtype=torch.long), counted_B).tolist()
    assert found[:2] == [2.0, -2.0]
    assert found[3] == 0.0
    assert leave_one_out(row(1, 1, 1), torch.zeros(3, dtype=torch.long)).tolist() == [0.0] * 3
