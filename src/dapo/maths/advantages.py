"""From rewards to advantages. Letters: B rows (replies)."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-6
"""Added to the standard deviation, as in the DAPO authors' code."""


def group_means(values_B: Tensor, group_B: Tensor, counted_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's group mean over the counted rows, and the number of them, both [B].

    A group without a counted row has mean 0 and count 0.
    """
    num_groups = int(group_B.max()) + 1 if group_B.numel() else 0
    weight_B = counted_B.to(values_B.dtype)
    safe_B = torch.where(counted_B, values_B, torch.zeros_like(values_B))
    total = values_B.new_zeros(num_groups).index_add_(0, group_B, safe_B)
    count = values_B.new_zeros(num_groups).index_add_(0, group_B, weight_B)
    mean = total / count.clamp(min=1)
    return mean[group_B], count[group_B]


def group_normalised(rewards_B: Tensor, group_B: Tensor, counted_B: Tensor | None = None) -> Tensor:
    """(R - mean) / (std + 1e-6) within the group, [B]. Source: arXiv 2503.14476, Eq. 9.

    The standard deviation is the sample's (divided by n - 1), as in the authors' code. A group whose rewards are
    all equal, or with one counted row, has advantage 0: it holds no comparison. Rows that are not counted (masked
    replies, rewards that are not finite) leave the mean and the deviation, and get 0 themselves where their reward
    is not finite.

    Example: rewards [1, -1, -1, -1] of one group give [1.5, -0.5, -0.5, -0.5].
    """
    centred_B, count_B, usable_B = _centred(rewards_B, group_B, counted_B)
    squares_B = torch.where(usable_B, centred_B.square(), torch.zeros_like(centred_B))
    mean_square_B, _ = group_means(squares_B, group_B, usable_B)
    variance_B = mean_square_B * count_B / (count_B - 1).clamp(min=1)
    return centred_B / (variance_B.sqrt() + EPSILON)


def group_centred(rewards_B: Tensor, group_B: Tensor, counted_B: Tensor | None = None) -> Tensor:
    """R - mean within the group, [B]. Source: Dr. GRPO, arXiv 2503.20783, section 3.2."""
    return _centred(rewards_B, group_B, counted_B)[0]


def _centred(rewards_B: Tensor, group_B: Tensor, counted_B: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """R - mean, or 0 in a group without a comparison; the number of usable rows of the row's group; the usable rows."""
    finite_B = torch.isfinite(rewards_B)
    usable_B = finite_B if counted_B is None else finite_B & counted_B
    mean_B, count_B = group_means(rewards_B, group_B, usable_B)
    compares_B = finite_B & _rewards_differ(rewards_B, group_B, usable_B)
    return torch.where(compares_B, rewards_B - mean_B, torch.zeros_like(rewards_B)), count_B, usable_B


def _rewards_differ(rewards_B: Tensor, group_B: Tensor, usable_B: Tensor) -> Tensor:
    """Whether the usable rewards of each row's group differ, [B].

    Decided on the rewards themselves: what is left of equal ones after their mean is taken is a rounding error, and
    divided by a deviation that is a rounding error too it would pass for an advantage.
    """
    num_groups = int(group_B.max()) + 1 if group_B.numel() else 0
    infinite_B = torch.full_like(rewards_B, torch.inf)
    lowest = rewards_B.new_full((num_groups,), torch.inf)
    highest = rewards_B.new_full((num_groups,), -torch.inf)
    lowest.scatter_reduce_(0, group_B, torch.where(usable_B, rewards_B, infinite_B), "amin")
    highest.scatter_reduce_(0, group_B, torch.where(usable_B, rewards_B, -infinite_B), "amax")
    return (highest > lowest)[group_B]


def leave_one_out(rewards_B: Tensor, group_B: Tensor, counted_B: Tensor | None = None) -> Tensor:
    """R minus the mean of the other replies of the group, [B]. Source: RLOO, arXiv 2402.14740, section 2.

    It is the centred reward times n / (n - 1). A reply without others has advantage 0.
    """
    centred_B, count_B, _ = _centred(rewards_B, group_B, counted_B)
    scale_B = count_B / (count_B - 1).clamp(min=1)
    return torch.where(count_B > 1, centred_B * scale_B, torch.zeros_like(centred_B))


def generalised_advantages(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, *, discount: float, decay: float
) -> tuple[Tensor, Tensor]:
    """GAE: (advantages_BT, returns_BT), both 0 outside the mask. Source: arXiv 1506.02438, Eq. 16.

        delta_t = r_t + discount * V_(t+1) - V_t          A_t = delta_t + discount * decay * A_(t+1)

    t + 1 is the next position inside the mask, and beyond the last one V and A are 0. So whatever stands on masked
    positions, such as the values of padding, never enters. Returns are advantages + values.

    Mask [1, 1, 0], rewards [0, 1, 0], values [0, 0, 100], discount 1, decay 0.95 give [0.95, 1, 0].
    """
    next_value_B = torch.zeros_like(values_BT[:, 0])
    next_advantage_B = torch.zeros_like(next_value_B)
    advantages_BT = torch.zeros_like(values_BT)
    for place in range(values_BT.shape[1] - 1, -1, -1):
        inside_B = mask_BT[:, place]
        delta_B = rewards_BT[:, place] + discount * next_value_B - values_BT[:, place]
        advantage_B = delta_B + discount * decay * next_advantage_B
        advantages_BT[:, place] = torch.where(inside_B, advantage_B, 0.0)
        next_advantage_B = torch.where(inside_B, advantage_B, next_advantage_B)
        next_value_B = torch.where(inside_B, values_BT[:, place], next_value_B)
    return advantages_BT, torch.where(mask_BT, advantages_BT + values_BT, 0.0)


def whitened(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(A - mean) / (std + 1e-6) over the tokens in the mask, 0 outside. One token, or all alike, gives 0."""
    counted = advantages_BT[mask_BT]
    if counted.numel() == 0 or bool(counted.max() == counted.min()):
        return torch.zeros_like(advantages_BT)  # the mean's rounding error must not pass for an advantage
    count = mask_BT.sum()
    inside = torch.where(mask_BT, advantages_BT, 0.0)
    mean = inside.sum() / count.clamp(min=1)
    centred_BT = torch.where(mask_BT, advantages_BT - mean, 0.0)
    variance = centred_BT.square().sum() / (count - 1).clamp(min=1)
    return centred_BT / (variance.sqrt() + EPSILON)


def rewards_to_go(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The sum of a reply's rewards from each token on, 0 outside the mask, [B, T]."""
    inside = torch.where(mask_BT, rewards_BT, 0.0)
    return torch.where(mask_BT, inside.flip(1).cumsum(1).flip(1), 0.0)


def at_last_token(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Each row's reward on its last token inside the mask, [B, T]. A row without one keeps none."""
    width = mask_BT.shape[1]
    last_B = width - 1 - mask_BT.flip(1).to(torch.int8).argmax(dim=1)
    placed_BT = torch.zeros(mask_BT.shape, dtype=rewards_B.dtype, device=rewards_B.device)
    placed_BT.scatter_(1, last_B.unsqueeze(1), rewards_B.unsqueeze(1))
    return torch.where(mask_BT, placed_BT, 0.0)
