"""GRPO's config. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.algorithms.parts import CommonConfig, LossMean, ReferenceConfig, weigh_by

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm


class GRPOConfig(CommonConfig):
    """GRPO (arXiv 2402.03300): symmetric clip, mean per reply, every group kept, KL to a frozen reference in the loss."""

    type: Literal["grpo"] = "grpo"
    clip: float = Field(0.2, gt=0, lt=1)
    """The ratio is held between 1 - clip and 1 + clip."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound c > 1 on the loss of tokens with a negative advantage (arXiv 1912.09729). Off, as in the paper."""
    loss_mean: LossMean = "sequence_mean"
    """How tokens are averaged; `sequence_mean` is the mean over replies of each reply's mean."""
    kl_beta: float = Field(0.04, ge=0)
    """Weight of the KL term in the loss (the paper: 0.04). 0: no reference model is loaded at all."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the KL of a token is estimated; k3 is the paper's (Eq. 4)."""
    reference: ReferenceConfig = ReferenceConfig()
    """The model that the KL is measured against."""

    def remarks(self, most_tokens: int) -> list[str]:
        """k1 as a loss term holds nothing."""
        if self.kl_beta == 0 or self.kl_estimator != "k1":
            return []
        return [
            'algorithm.kl_estimator = "k1" in the loss: its gradient is the same wherever the policy is, and 0 on average, so '
            'it does not hold the policy near the reference. Use "k3" (the paper\'s) or "k2".'
        ]

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms import policy
        from dapo.algorithms.objectives import with_kl
        from dapo.algorithms.value import REFERENCE_LOGPROBS, Algorithm
        from dapo.maths.advantages import group_normalised

        loss = policy.clipped_loss(clip_low=self.clip, clip_high=self.clip, dual_clip=self.dual_clip)
        uses_reference = self.kl_beta > 0
        return Algorithm(
            needs=frozenset({REFERENCE_LOGPROBS}) if uses_reference else frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(group_normalised),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=with_kl(loss, beta=self.kl_beta, estimator=self.kl_estimator) if uses_reference else loss,
            reference=self.reference.build() if uses_reference else None,
            skips_zero_advantage=not uses_reference,  # a KL pulls on every reply
        )
