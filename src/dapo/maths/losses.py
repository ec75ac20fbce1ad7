"""From log-probabilities and advantages to a loss per token. Letters: B rows, T reply tokens.

No function here takes a mean: `dapo.maths.weights` says what each token weighs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""The log-ratio is clamped to +-20 before `exp`, so that a ratio never overflows."""


class ClippedLoss(NamedTuple):
    """loss_BT; ratio_BT (detached); and where each bound held the gradient back, as 0/1 tensors."""

    loss_BT: Tensor
    ratio_BT: Tensor
    clipped_low_BT: Tensor
    clipped_high_BT: Tensor
    clipped_dual_BT: Tensor


def clipped(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> ClippedLoss:
    """The clipped objective with decoupled bounds, negated. Source: arXiv 2503.14476, Eq. 8 and section 3.1.

        ratio     = exp(logprobs - old_logprobs)
        objective = min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)

    `clip_low == clip_high` is PPO's and GRPO's. With `dual_clip` c > 1 the objective of a token with A < 0 is at
    least c * A (arXiv 1912.09729, Eq. 5), so that a ratio without bound cannot dominate.

    A > 0 and ratio 1.5: objective (1 + clip_high) * A and no gradient. A < 0 and ratio 1.5: 1.5 * A, not clipped.
    """
    log_ratio_BT = (logprobs_BT - old_logprobs_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio_BT = log_ratio_BT.exp()
    plain_BT = -advantages_BT * ratio_BT
    bounded_BT = -advantages_BT * ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    loss_BT = torch.maximum(plain_BT, bounded_BT)
    with torch.no_grad():
        held_low_BT = (advantages_BT < 0) & (ratio_BT < 1 - clip_low)
        held_high_BT = (advantages_BT > 0) & (ratio_BT > 1 + clip_high)
        held_dual_BT = torch.zeros_like(held_low_BT)
    if dual_clip is not None:
        ceiling_BT = -advantages_BT * dual_clip
        with torch.no_grad():
            held_dual_BT = (advantages_BT < 0) & (loss_BT > ceiling_BT)
        loss_BT = torch.where(advantages_BT < 0, torch.minimum(loss_BT, ceiling_BT), loss_BT)
    return ClippedLoss(
        loss_BT,
        ratio_BT.detach(),
        held_low_BT.to(loss_BT.dtype),
        held_high_BT.to(loss_BT.dtype),
        held_dual_BT.to(loss_BT.dtype),
    )


def sequence_log_ratio(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over a reply's tokens of the log-ratio, [B]: the log of GSPO's ratio (arXiv 2507.18071, Eq. 7)."""
    difference_BT = torch.where(mask_BT, logprobs_BT - old_logprobs_BT, 0.0)
    return difference_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def sequence_clipped(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> ClippedLoss:
    """The clipped objective with one ratio for the whole reply: GSPO. Source: arXiv 2507.18071, Eq. 5 and 7.

    Every token of a reply carries its reply's loss, so that the mean over replies of token means is the mean over
    replies. Its gradient goes through all of the reply's log-probabilities.
    """
    log_ratio_B = sequence_log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    spread_BT = log_ratio_B.unsqueeze(1).expand_as(logprobs_BT)
    return clipped(
        spread_BT, torch.zeros_like(spread_BT), advantages_BT, clip_low=clip_low, clip_high=clip_high, dual_clip=None
    )


def clipped_weight(
    logprobs_BT: Tensor, old_logprobs_BT: Tensor, advantages_BT: Tensor, *, clip_low: float, clip_high: float
) -> ClippedLoss:
    """The policy gradient weighed by a clipped ratio that carries no gradient: CISPO. Source: arXiv 2506.13585, Eq. 4.

        loss = -stop_gradient(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logprobs

    No token is left without a gradient, as the plain clip leaves some.
    """
    log_ratio_BT = (logprobs_BT - old_logprobs_BT).detach().clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio_BT = log_ratio_BT.exp()
    weight_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    below_BT, above_BT = ratio_BT < 1 - clip_low, ratio_BT > 1 + clip_high
    return ClippedLoss(
        -weight_BT * advantages_BT * logprobs_BT,
        ratio_BT,
        below_BT.to(ratio_BT.dtype),
        above_BT.to(ratio_BT.dtype),
        torch.zeros_like(ratio_BT),
    )


def reinforce(logprobs_BT: Tensor, advantages_BT: Tensor) -> Tensor:
    """-A * logprobs, [B, T]: the plain policy gradient (Williams, Machine Learning 8, 1992)."""
    return -advantages_BT * logprobs_BT


def clipped_value(
    values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, *, clip: float | None
) -> tuple[Tensor, Tensor]:
    """(loss_BT, clipped_BT): half the squared error, or the larger of it and that of the value held near the old one.

        max((V - G)^2, (old + clip(V - old, -clip, clip) - G)^2) / 2

    Source: OpenAI baselines' PPO, as PPO is run in this field. Without `clip` it is the plain squared error.
    """
    plain_BT = (values_BT - returns_BT).square()
    if clip is None:
        return plain_BT / 2, torch.zeros_like(plain_BT)
    held_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
    bounded_BT = (held_BT - returns_BT).square()
    return torch.maximum(plain_BT, bounded_BT) / 2, (bounded_BT > plain_BT).to(plain_BT.dtype)
