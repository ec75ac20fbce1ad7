from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.config import DAPOConfig, GRPOConfig, PPOConfig
from dapo.algorithms.objectives import (
    clip_cov_loss,
    clipped_weight_loss,
    kl_cov_loss,
    reinforce_loss,
    sequence_clipped_loss,
    value_loss,
    with_kl,
)
from dapo.algorithms.policy import clipped_loss
from dapo.algorithms.relatives import (
    CISPOConfig,
    ClipCovConfig,
    DrGRPOConfig,
    GSPOConfig,
    KLCovConfig,
    ReinforcePlusPlusConfig,
    RLOOConfig,
)
from dapo.algorithms.value import Loss
from dapo.types import TokenLoss

RATIOS = (1.5, 0.5, 1.0)


def exact(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def columns(**more: Tensor) -> dict[str, Tensor]:
    """Old log-probabilities to which `logprobs()` has the ratios 1.5, 0.5 and 1; the last token does not train."""
    return {
        "old_logprobs": exact(-1.0, -1.0, -1.0),
        "advantages": exact(2.0, -1.0, 0.0),
        "trained": exact(1.0, 1.0, 0.0),
        **more,
    }


def logprobs() -> Tensor:
    return (exact(-1.0, -1.0, -1.0) + torch.log(exact(*RATIOS))).requires_grad_()


def slopes(loss: Loss, inputs: dict[str, Tensor]) -> tuple[TokenLoss, list[float]]:
    own = logprobs()
    found = loss(own, inputs)
    (gradient,) = torch.autograd.grad(found.loss_BT.sum(), own)
    assert not any(tensor.requires_grad for tensor in (*found.watch.values(), *found.peaks.values()))
    return found, gradient[0].tolist()


def loss_of_two_replies(config: Any) -> float:
    """Lengths 2 and 6, advantages +1 and -1, ratio 1, through the algorithm's own weights and loss."""
    algorithm = config.build(8)
    mask_BT = torch.arange(6) < torch.tensor([[2], [6]])
    advantages_BT = torch.tensor([[1.0], [-1.0]]) * mask_BT
    logprobs_BT = torch.full((2, 6), -1.5)
    inputs = {"advantages": advantages_BT, "reference_logprobs": logprobs_BT, "trained": mask_BT.float()}
    inputs |= {"chosen": torch.zeros(2, 6), "old_logprobs": logprobs_BT}
    weight_BT = algorithm.weigh(mask_BT, torch.tensor([0, 0]))
    return float((weight_BT * algorithm.loss(logprobs_BT, inputs).loss_BT).sum())


@pytest.mark.parametrize(
    ("config", "loss"),
    [
        (GRPOConfig(), 0.0),  # (-1 + 1) / 2
        (DAPOConfig(), 0.5),  # (-2 + 6) / 8
        (PPOConfig(), 0.5),
        (ReinforcePlusPlusConfig(), 0.5),
        (ClipCovConfig(), 0.5),
        (KLCovConfig(), 0.5),
        (DrGRPOConfig(), 0.25),  # (-2 + 6) / (2 * 8)
        (GSPOConfig(), 0.0),
        (CISPOConfig(), -0.75),  # the objective is the log-probability: 1.5 * (2 - 6) / 8
        (RLOOConfig(), -3.0),  # 1.5 * (2 - 6) / 2
    ],
    ids=lambda value: value if isinstance(value, float) else value.type,
)
def test_two_replies_of_different_length_under_every_algorithm(config: Any, loss: float) -> None:
    assert loss_of_two_replies(config) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_divergence_adds_beta_times_its_estimate_and_its_slope(estimator: str) -> None:
    plain = clipped_loss(clip_low=0.2, clip_high=0.28, dual_clip=None)
    inputs = columns(reference_logprobs=logprobs().detach() - exact(0.5, -0.25, 0.0))
    base, base_slopes = slopes(plain, inputs)
    found, found_slopes = slopes(with_kl(plain, beta=0.1, estimator=estimator), inputs)
    # d = log reference - log policy is -0.5, 0.25 and 0
    kl, kl_slopes = {
        "k1": ([0.5, -0.25, 0.0], [1.0, 1.0, 1.0]),
        "k2": ([0.125, 0.03125, 0.0], [0.5, -0.25, 0.0]),
        "k3": ([math.exp(-0.5) - 0.5, math.exp(0.25) - 1.25, 0.0], [1 - math.exp(-0.5), 1 - math.exp(0.25), 0.0]),
    }[estimator]
    assert found.watch["policy/kl"].tolist() == [pytest.approx(kl)]
    assert (found.loss_BT - base.loss_BT).tolist() == [pytest.approx([0.1 * one for one in kl])]
    difference = [one - other for one, other in zip(found_slopes, base_slopes, strict=True)]
    assert difference == pytest.approx([0.1 * one for one in kl_slopes])
    assert found.watch.keys() == {*base.watch, "policy/kl"}


def test_chosen_tokens_of_clip_cov_keep_their_value_and_lose_their_gradient() -> None:
    inputs = columns(chosen=exact(0.0, 0.0, 0.0), advantages=exact(2.0, 1.0, 3.0))
    free, free_slopes = slopes(clip_cov_loss(clip_low=0.2, clip_high=0.6), inputs)
    held, held_slopes = slopes(clip_cov_loss(clip_low=0.2, clip_high=0.6), inputs | {"chosen": exact(1.0, 0.0, 1.0)})
    assert free.loss_BT.tolist() == held.loss_BT.tolist() == [pytest.approx([-3.0, -0.5, -3.0])]
    assert free_slopes == pytest.approx([-3.0, -0.5, -3.0])
    assert held_slopes == pytest.approx([0.0, -0.5, 0.0])
    assert held.watch["policy/chosen"].tolist() == [[1.0, 0.0, 1.0]]


def test_chosen_tokens_of_kl_cov_pay_for_moving_either_way() -> None:
    found, found_slopes = slopes(kl_cov_loss(beta=0.5), columns(chosen=exact(1.0, 1.0, 1.0)))
    assert found.loss_BT.tolist() == [pytest.approx([-3 + 0.5 * math.log(1.5), 0.5 + 0.5 * math.log(2), 0.0])]
    assert found_slopes == pytest.approx([-3 + 0.5, 0.5 - 0.5, 0.0])
    _, free_slopes = slopes(kl_cov_loss(beta=0.5), columns(chosen=exact(0.0, 0.0, 0.0)))
    assert free_slopes == pytest.approx([-3.0, 0.5, 0.0])


def test_what_each_loss_watches() -> None:
    inputs = columns(chosen=exact(0.0, 0.0, 0.0))
    weighed, _ = slopes(clipped_weight_loss(clip_low=0.2, clip_high=0.3), inputs)
    assert weighed.watch["policy/ratio_mean"].tolist() == [pytest.approx(RATIOS)]
    assert (weighed.watch["policy/clip_low"].tolist(), weighed.watch["policy/clip_high"].tolist()) == (
        [[0, 1, 0]],
        [[1, 0, 0]],
    )
    plain, plain_slopes = slopes(reinforce_loss(), inputs)
    assert plain.watch["policy/ratio_mean"].tolist() == [pytest.approx(RATIOS)]
    assert plain_slopes == [-2.0, 1.0, 0.0]
    assert plain.peaks["policy/ratio_max"].max().item() == pytest.approx(1.5)
    reply, _ = slopes(sequence_clipped_loss(clip_low=0.1, clip_high=0.1), inputs)
    assert reply.watch["policy/ratio_mean"].tolist() == [pytest.approx([math.sqrt(0.75)] * 3)]
    assert reply.watch["policy/clip_low"].tolist() == [[0.0, 1.0, 0.0]]
    value = value_loss(clip=0.2)(exact(1.5), {"values": exact(1.0), "returns": exact(2.0)})
    assert value.watch["value/loss"].tolist() == [[pytest.approx(0.32)]] and value.watch["value/clip"].tolist() == [
        [1.0]
    ]
    assert value.peaks == {}


@pytest.mark.parametrize(
    "loss",
    [
        clipped_loss(clip_low=0.2, clip_high=0.2, dual_clip=None),
        sequence_clipped_loss(clip_low=0.2, clip_high=0.2),
        clipped_weight_loss(clip_low=0.2, clip_high=0.2),
        reinforce_loss(),
        clip_cov_loss(clip_low=0.2, clip_high=0.2),
        kl_cov_loss(beta=1.0),
    ],
    ids=["clipped", "sequence", "weight", "reinforce", "clip_cov", "kl_cov"],
)
def test_without_old_log_probabilities_each_is_the_policy_gradient(loss: Loss) -> None:
    """With one update a step: ratio 1 everywhere. Over both tokens of the reply, as one ratio is shared by them."""
    own = exact(-0.3, -4.0).requires_grad_()
    inputs = {"advantages": exact(2.0, 2.0), "trained": exact(1.0, 1.0), "chosen": exact(0.0, 0.0)}
    found = loss(own, inputs)
    (gradient,) = torch.autograd.grad(found.loss_BT.sum(), own)
    assert found.watch["policy/ratio_mean"].tolist() == [[1.0, 1.0]]
    assert gradient.tolist() == [pytest.approx([-2.0, -2.0])]


@pytest.mark.parametrize(
    ("config", "needs", "has_critic", "has_reference"),
    [
        (DAPOConfig(), set(), False, False),
        (GRPOConfig(), {"reference_logprobs"}, False, True),
        (GRPOConfig(kl_beta=0.0), set(), False, False),
        (PPOConfig(), {"values"}, True, False),
        (PPOConfig(kl_beta=0.1), {"values", "old_logprobs", "reference_logprobs"}, True, True),
        (DrGRPOConfig(), set(), False, False),
        (GSPOConfig(), set(), False, False),
        (CISPOConfig(), set(), False, False),
        (RLOOConfig(), set(), False, False),
        (ReinforcePlusPlusConfig(), {"old_logprobs", "reference_logprobs"}, False, True),
        (ReinforcePlusPlusConfig(kl_beta=0.0), set(), False, False),
        (ClipCovConfig(), {"old_logprobs"}, False, False),
        (KLCovConfig(), {"old_logprobs"}, False, False),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_what_each_asks_of_the_trainer(config: Any, needs: set[str], has_critic: bool, has_reference: bool) -> None:
    algorithm = config.build(8)
    assert algorithm.needs == needs
    assert (algorithm.critic is not None, algorithm.reference is not None) == (has_critic, has_reference)
