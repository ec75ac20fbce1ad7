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
"""Of the policy that sampled; from the trainer, or from the engine."""
REFERENCE_LOGPROBS = "reference_logprobs"
"""Of the frozen reference."""
VALUES = "values"
"""The critic's, before the step's updates."""
RETURNS = "returns"
"""What the critic is to learn."""
CHOSEN = "chosen"
"""1 on tokens that an algorithm treats apart."""
TRAINED = "trained"
"""1 on tokens that train. The trainer adds it to the columns that a loss reads."""

Weigh = Callable[["Tensor", "Tensor"], "Tensor"]
Loss = Callable[["Tensor", Columns], TokenLoss]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """A critic: its loss (values_BT, columns) -> TokenLoss, and how it is trained. See `dapo.algorithms.ppo.CriticConfig`."""

    loss: Loss
    shares_backbone: bool = False
    learning_rate: float = 1e-5
    coefficient: float = 0.5
    warmup_updates: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """A frozen reference; it takes over the policy after every `refresh_updates` updates, or never."""

    refresh_updates: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What to do at each place where algorithms differ.

    needs     names of the columns that only the trainer can compute, asked of `Trainer.annotate`
    judge     group -> the reason for which it is kept or not (dynamic sampling)
    penalise  reply -> named parts of the reward beside correctness, e.g. `{"overlong": -0.5}`
    label     batch and annotated columns -> the tokens that train, and their advantages
    weigh     (trained_BT, group_B) -> weight_BT, the whole of the normalisation
    loss      (logprobs_BT, columns) -> loss of each token, before any mean
    critic    settings of the critic that the trainer keeps beside the policy, if the algorithm has one
    reference settings of the frozen reference that the trainer keeps, if the algorithm has one
    skips_zero_advantage  whether a reply of advantage 0 throughout has no gradient, so that the trainer may leave it out;
              its tokens stay in the weights' denominator
    """

    needs: frozenset[str]
    judge: Callable[[ScoredGroup], Reason]
    penalise: Callable[[Rollout], Mapping[str, float]]
    label: Callable[[Batch, Columns], LabelledBatch]
    weigh: Weigh
    loss: Loss
    critic: CriticSettings | None = None
    reference: ReferenceSettings | None = None
    skips_zero_advantage: bool = False
