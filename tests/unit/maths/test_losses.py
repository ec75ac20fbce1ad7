from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.losses import LOG_RATIO_LIMIT, ClippedLoss, clipped
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
