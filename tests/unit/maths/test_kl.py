from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.kl import ESTIMATORS, LIMIT, kl_k1, kl_k2, kl_k3
from tests import restatement

NAMES = ("k1", "k2", "k3")
logprob = st.floats(-15, 0)


def exact(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_three_estimates_of_a_token_that_became_twice_as_likely() -> None:
    """log p - log q = log 2: k1 is log 2, k2 is log^2 2 / 2, k3 is 1/2 - 1 + log 2."""
    logprobs, others = exact(math.log(0.5)), exact(math.log(0.25))
    assert kl_k1(logprobs, others).item() == pytest.approx(math.log(2), abs=1e-12)
    assert kl_k2(logprobs, others).item() == pytest.approx(math.log(2) ** 2 / 2, abs=1e-12)
    assert kl_k3(logprobs, others).item() == pytest.approx(math.log(2) - 0.5, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_at_the_reference_the_estimate_is_zero(name: str) -> None:
    logprobs = torch.tensor([-0.1, -3.0, -40.0, 0.0])
    assert ESTIMATORS[name](logprobs, logprobs).tolist() == [0.0] * 4


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.tuples(logprob, logprob), min_size=1, max_size=8))
def test_it_is_the_formula(name: str, pairs: list[tuple[float, float]]) -> None:
    own, others = (exact(*column) for column in zip(*pairs, strict=True))
    expected = [restatement.kl_estimate(name, *pair) for pair in pairs]
    assert ESTIMATORS[name](own, others).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(st.sampled_from(("k2", "k3")), st.floats(-400, 400), st.floats(-400, 400))
def test_k2_and_k3_are_never_negative_and_always_finite(name: str, own: float, other: float) -> None:
    estimate = ESTIMATORS[name](exact(own), exact(other)).item()
    assert estimate >= -1e-12
    assert math.isfinite(estimate)


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_the_further_from_the_reference_the_larger(name: str) -> None:
    for sign in (1, -1):
        distances = sign * exact(0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 19.0)
        estimates = ESTIMATORS[name](torch.zeros_like(distances), distances)
        assert (estimates.diff() > 0).all()


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_mean_over_what_the_policy_draws_is_the_divergence(name: str) -> None:
    policy, reference = exact(0.7, 0.2, 0.1), exact(0.3, 0.3, 0.4)
    expected = (policy * (policy / reference).log()).sum().item()
    found = (policy * ESTIMATORS[name](policy.log(), reference.log())).sum().item()
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_its_gradient_is_that_of_finite_differences(name: str) -> None:
    logprobs = exact(-0.5, -1.0, -4.0, -2.0).requires_grad_()
    others = exact(-1.5, -0.5, -4.1, -9.0).requires_grad_()
    assert torch.autograd.gradcheck(ESTIMATORS[name], (logprobs, others))


@pytest.mark.parametrize("name", NAMES)
def test_beyond_the_limit_an_estimate_is_held_and_its_gradient_zero(name: str) -> None:
    logprobs = torch.tensor([-500.0, 0.0], requires_grad=True)
    others = torch.tensor([0.0, -500.0])
    estimates = ESTIMATORS[name](logprobs, others)
    estimates.sum().backward()
    held = ESTIMATORS[name](torch.zeros(2), torch.tensor([LIMIT, -LIMIT]))
    assert torch.equal(estimates.detach(), held)
    assert logprobs.grad is not None and logprobs.grad.tolist() == [0.0, 0.0]
