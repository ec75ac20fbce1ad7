"""DAPO's config. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.algorithms.parts import CommonConfig, DynamicSampling, LossMean, SoftOverlong, weigh_by

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm


class DAPOConfig(CommonConfig):
    """DAPO (arXiv 2503.14476): decoupled clip, dynamic sampling, token-level loss, soft overlong punishment, no KL."""

    type: Literal["dapo"] = "dapo"
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Lower clip: the ratio is held above 1 - clip_low."""
    clip_high: float = Field(0.28, gt=0)
    """Upper clip: the ratio is held below 1 + clip_high. Above clip_low it is clip-higher (section 3.1)."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound c > 1 on the loss of tokens with a negative advantage (arXiv 1912.09729). Off, as in the paper."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged; `token_mean` is the paper's token-level loss over the whole optimizer step."""
    micro_batch_rows: int = Field(1, ge=1)
    """For `micro_batch_mean` alone: replies in each run of rows that is averaged by itself."""
    dynamic_sampling: DynamicSampling = DynamicSampling()
    """Replace groups that are all right or all wrong (section 3.2)."""
    soft_overlong: SoftOverlong = SoftOverlong()
    """Punish replies that come near the limit (section 3.4)."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        from dapo.algorithms import policy
        from dapo.algorithms.value import Algorithm
        from dapo.maths.advantages import group_normalised

        return Algorithm(
            needs=frozenset(),
            judge=self.judge(),
            penalise=self.penalise(max_tokens),
            label=self.label_by_group(group_normalised),
            weigh=weigh_by(self.loss_mean, max_tokens=max_tokens, micro_batch_rows=self.micro_batch_rows),
            loss=policy.clipped_loss(clip_low=self.clip_low, clip_high=self.clip_high, dual_clip=self.dual_clip),
            skips_zero_advantage=True,
        )
