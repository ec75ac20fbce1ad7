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
