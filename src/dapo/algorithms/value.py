"""An algorithm is a value: a few functions and what they need. Nothing in the loop or the trainer asks for its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dapo.types import Batch, Columns, LabelledBatch, Reason, Rollout, ScoredGroup, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor

ADVANTAGES = "advantages"
OLD_LOGPROBS = "old_logprobs"

Weigh = Callable[["Tensor", "Tensor"], "Tensor"]
Loss = Callable[["Tensor", Columns], TokenLoss]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What to do at each place where algorithms differ.

    needs     names of the columns that only the trainer can compute, asked of `Trainer.annotate`
    judge     group -> the reason for which it is kept or not (dynamic sampling)
    penalise  reply -> named parts of the reward beside correctness, e.g. `{"overlong": -0.5}`
    label     batch and annotated columns -> the tokens that train, and their advantages
    weigh     (trained_BT, group_B) -> weight_BT, the whole of the normalisation
    loss      (logprobs_BT, columns) -> loss of each token, before any mean
    """

    needs: frozenset[str]
    judge: Callable[[ScoredGroup], Reason]
    penalise: Callable[[Rollout], Mapping[str, float]]
    label: Callable[[Batch, Columns], LabelledBatch]
    weigh: Weigh
    loss: Loss
