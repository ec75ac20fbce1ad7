"""Losses per token beside the plain clip, each a function of (logprobs_BT, columns). Letters: B rows, T reply tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dapo.algorithms.value import ADVANTAGES, CHOSEN, OLD_LOGPROBS, REFERENCE_LOGPROBS, RETURNS, TRAINED, VALUES, Loss
from dapo.maths.kl import ESTIMATORS
from dapo.maths.losses import (
    LOG_RATIO_LIMIT,
    ClippedLoss,
    clipped,
    clipped_value,
    clipped_weight,
    reinforce,
    sequence_clipped,
)
from dapo.types import Columns, TokenLoss


def old_logprobs(logprobs_BT: Tensor, columns: Columns) -> Tensor:
    """The policy's that sampled; without the column it is the one that is updated."""
    return columns.get(OLD_LOGPROBS, logprobs_BT.detach())


def watched(terms: ClippedLoss) -> TokenLoss:
    """A clipped loss with its ratio and its clips."""
    return TokenLoss(
        loss_BT=terms.loss_BT,
        watch={
            "policy/ratio_mean": terms.ratio_BT,
            "policy/clip_low": terms.clipped_low_BT,
            "policy/clip_high": terms.clipped_high_BT,
        },
        peaks={"policy/ratio_max": terms.ratio_BT},
    )


def with_kl(loss: Loss, *, beta: float, estimator: str) -> Loss:
    """Add beta * KL(policy || reference) to every token. Source: GRPO, arXiv 2402.03300, Eq. 3 and 4."""
    estimate = ESTIMATORS[estimator]

    def penalised(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        base = loss(logprobs_BT, columns)
        kl_BT = estimate(logprobs_BT, columns[REFERENCE_LOGPROBS])
        return TokenLoss(
            loss_BT=base.loss_BT + beta * kl_BT, watch={**base.watch, "policy/kl": kl_BT.detach()}, peaks=base.peaks
        )

    return penalised


def sequence_clipped_loss(*, clip_low: float, clip_high: float) -> Loss:
    """GSPO's: one ratio a reply."""

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        return watched(
            sequence_clipped(
                logprobs_BT,
                old_logprobs(logprobs_BT, columns),
                columns[ADVANTAGES],
                columns[TRAINED] > 0,
                clip_low=clip_low,
                clip_high=clip_high,
            )
        )

    return loss


def clipped_weight_loss(*, clip_low: float, clip_high: float) -> Loss:
    """CISPO's: the clipped ratio is a weight."""

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        old_BT = old_logprobs(logprobs_BT, columns)
        return watched(clipped_weight(logprobs_BT, old_BT, columns[ADVANTAGES], clip_low=clip_low, clip_high=clip_high))

    return loss


def reinforce_loss() -> Loss:
    """The plain policy gradient."""

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        ratio_BT = (logprobs_BT - old_logprobs(logprobs_BT, columns)).detach().exp()
        return TokenLoss(
            loss_BT=reinforce(logprobs_BT, columns[ADVANTAGES]),
            watch={"policy/ratio_mean": ratio_BT},
            peaks={"policy/ratio_max": ratio_BT},
        )

    return loss


def clip_cov_loss(*, clip_low: float, clip_high: float) -> Loss:
    """Clip-Cov's: the chosen tokens keep their value and lose their gradient."""

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        chosen_BT = columns[CHOSEN] > 0
        held_BT = torch.where(chosen_BT, logprobs_BT.detach(), logprobs_BT)
        old_BT = old_logprobs(logprobs_BT, columns)
        base = watched(clipped(held_BT, old_BT, columns[ADVANTAGES], clip_low=clip_low, clip_high=clip_high))
        return TokenLoss(loss_BT=base.loss_BT, watch={**base.watch, "policy/chosen": columns[CHOSEN]}, peaks=base.peaks)

    return loss


def kl_cov_loss(*, beta: float) -> Loss:
    """KL-Cov's: no clip; the chosen tokens pay beta * |log-ratio| for moving from the policy that sampled (Eq. 14)."""

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        log_ratio_BT = (logprobs_BT - old_logprobs(logprobs_BT, columns)).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio_BT = log_ratio_BT.exp()
        loss_BT = -columns[ADVANTAGES] * ratio_BT + beta * columns[CHOSEN] * log_ratio_BT.abs()
        return TokenLoss(
            loss_BT=loss_BT,
            watch={"policy/ratio_mean": ratio_BT.detach(), "policy/chosen": columns[CHOSEN]},
            peaks={"policy/ratio_max": ratio_BT.detach()},
        )

    return loss


def value_loss(*, clip: float | None) -> Callable[[Tensor, Columns], TokenLoss]:
    """The critic's: (values_BT, columns) -> loss of each token."""

    def loss(values_BT: Tensor, columns: Columns) -> TokenLoss:
        loss_BT, clipped_BT = clipped_value(values_BT, columns[VALUES], columns[RETURNS], clip=clip)
        return TokenLoss(loss_BT=loss_BT, watch={"value/loss": loss_BT.detach(), "value/clip": clipped_BT}, peaks={})

    return loss
