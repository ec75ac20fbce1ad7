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
