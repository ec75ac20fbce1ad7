"""The pure pieces from which algorithms are put together. Letters: B rows, T reply tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from dapo.algorithms.objectives import old_logprobs, watched
from dapo.algorithms.value import ADVANTAGES, Loss
from dapo.maths.losses import clipped
from dapo.maths.overlong import soft_overlong_punishment
from dapo.types import Batch, Columns, LabelledBatch, Reason, Rollout, ScoredGroup, TokenLoss


def judge_mixed(group: ScoredGroup) -> Reason:
    """Keep a group iff 0 < number correct < G: by correctness, never by the shaped reward (arXiv 2503.14476, Eq. 8)."""
    if group.num_correct == 0:
        return Reason.ALL_WRONG
    if group.num_correct == len(group.rollouts):
        return Reason.ALL_RIGHT
    return Reason.KEPT


def judge_everything(group: ScoredGroup) -> Reason:
    """Keep every group."""
    return Reason.KEPT


def no_penalty(rollout: Rollout) -> Mapping[str, float]:
    """Correctness is the whole reward."""
    return {}


def overlong_penalty(max_length: int, cache: int, factor: float) -> Callable[[Rollout], Mapping[str, float]]:
    """The reward gets a part `overlong` (arXiv 2503.14476, Eq. 13)."""

    def penalise(rollout: Rollout) -> Mapping[str, float]:
        return {"overlong": soft_overlong_punishment(rollout.length, max_length, cache, factor)}

    return penalise


def label_by_group(
    *, mask_truncated: bool, masked_in_statistics: bool, advantage: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Callable[[Batch, Columns], LabelledBatch]:
    """Give every token of a reply its group-relative advantage.

    `mask_truncated` is overlong filtering: replies that the limit ended train no token. They stay in their group's
    mean and deviation if `masked_in_statistics`, as the siblings were drawn beside them.
    """

    def label(batch: Batch, notes: Columns) -> LabelledBatch:
        masked_B = batch.truncated_B if mask_truncated else batch.truncated_B.new_zeros(batch.truncated_B.shape)
        counted_B = masked_B.new_ones(masked_B.shape) if masked_in_statistics else ~masked_B
        advantages_B = advantage(batch.rewards_B, batch.group_B, counted_B)
        trained_BT = batch.mask_BT & ~masked_B.unsqueeze(1)
        advantages_BT = advantages_B.unsqueeze(1) * trained_BT
        return LabelledBatch(batch=batch, trained_BT=trained_BT, columns={**notes, ADVANTAGES: advantages_BT})

    return label


def clipped_loss(*, clip_low: float, clip_high: float, dual_clip: float | None) -> Loss:
    """The clipped objective. Without a column `old_logprobs` the policy that sampled is the one that is updated.

    That is the case with one update a rollout: the ratio is 1 then, and its gradient is the policy gradient.
    """

    def loss(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        old_BT = old_logprobs(logprobs_BT, columns)
        terms = clipped(
            logprobs_BT, old_BT, columns[ADVANTAGES], clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
        )
        base = watched(terms)
        if dual_clip is None:
            return base
        return replace(base, watch={**base.watch, "policy/clip_dual": terms.clipped_dual_BT})

    return loss
