"""What each token weighs in the loss: every mean is one of these. Letters: B rows, T reply tokens.

The loss of an optimizer step is `(weight_BT * loss_BT).sum()`, over all micro-batches and ranks. The weights are
computed once, from the mask of the whole step, so the gradient does not depend on how the step is cut up.

A token outside the mask weighs 0 and is in no denominator. A step without a token weighs 0 everywhere: its loss is
0 and its gradient 0, never NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_mean(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """1 / number of tokens of the step: the token-level loss. Source: arXiv 2503.14476, section 3.3 and Eq. 8.

    `group_B` is not used; every mean here has the same signature.
    """
    weight_BT = mask_BT.to(torch.float32)
    return weight_BT / weight_BT.sum().clamp(min=1)


def sequence_mean(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """Mean over replies of each reply's token mean: GRPO's loss. Source: arXiv 2402.03300, Eq. 3.

    A reply without a token in the mask is no part of the mean.
    """
    weight_BT = mask_BT.to(torch.float32)
    length_B = weight_BT.sum(dim=1)
    num_replies = (length_B > 0).sum().clamp(min=1)
    return weight_BT / length_B.clamp(min=1).unsqueeze(1) / num_replies


def group_token_mean(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """Mean over groups of each group's token mean: Eq. 8 of arXiv 2503.14476 read to the letter.

    There the denominator stands inside the expectation over prompts. It differs from `token_mean` when groups differ
    in length: here each group weighs the same, there each token.
    """
    weight_BT = mask_BT.to(torch.float32)
    num_groups = int(group_B.max()) + 1 if group_B.numel() else 0
    tokens = weight_BT.new_zeros(num_groups).index_add_(0, group_B, weight_BT.sum(dim=1))
    present = (tokens > 0).sum().clamp(min=1)
    return weight_BT / tokens.clamp(min=1)[group_B].unsqueeze(1) / present


def constant_length(mask_BT: Tensor, group_B: Tensor, *, length: int) -> Tensor:
    """1 / (replies * a constant length): no reply's own length enters. Source: Dr. GRPO, arXiv 2503.20783, section 3.2."""
    weight_BT = mask_BT.to(torch.float32)
    num_replies = (weight_BT.sum(dim=1) > 0).sum().clamp(min=1)
    return weight_BT / (num_replies * length)


def sequence_sum(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """1 / replies for every token: the mean over replies of the sum over tokens, as RLOO has it."""
    return constant_length(mask_BT, group_B, length=1)


def micro_batch_mean(mask_BT: Tensor, group_B: Tensor, *, rows: int) -> Tensor:
    """The paper-era mean: a token mean in each run of `rows` replies, weighed by its share of the replies.

    That is what the published runs probably had: verl of that time took the token mean of each micro-batch and scaled it
    by micro-batch / mini-batch size. Tokens of different micro-batches weigh differently, so it is not the token mean of
    the paper; it stands here for people who reproduce. The runs of rows are part of the weights, so even this mean does
    not depend on how the trainer cuts the step up.
    """
    weight_BT = mask_BT.to(torch.float32)
    total = weight_BT.shape[0]
    parts = [
        part / part.sum().clamp(min=1) * (part.shape[0] / total)
        for part in torch.split(weight_BT, rows)
        if part.shape[0]
    ]
    return torch.cat(parts) if parts else weight_BT
