from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.losses import (
    LOG_RATIO_LIMIT,
    ClippedLoss,
    clipped,
    clipped_value,
    clipped_weight,
    reinforce,
    sequence_clipped,
)
from tests import restatement


def one_token(ratio: float, advantage: float, *, dual: float | None = None) -> tuple[float, float, ClippedLoss]:
    """Objective, its slope by the log-probability, and all terms, for a ratio at the bounds 0.2 and 0.28."""
    old = torch.tensor([[-1.25]], dtype=torch.float64)
    new = (old + math.log(ratio)).requires_grad_()
    terms = clipped(
        new, old, torch.tensor([[advantage]], dtype=torch.float64), clip_low=0.2, clip_high=0.28, dual_clip=dual
    )
    terms.loss_BT.sum().backward()
    assert new.grad is not None
    return -terms.loss_BT.item(), -new.grad.item(), terms


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),  # where the policy has not moved, the slope is the policy gradient
        (1.0, -2.0, -2.0, -2.0),
        (1.5, 2.0, 1.28 * 2.0, 0.0),  # a gain beyond the upper bound is not paid for
        (1.5, -2.0, 1.5 * -2.0, 1.5 * -2.0),  # a loss beyond the upper bound counts in full
        (0.5, 2.0, 0.5 * 2.0, 0.5 * 2.0),  # a gain that fell away is to be won back
        (0.5, -2.0, 0.8 * -2.0, 0.0),  # a loss below the lower bound is not pushed further
        (1.27, 2.0, 1.27 * 2.0, 1.27 * 2.0),  # clip-higher: beyond 1.2 and still free
        (0.81, -2.0, 0.81 * -2.0, 0.81 * -2.0),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_objective_and_slope_of_a_token(ratio: float, advantage: float, objective: float, slope: float) -> None:
    found = one_token(ratio, advantage)
    assert found[0] == pytest.approx(objective, abs=1e-12)
    assert found[1] == pytest.approx(slope, abs=1e-12)
    assert found[2].ratio_BT.item() == pytest.approx(ratio, abs=1e-12)
    assert not found[2].ratio_BT.requires_grad


@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high"),
    [(1.5, 1.0, 0, 1), (1.5, -1.0, 0, 0), (0.5, -1.0, 1, 0), (0.5, 1.0, 0, 0), (1.1, 1.0, 0, 0), (0.9, -1.0, 0, 0)],
)
def test_a_bound_is_counted_only_where_it_holds_the_gradient_back(
    ratio: float, advantage: float, low: int, high: int
) -> None:
    terms = one_token(ratio, advantage)[2]
    assert (terms.clipped_low_BT.item(), terms.clipped_high_BT.item()) == (low, high)
    assert terms.clipped_dual_BT.item() == 0


@pytest.mark.parametrize(("ratio", "advantage"), [(1.28, 3.0), (1.28, -3.0), (0.8, 3.0), (0.8, -3.0)])
def test_at_a_bound_itself_the_objective_is_the_bound_from_either_side(ratio: float, advantage: float) -> None:
    at = one_token(ratio, advantage)[0]
    assert at == pytest.approx(ratio * advantage, abs=1e-12)
    for step in (-1e-9, 1e-9):
        assert one_token(ratio + step, advantage)[0] == pytest.approx(at, abs=1e-8)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope", "held"),
    [
        (2.9, -2.0, -5.8, -5.8, 0),  # below c the bound is not felt
        (3.1, -2.0, -6.0, 0.0, 1),  # above it the objective is c * A, and flat
        (1e6, -2.0, -6.0, 0.0, 1),
        (3.1, 2.0, 2.56, 0.0, 0),  # it is for negative advantages alone
        (0.5, -2.0, -1.6, 0.0, 0),  # the lower clip goes on holding
        (1.5, -2.0, -3.0, -3.0, 0),
    ],
)
def test_dual_clip_of_three(ratio: float, advantage: float, objective: float, slope: float, held: int) -> None:
    found = one_token(ratio, advantage, dual=3.0)
    assert found[0] == pytest.approx(objective, abs=1e-9)
    assert found[1] == pytest.approx(slope, abs=1e-9)
    assert found[2].clipped_dual_BT.item() == held


def test_at_the_dual_bound_the_objective_is_the_bound() -> None:
    assert one_token(3.0, -2.0, dual=3.0)[0] == pytest.approx(-6.0, abs=1e-12)


def test_a_ratio_beyond_all_bounds_is_finite_with_its_gradient() -> None:
    old = torch.full((1, 4), -400.0)
    new = torch.tensor([[0.0, 0.0, -900.0, -900.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    terms = clipped(new, old, advantages, clip_low=0.2, clip_high=0.28)
    terms.loss_BT.sum().backward()
    assert new.grad is not None
    assert torch.isfinite(terms.loss_BT).all() and torch.isfinite(new.grad).all()
    assert terms.ratio_BT.max().item() == pytest.approx(math.exp(LOG_RATIO_LIMIT), rel=1e-5)


def test_no_gradient_reaches_the_old_log_probabilities_through_the_counts() -> None:
    terms = one_token(1.5, 1.0, dual=3.0)[2]
    assert not any(part.requires_grad for part in terms[1:])


@pytest.mark.parametrize("dual", [None, 3.0])
def test_the_gradient_is_that_of_finite_differences_away_from_the_kinks(dual: float | None) -> None:
    ratios = torch.tensor([[0.3, 0.7, 0.9, 1.0, 1.1, 1.4, 2.5, 4.0]], dtype=torch.float64)
    for sign in (1.0, -1.0):
        advantages = sign * torch.tensor([[0.5, 1.0, 1.5, 2.0, 0.1, 1.0, 0.7, 1.3]], dtype=torch.float64)

        def loss(logprobs: Tensor, advantages: Tensor = advantages) -> Tensor:
            zeros = torch.zeros_like(logprobs)
            return clipped(logprobs, zeros, advantages, clip_low=0.2, clip_high=0.28, dual_clip=dual).loss_BT

        assert torch.autograd.gradcheck(loss, (ratios.log().requires_grad_(),))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-6, 0), st.floats(-6, 0), st.floats(-3, 3)), min_size=1, max_size=20),
    st.floats(0.05, 0.9),
    st.floats(0.05, 2),
    st.none() | st.floats(3.5, 12),
)
def test_it_is_the_formula_token_by_token(
    tokens: list[tuple[float, float, float]], low: float, high: float, dual: float | None
) -> None:
    columns = torch.tensor(tokens, dtype=torch.float64).T.unsqueeze(1)
    new = columns[0].clone().requires_grad_()
    terms = clipped(new, columns[1], columns[2], clip_low=low, clip_high=high, dual_clip=dual)
    terms.loss_BT.sum().backward()
    assert new.grad is not None
    objectives = [restatement.token_objective(*token, low, high, dual) for token in tokens]
    assert (-terms.loss_BT[0]).tolist() == pytest.approx(objectives, abs=1e-9)
    for token, slope in zip(tokens, (-new.grad[0]).tolist(), strict=True):
        ratio = math.exp(token[0] - token[1])
        kinks = [1 - low, 1 + high, *([] if dual is None else [dual])]
        if min(abs(ratio - kink) for kink in kinks) > 1e-9:
            assert slope == pytest.approx(restatement.token_objective_slope(*token, low, high, dual), abs=1e-9)


def exact(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_the_ratio_of_a_reply_is_the_geometric_mean_of_its_tokens_ratios() -> None:
    """Ratios 2 and 1/2 make 1, and 1.44 and 1 make 1.2, which the bound 1.1 holds where the advantage is positive."""
    new = torch.log(torch.tensor([[2.0, 0.5, 9.0], [1.44, 1.0, 9.0], [1.44, 1.0, 9.0]], dtype=torch.float64))
    new.requires_grad_()
    mask_BT = torch.tensor([[True, True, False]] * 3)
    advantages_BT = torch.tensor([[2.0], [2.0], [-2.0]], dtype=torch.float64).expand(3, 3)
    terms = sequence_clipped(
        new, torch.zeros(3, 3, dtype=torch.float64), advantages_BT, mask_BT, clip_low=0.1, clip_high=0.1
    )
    assert terms.ratio_BT[:, 0].tolist() == pytest.approx([1.0, 1.2, 1.2])
    assert terms.loss_BT[:, 0].tolist() == pytest.approx([-2.0, -2.2, 2.4])
    assert terms.loss_BT[:, 1].tolist() == pytest.approx([-2.0, -2.2, 2.4])
    assert terms.clipped_high_BT[:, 0].tolist() == [0.0, 1.0, 0.0]
    (terms.loss_BT * mask_BT / 2).sum().backward()
    # d ratio / d logprob = ratio / tokens, through each of the tokens in the mask
    assert new.grad is not None
    assert new.grad.tolist() == [pytest.approx([-1, -1, 0]), [0, 0, 0], pytest.approx([1.2, 1.2, 0])]


@settings(deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda width: st.lists(
            st.tuples(
                st.lists(st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.booleans()), min_size=width, max_size=width),
                st.floats(-3, 3),
            ),
            min_size=1,
            max_size=4,
        )
    ),
    st.floats(0.01, 0.9),
    st.floats(0.01, 2),
)
def test_the_objective_of_a_reply_is_the_formula(
    rows: list[tuple[list[tuple[float, float, bool]], float]], low: float, high: float
) -> None:
    new, old = (
        torch.tensor([[token[part] for token in row] for row, _ in rows], dtype=torch.float64) for part in (0, 1)
    )
    mask_BT = torch.tensor([[token[2] for token in row] for row, _ in rows])
    advantages_BT = torch.tensor([[advantage] for _, advantage in rows], dtype=torch.float64).expand(new.shape)
    found_BT = -sequence_clipped(new, old, advantages_BT, mask_BT, clip_low=low, clip_high=high).loss_BT
    for number, (row, advantage) in enumerate(rows):
        logprobs, old_logprobs, mask = zip(*row, strict=True)
        if any(mask):
            expected = restatement.sequence_objective(logprobs, old_logprobs, advantage, mask, low, high)
            assert found_BT[number].tolist() == pytest.approx([expected] * len(row), abs=1e-9)


def test_the_gradient_of_a_reply_s_objective_is_that_of_finite_differences() -> None:
    mask_BT = torch.tensor([[True, True, False, True], [True, False, True, True]])
    new = torch.tensor([[-0.5, -1.0, 9.0, -2.0], [-0.1, 9.0, -0.7, -1.0]], dtype=torch.float64).requires_grad_()
    old = torch.tensor([[-0.6, -0.9, -9.0, -2.2], [-0.3, -9.0, -0.5, -1.6]], dtype=torch.float64)
    for advantages in ([[1.5], [-0.5]], [[-1.0], [2.0]]):
        spread_BT = torch.tensor(advantages, dtype=torch.float64).expand(2, 4)

        def loss(logprobs: Tensor, spread_BT: Tensor = spread_BT) -> Tensor:
            return sequence_clipped(logprobs, old, spread_BT, mask_BT, clip_low=0.2, clip_high=0.25).loss_BT

        assert torch.autograd.gradcheck(loss, (new,))


def test_a_reply_wholly_outside_the_mask_has_ratio_one_and_no_gradient() -> None:
    new = torch.tensor([[math.nan, 5.0]], requires_grad=True)
    nothing_BT = torch.tensor([[False, False]])
    terms = sequence_clipped(new, torch.zeros(1, 2), torch.zeros(1, 2), nothing_BT, clip_low=0.1, clip_high=0.1)
    terms.loss_BT.sum().backward()
    assert terms.ratio_BT.tolist() == [[1.0, 1.0]]
    assert new.grad is not None and new.grad.tolist() == [[0.0, 0.0]]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-6, 0), st.floats(-6, 0), st.floats(-3, 3)), min_size=1, max_size=20),
    st.floats(0.05, 1.0),
    st.floats(0.05, 3),
)
def test_the_clipped_weight_s_gradient_is_the_weight_times_the_advantage(
    tokens: list[tuple[float, float, float]], low: float, high: float
) -> None:
    """Not the derivative of its value by the ratio: the weight carries none, and no token is left without."""
    columns = torch.tensor(tokens, dtype=torch.float64).T.unsqueeze(1)
    new = columns[0].clone().requires_grad_()
    terms = clipped_weight(new, columns[1], columns[2], clip_low=low, clip_high=high)
    terms.loss_BT.sum().backward()
    assert new.grad is not None
    slopes = [restatement.clipped_weight_slope(*token, low, high) for token in tokens]
    assert (-new.grad[0]).tolist() == pytest.approx(slopes, abs=1e-9)
    values = [slope * token[0] for slope, token in zip(slopes, tokens, strict=True)]
    assert (-terms.loss_BT[0]).tolist() == pytest.approx(values, abs=1e-9)
    assert not any(part.requires_grad for part in terms[1:])


def test_the_clipped_weight_by_hand() -> None:
    """Ratios 4, 1.5, 0.1: weights 3, 1.5 and, with no lower bound, 0.1; with the bound 0.8, 0.8."""
    old = torch.log(exact(0.2, 0.4, 0.5))
    new = torch.log(exact(0.8, 0.6, 0.05)).requires_grad_()
    free = clipped_weight(new, old, exact(1, -1, 1), clip_low=1.0, clip_high=2.0)
    (gradient,) = torch.autograd.grad(free.loss_BT.sum(), new)
    assert gradient.tolist() == [pytest.approx([-3, 1.5, -0.1])]
    assert free.clipped_high_BT.tolist() == [[1, 0, 0]] and free.clipped_low_BT.tolist() == [[0, 0, 0]]
    held = clipped_weight(new, old, exact(1, -1, 1), clip_low=0.2, clip_high=2.0)
    (gradient,) = torch.autograd.grad(held.loss_BT.sum(), new)
    assert gradient.tolist() == [pytest.approx([-3, 1.5, -0.8])]
    assert held.clipped_low_BT.tolist() == [[0, 0, 1]]


def test_reinforce_is_the_advantage_times_the_log_probability() -> None:
    new, advantages = exact(-0.5, -2.0, 0.0).requires_grad_(), exact(2.0, -1.0, 3.0)
    loss_BT = reinforce(new, advantages)
    assert loss_BT.tolist() == [[1.0, -2.0, 0.0]]
    (gradient,) = torch.autograd.grad(loss_BT.sum(), new)
    assert torch.equal(gradient, -advantages)
    assert torch.autograd.gradcheck(reinforce, (new, advantages))


@pytest.mark.parametrize(
    ("value", "loss", "slope", "held"),
    [
        (1.0, 0.5, -1.0, 0),  # the value has not moved: plain, (1 - 2)^2 / 2
        (1.1, 0.405, -0.9, 0),  # near the old value: plain
        (1.5, 0.32, 0.0, 1),  # moved further towards the return than is believed: the error at 1.2 counts, and is flat
        (0.5, 1.125, -1.5, 0),  # moved away from the return: the plain error is the larger, and pulls back
        (3.5, 1.125, 1.5, 0),  # shot past the return so far that the plain error is the larger
    ],
)
def test_the_value_s_loss_of_a_token_with_old_value_one_and_return_two(
    value: float, loss: float, slope: float, held: int
) -> None:
    new = exact(value).requires_grad_()
    loss_BT, clipped_BT = clipped_value(new, exact(1.0), exact(2.0), clip=0.2)
    loss_BT.sum().backward()
    assert new.grad is not None
    assert (loss_BT.item(), new.grad.item(), clipped_BT.item()) == (pytest.approx(loss), pytest.approx(slope), held)


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-5, 5)] * 3), min_size=1, max_size=12),
    st.none() | st.floats(0.05, 2),
)
def test_the_value_s_loss_is_the_formula(tokens: list[tuple[float, float, float]], clip: float | None) -> None:
    values, old, returns = torch.tensor(tokens, dtype=torch.float64).T.unsqueeze(1)
    found_BT, _ = clipped_value(values, old, returns, clip=clip)
    expected = [restatement.value_loss(*token, clip) for token in tokens]
    assert found_BT[0].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_gradient_of_the_value_s_loss_is_that_of_finite_differences(clip: float | None) -> None:
    values = exact(1.0, 1.1, 1.5, 0.5, 3.5, -1.0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda tensor: clipped_value(tensor, torch.ones_like(tensor), 2 * torch.ones_like(tensor), clip=clip)[0],
        (values,),
    )
