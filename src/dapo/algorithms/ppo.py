"""PPO's config. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.algorithms.parts import CommonConfig, LossMean, ReferenceConfig, weigh_by
from dapo.frozen import Frozen

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm, CriticSettings


class CriticConfig(Frozen):
    """The model of the value of a state: a scalar head on a backbone."""

    backbone: Literal["own", "shared"] = "own"
    """`own`: a copy of the policy's backbone. `shared`: the policy's itself, which then gets both gradients."""
    learning_rate: float = Field(1e-5, gt=0)
    """AdamW's rate for the critic (with `shared`, for its head)."""
    clip: float = Field(0.2, ge=0)
    """The value is held this near to the old one in one branch of the loss. 0: plain squared error."""
    coefficient: float = Field(0.5, gt=0)
    """Weight of the value loss against the policy's, where the backbone is shared."""
    warmup_updates: int = Field(0, ge=0)
    """Optimizer updates in which the critic alone is trained, before the policy's first."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decoupled weight decay for the critic."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The critic's gradient is scaled down to this norm."""

    def build(self) -> CriticSettings:
        """Make the settings that the trainer is handed."""
        from dapo.algorithms.objectives import value_loss
        from dapo.algorithms.value import CriticSettings

        return CriticSettings(
            loss=value_loss(clip=self.clip or None),
            shares_backbone=self.backbone == "shared",
            learning_rate=self.learning_rate,
            coefficient=self.coefficient,
            warmup_updates=self.warmup_updates,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )


class PPOConfig(CommonConfig):
    """PPO (arXiv 1707.06347) as this field runs it: a critic, GAE, clipped policy and value losses."""

    type: Literal["ppo"] = "ppo"
    clip: float = Field(0.2, gt=0, lt=1)
    """The ratio is held between 1 - clip and 1 + clip."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound c > 1 on the loss of tokens with a negative advantage (arXiv 1912.09729)."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged, in the policy's loss and in the critic's."""
    discount: float = Field(1.0, gt=0, le=1)
    """Gamma: what a reward is worth one token earlier."""
    decay: float = Field(0.95, ge=0, le=1)
    """Lambda of GAE (arXiv 1506.02438): 1 is the return minus the value, 0 the one-step error."""
    whiten_advantages: bool = True
    """Bring the step's advantages to mean 0 and deviation 1."""
    kl_beta: float = Field(0.0, ge=0)
    """Weight of the KL to the reference in each token's reward. 0: no reference model is loaded."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    """How the KL of a token is estimated."""
    reference: ReferenceConfig = ReferenceConfig()
    """The model that the KL is measured against."""
    critic: CriticConfig = CriticConfig()
    """The model of the values."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms import policy
        from dapo.algorithms.token_labels import label_by_critic
        from dapo.algorithms.value import OLD_LOGPROBS, REFERENCE_LOGPROBS, VALUES, Algorithm

        uses_reference = self.kl_beta > 0
        return Algorithm(
            needs=frozenset({VALUES} | ({REFERENCE_LOGPROBS, OLD_LOGPROBS} if uses_reference else set())),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=label_by_critic(
                mask_truncated=self.overlong_filtering,
                discount=self.discount,
                decay=self.decay,
                whiten=self.whiten_advantages,
                kl_beta=self.kl_beta,
                kl_estimator=self.kl_estimator,
            ),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=policy.clipped_loss(clip_low=self.clip, clip_high=self.clip, dual_clip=self.dual_clip),
            critic=self.critic.build(),
            reference=self.reference.build() if uses_reference else None,
        )
