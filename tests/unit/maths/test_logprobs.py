from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.kl import kl_k3
from dapo.maths.logprobs import logprobs_and_entropy
from tests import restatement


def one(logits: list[float], token: int, temperature: float = 1.0) -> tuple[float, float]:
    logprobs, entropy = logprobs_and_entropy(
        torch.tensor([logits], dtype=torch.float64), torch.tensor([token]), temperature
    )
    return logprobs.item(), entropy.item()


def test_the_entropy_of_a_uniform_distribution_is_minus_the_log_probability_of_any_token() -> None:
    for token in range(4):
        logprob, entropy = one([0.5, 0.5, 0.5, 0.5], token)
        assert logprob == pytest.approx(-math.log(4), abs=1e-12)
        assert entropy == pytest.approx(math.log(4), abs=1e-12)


def test_the_entropy_is_of_the_whole_distribution_and_not_of_the_token_that_was_drawn() -> None:
    """A rare token of a peaked distribution surprises much and says little about the distribution."""
    peaked = [math.log(0.97), math.log(0.01), math.log(0.01), math.log(0.01)]
    logprob, entropy = one(peaked, 2)
    assert logprob == pytest.approx(math.log(0.01), abs=1e-12)
    assert entropy == pytest.approx(-(0.97 * math.log(0.97) + 3 * 0.01 * math.log(0.01)), abs=1e-12)
    assert -logprob > 20 * entropy
    assert one(peaked, 0)[1] == pytest.approx(entropy, abs=1e-12)


def test_the_temperature_divides_the_logits_and_not_the_log_probabilities() -> None:
    logits = [1.0, -2.0, 0.5]
    for token in range(3):
        logprob, entropy = one(logits, token, 0.6)
        assert logprob == pytest.approx(one([logit / 0.6 for logit in logits], token)[0], abs=1e-12)
        assert abs(logprob - one(logits, token)[0] / 0.6) > 0.1
        assert entropy == pytest.approx(restatement.entropy(logits, 0.6), abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=40), st.floats(0.1, 3), st.data())
def test_it_is_the_formula(logits: list[float], temperature: float, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(logits) - 1))
    logprob, entropy = one(logits, token, temperature)
    assert logprob == pytest.approx(restatement.log_softmax(logits, temperature)[token], abs=1e-9)
    assert entropy == pytest.approx(restatement.entropy(logits, temperature), abs=1e-9)


def test_any_leading_shape_and_single_precision_out_of_half() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[0, 1, 2], [4, 3, 2]])
    logprobs, entropy = logprobs_and_entropy(logits.bfloat16(), tokens, 1.0)
    assert logprobs.shape == entropy.shape == (2, 3)
    assert logprobs.dtype is entropy.dtype is torch.float32
    expected = logits.bfloat16().float().log_softmax(dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(logprobs, expected, atol=1e-6)


def test_the_gradient_flows_through_the_log_probability_alone() -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([1]), 0.5)
    assert not entropy.requires_grad
    logprobs.sum().backward()
    probabilities = (logits.detach() / 0.5).softmax(dim=-1)
    expected = (torch.tensor([[0.0, 1.0, 0.0]]) - probabilities) / 0.5
    assert logits.grad is not None and torch.allclose(logits.grad, expected, atol=1e-12)


def test_the_estimate_of_the_divergence_is_never_negative_and_its_mean_is_the_divergence() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    terms = kl_k3(p.log(), q.log())
    assert (terms >= 0).all()
    assert (p * terms).sum().item() == pytest.approx((p * (p / q).log()).sum().item(), abs=1e-12)
    assert kl_k3(p.log(), p.log()).tolist() == [0.0, 0.0, 0.0]


def test_the_estimate_is_finite_where_one_side_gives_a_token_no_chance() -> None:
    assert torch.isfinite(kl_k3(torch.tensor([-1.0, -500.0]), torch.tensor([-500.0, -1.0]))).all()
