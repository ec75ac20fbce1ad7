from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.advantages import at_last_token, generalised_advantages, rewards_to_go, whitened
from tests import restatement

number = st.floats(-10, 10, width=32)
Token = tuple[float, float, bool]
rows_of_tokens = st.integers(1, 7).flatmap(
    lambda width: st.lists(
        st.lists(st.tuples(number, number, st.booleans()), min_size=width, max_size=width), min_size=1, max_size=4
    )
)
"""Rows of (reward, value, whether it is in the mask): with holes, and rows that are wholly outside."""


def columns(rows: list[list[Token]]) -> tuple[Tensor, Tensor, Tensor]:
    rewards_BT = torch.tensor([[token[0] for token in row] for row in rows], dtype=torch.float64)
    values_BT = torch.tensor([[token[1] for token in row] for row in rows], dtype=torch.float64)
    return rewards_BT, values_BT, torch.tensor([[token[2] for token in row] for row in rows])


def test_what_stands_on_padding_does_not_enter() -> None:
    advantages_BT, returns_BT = generalised_advantages(
        torch.tensor([[0.0, 1.0, 0.0]]),
        torch.tensor([[0.0, 0.0, 100.0]]),
        torch.tensor([[True, True, False]]),
        discount=1.0,
        decay=0.95,
    )
    assert advantages_BT.tolist() == [pytest.approx([0.95, 1.0, 0.0])]
    assert returns_BT.tolist() == [pytest.approx([0.95, 1.0, 0.0])]


def test_a_hole_in_the_mask_is_passed_over_as_if_it_were_not_there() -> None:
    """Errors of the two tokens: 0 + 0.5 * 4 - 2 = 0 and 1 - 4 = -3; the first gets 0.5 * 0.5 of the second."""
    advantages_BT, returns_BT = generalised_advantages(
        torch.tensor([[0.0, 50.0, 1.0]]),
        torch.tensor([[2.0, -7.0, 4.0]]),
        torch.tensor([[True, False, True]]),
        discount=0.5,
        decay=0.5,
    )
    assert advantages_BT.tolist() == [[-0.75, 0.0, -3.0]]
    assert returns_BT.tolist() == [[1.25, 0.0, 1.0]]


@settings(deadline=None)
@given(rows_of_tokens, st.floats(0.1, 1), st.floats(0, 1))
def test_it_is_the_sum_over_later_errors(rows: list[list[Token]], discount: float, decay: float) -> None:
    rewards_BT, values_BT, mask_BT = columns(rows)
    advantages_BT, returns_BT = generalised_advantages(rewards_BT, values_BT, mask_BT, discount=discount, decay=decay)
    for row, tokens in enumerate(rows):
        expected = restatement.generalised_advantages(*zip(*tokens, strict=True), discount, decay)
        assert advantages_BT[row].tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(returns_BT, torch.where(mask_BT, advantages_BT + values_BT, 0.0))


@settings(deadline=None)
@given(rows_of_tokens)
def test_with_decay_one_it_is_the_return_minus_the_value_and_with_zero_the_one_step_error(
    rows: list[list[Token]],
) -> None:
    rewards_BT, values_BT, mask_BT = columns(rows)
    advantages_BT, returns_BT = generalised_advantages(rewards_BT, values_BT, mask_BT, discount=1.0, decay=1.0)
    for row, (rewards, _, mask) in enumerate(zip(*tokens, strict=True) for tokens in rows):
        to_go = restatement.rewards_to_go(rewards, mask)
        assert returns_BT[row].tolist() == pytest.approx(to_go, abs=1e-6)
        difference = [value - values_BT[row, place].item() * mask[place] for place, value in enumerate(to_go)]
        assert advantages_BT[row].tolist() == pytest.approx(difference, abs=1e-6)
    one_step_BT, _ = generalised_advantages(rewards_BT, values_BT, mask_BT, discount=1.0, decay=0.0)
    last_B = [max((place for place, token in enumerate(row) if token[2]), default=None) for row in rows]
    for row, last in enumerate(last_B):
        if last is not None:
            assert one_step_BT[row, last].item() == pytest.approx(rows[row][last][0] - rows[row][last][1], abs=1e-6)


@settings(deadline=None)
@given(rows_of_tokens, st.sampled_from([1e30, -1e30, math.inf, math.nan]))
def test_nothing_outside_the_mask_ever_matters(rows: list[list[Token]], junk: float) -> None:
    rewards_BT, values_BT, mask_BT = columns(rows)
    plain = generalised_advantages(rewards_BT, values_BT, mask_BT, discount=0.9, decay=0.95)
    junk_BT = torch.full_like(values_BT, junk)
    other = generalised_advantages(
        torch.where(mask_BT, rewards_BT, junk_BT),
        torch.where(mask_BT, values_BT, junk_BT),
        mask_BT,
        discount=0.9,
        decay=0.95,
    )
    assert all(torch.equal(one, two) for one, two in zip(plain, other, strict=True))
    junk_rewards_BT = torch.where(mask_BT, rewards_BT, junk_BT)
    assert torch.equal(rewards_to_go(junk_rewards_BT, mask_BT), rewards_to_go(rewards_BT, mask_BT))
    assert torch.equal(whitened(junk_rewards_BT, mask_BT), whitened(rewards_BT, mask_BT))


def test_a_perfect_critic_leaves_no_advantage() -> None:
    """One reward of 1 at the end, no discount: the value is 1 everywhere."""
    mask_BT = torch.ones(1, 4, dtype=torch.bool)
    rewards_BT = at_last_token(torch.tensor([1.0]), mask_BT)
    advantages_BT, returns_BT = generalised_advantages(rewards_BT, torch.ones(1, 4), mask_BT, discount=1.0, decay=0.95)
    assert advantages_BT.tolist() == [[0.0] * 4]
    assert returns_BT.tolist() == [[1.0] * 4]


def test_a_reward_stands_on_the_last_token_that_the_policy_wrote() -> None:
    mask_BT = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]]).bool()
    placed_BT = at_last_token(torch.tensor([2.0, -1.0, 5.0, 0.5]), mask_BT)
    assert placed_BT.tolist() == [[0, 0, 2.0, 0], [0, -1.0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0.5]]


@settings(deadline=None)
@given(rows_of_tokens)
def test_the_reward_to_go_is_the_sum_of_what_comes(rows: list[list[Token]]) -> None:
    rewards_BT, _, mask_BT = columns(rows)
    found_BT = rewards_to_go(rewards_BT, mask_BT)
    for row, (rewards, _, mask) in enumerate(zip(*tokens, strict=True) for tokens in rows):
        assert found_BT[row].tolist() == pytest.approx(restatement.rewards_to_go(rewards, mask), abs=1e-9)


def test_whitening_by_hand() -> None:
    """1, 2, 3: mean 2 and deviation 1. The 100 lies outside the mask."""
    mask_BT = torch.tensor([[True, True], [False, True]])
    found_BT = whitened(torch.tensor([[1.0, 2.0], [100.0, 3.0]]), mask_BT)
    assert found_BT.tolist() == [pytest.approx([-1, 0], abs=1e-5), pytest.approx([0, 1], abs=1e-5)]


@settings(deadline=None)
@given(rows_of_tokens)
def test_whitening_is_the_formula(rows: list[list[Token]]) -> None:
    rewards_BT, _, mask_BT = columns(rows)
    expected = restatement.whitened(rewards_BT.tolist(), mask_BT.tolist())
    for found, wanted in zip(whitened(rewards_BT, mask_BT).tolist(), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)


@settings(deadline=None)
@given(st.floats(-1000, 1000, width=32), st.integers(1, 400))
def test_tokens_that_are_all_alike_are_whitened_to_zero_exactly(value: float, count: int) -> None:
    """Not to what rounding leaves of their mean, divided by a deviation that is rounding too."""
    mask_BT = torch.ones(1, count, dtype=torch.bool)
    assert not whitened(torch.full((1, count), value), mask_BT).any()


def test_whitening_nothing_gives_nothing() -> None:
    nothing_BT = torch.zeros(2, 3, dtype=torch.bool)
    assert whitened(torch.full((2, 3), math.nan), nothing_BT).tolist() == [[0.0] * 3] * 2
