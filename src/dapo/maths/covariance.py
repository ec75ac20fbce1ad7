"""Which tokens drive the entropy down: those whose log-probability and advantage move together. Letters: B rows, T tokens.

Source: "The entropy mechanism of reinforcement learning for reasoning language models", arXiv 2505.22617.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_covariance(logprobs_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(log p - mean) * (A - mean) for each token, over the tokens in the mask, 0 outside, [B, T]. Source: Eq. 10."""
    count = mask_BT.sum().clamp(min=1)

    def centred(tensor_BT: Tensor) -> Tensor:
        inside = torch.where(mask_BT, tensor_BT, 0.0)
        return torch.where(mask_BT, tensor_BT - inside.sum() / count, 0.0)

    return centred(logprobs_BT) * centred(advantages_BT)


def within_bounds(
    covariance_BT: Tensor, mask_BT: Tensor, *, low: float, high: float, share: float, seed: int
) -> Tensor:
    """A random `share` of all tokens, out of those whose covariance lies in [low, high]: Clip-Cov, Eq. 11. Bool [B, T]."""
    inside_BT = mask_BT & (covariance_BT >= low) & (covariance_BT <= high)
    candidates = inside_BT.flatten().nonzero().squeeze(1)
    wanted = min(int(share * int(mask_BT.sum())), candidates.numel())
    order = torch.randperm(candidates.numel(), generator=torch.Generator().manual_seed(seed))[:wanted]
    chosen = torch.zeros(mask_BT.numel(), dtype=torch.bool)
    chosen[candidates.cpu()[order]] = True
    return chosen.view(mask_BT.shape).to(mask_BT.device)


def largest(covariance_BT: Tensor, mask_BT: Tensor, *, share: float) -> Tensor:
    """The `share` of the tokens with the largest covariance: KL-Cov, Eq. 13. Bool [B, T]."""
    wanted = int(share * int(mask_BT.sum()))
    ranked = torch.where(mask_BT, covariance_BT, -torch.inf).flatten()
    chosen = torch.zeros(mask_BT.numel(), dtype=torch.bool, device=mask_BT.device)
    if wanted:
        chosen[ranked.topk(wanted).indices] = True
    return chosen.view(mask_BT.shape)
