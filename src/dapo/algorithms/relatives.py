"""Relatives of GRPO and DAPO, each put together from the same parts. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.algorithms.parts import CommonConfig, LossMean, ReferenceConfig, weigh_by

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm


class DrGRPOConfig(CommonConfig):
    """Dr. GRPO (arXiv 2503.20783): the reward is centred, not divided by its deviation; no length enters the loss."""

    type: Literal["dr_grpo"] = "dr_grpo"
    clip: float = Field(0.2, gt=0, lt=1)
    """The ratio is held between 1 - clip and 1 + clip."""
    loss_mean: LossMean = "constant_length"
    """`constant_length` divides by replies times the limit on new tokens (section 3.2)."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms import policy
        from dapo.algorithms.value import Algorithm
        from dapo.maths.advantages import group_centred

        return Algorithm(
            needs=frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(group_centred),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=policy.clipped_loss(clip_low=self.clip, clip_high=self.clip, dual_clip=None),
            skips_zero_advantage=True,
        )


class GSPOConfig(CommonConfig):
    """GSPO (arXiv 2507.18071): one ratio for a whole reply, the geometric mean of its tokens' ratios."""

    type: Literal["gspo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0, lt=1)
    """Lower clip of the reply's ratio (section 5.1)."""
    clip_high: float = Field(4e-4, gt=0)
    """Upper clip of the reply's ratio (section 5.1)."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms.objectives import sequence_clipped_loss
        from dapo.algorithms.value import Algorithm
        from dapo.maths.advantages import group_normalised

        return Algorithm(
            needs=frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(group_normalised),
            weigh=weigh_by("sequence_mean", max_tokens=max_tokens),
            loss=sequence_clipped_loss(clip_low=self.clip_low, clip_high=self.clip_high),
            skips_zero_advantage=True,
        )


class CISPOConfig(CommonConfig):
    """CISPO (MiniMax-M1, arXiv 2506.13585): the clipped ratio weighs the policy gradient and carries none itself."""

    type: Literal["cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0, le=1)
    """The weight is held above 1 - clip_low; 1 sets no lower bound, as in the paper."""
    clip_high: float = Field(2.0, gt=0)
    """The weight is held below 1 + clip_high. The paper tunes it and names no value."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged (Eq. 4: over all tokens of the group)."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms.objectives import clipped_weight_loss
        from dapo.algorithms.value import Algorithm
        from dapo.maths.advantages import group_normalised

        return Algorithm(
            needs=frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(group_normalised),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=clipped_weight_loss(clip_low=self.clip_low, clip_high=self.clip_high),
            skips_zero_advantage=True,
        )


class RLOOConfig(CommonConfig):
    """RLOO (arXiv 2402.14740): the baseline of a reply is the mean of its siblings; plain policy gradient."""

    type: Literal["rloo"] = "rloo"
    loss_mean: LossMean = "sequence_sum"
    """How tokens are averaged; `sequence_sum` takes the log-probability of the whole reply, as in the paper."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms.objectives import reinforce_loss
        from dapo.algorithms.value import Algorithm
        from dapo.maths.advantages import leave_one_out

        return Algorithm(
            needs=frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(leave_one_out),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=reinforce_loss(),
            skips_zero_advantage=True,
        )


class ReinforcePlusPlusConfig(CommonConfig):
    """REINFORCE++ (arXiv 2501.03262): no critic; each token's reward to go, KL included, whitened over the whole step."""

    type: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    clip: float = Field(0.2, gt=0, lt=1)
    """The ratio is held between 1 - clip and 1 + clip."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged."""
    group_baseline: bool = False
    """Take the group's mean from the reward first (the paper's variant for several replies a prompt)."""
    kl_beta: float = Field(0.01, ge=0)
    """Weight of the KL to the reference in each token's reward. 0: no reference model is loaded."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    """How the KL of a token is estimated."""
    reference: ReferenceConfig = ReferenceConfig()
    """The model that the KL is measured against."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms import policy
        from dapo.algorithms.token_labels import label_by_reward_to_go
        from dapo.algorithms.value import OLD_LOGPROBS, REFERENCE_LOGPROBS, Algorithm

        uses_reference = self.kl_beta > 0
        return Algorithm(
            needs=frozenset({REFERENCE_LOGPROBS, OLD_LOGPROBS} if uses_reference else ()),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=label_by_reward_to_go(
                mask_truncated=self.overlong_filtering,
                group_baseline=self.group_baseline,
                kl_beta=self.kl_beta,
                kl_estimator=self.kl_estimator,
            ),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=policy.clipped_loss(clip_low=self.clip, clip_high=self.clip, dual_clip=None),
            reference=self.reference.build() if uses_reference else None,
        )


class ClipCovConfig(CommonConfig):
    """Clip-Cov (arXiv 2505.22617, section 4.2): a few tokens whose covariance lies within bounds get no gradient."""

    type: Literal["clip_cov"] = "clip_cov"
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Lower clip of the ratio."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip of the ratio."""
    share: float = Field(2e-4, gt=0, lt=1)
    """Share of the step's tokens whose gradient is stopped."""
    covariance_low: float = 1.0
    """Lower bound of the covariance of a token that may be chosen."""
    covariance_high: float = 5.0
    """Upper bound of the covariance of a token that may be chosen."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged."""

    def remarks(self, most_tokens: int) -> list[str]:
        """A small share of a small step is no token at all."""
        return _remarks_of_share(self.share, most_tokens)

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms.objectives import clip_cov_loss
        from dapo.algorithms.token_labels import choose_within_bounds
        from dapo.algorithms.value import OLD_LOGPROBS, Algorithm
        from dapo.maths.advantages import group_normalised

        return Algorithm(
            needs=frozenset({OLD_LOGPROBS}),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=choose_within_bounds(
                self.label_by_group(group_normalised),
                low=self.covariance_low,
                high=self.covariance_high,
                share=self.share,
            ),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=clip_cov_loss(clip_low=self.clip_low, clip_high=self.clip_high),
        )


class KLCovConfig(CommonConfig):
    """KL-Cov (arXiv 2505.22617, section 4.3): the tokens with the largest covariance pay for moving from the old policy."""

    type: Literal["kl_cov"] = "kl_cov"
    share: float = Field(2e-3, gt=0, lt=1)
    """Share of the step's tokens that pay."""
    kl_beta: float = Field(1.0, gt=0)
    """Weight of their KL to the policy that sampled."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged."""

    def remarks(self, most_tokens: int) -> list[str]:
        """A small share of a small step is no token at all."""
        return _remarks_of_share(self.share, most_tokens)

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms.objectives import kl_cov_loss
        from dapo.algorithms.token_labels import choose_largest
        from dapo.algorithms.value import OLD_LOGPROBS, Algorithm
        from dapo.maths.advantages import group_normalised

        return Algorithm(
            needs=frozenset({OLD_LOGPROBS}),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=choose_largest(self.label_by_group(group_normalised), share=self.share),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens),
            loss=kl_cov_loss(beta=self.kl_beta),
        )


def _remarks_of_share(share: float, most_tokens: int) -> list[str]:
    if share * most_tokens >= 1:
        return []
    return [
        f"algorithm.share = {share:g} of at most {most_tokens} reply tokens is less than one token: none is ever chosen. "
        f"Use {1 / most_tokens:.1g} or more, or larger steps."
    ]
