"""The recipe's `[algorithm]` section: one class an algorithm, with its vetted defaults. No torch until `build`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dapo.errors import ConfigError
from dapo.frozen import Frozen

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm

LossMean = Literal["token_mean", "group_token_mean", "sequence_mean", "constant_length"]


class DynamicSampling(Frozen):
    """Draw prompts until the step has its groups with both right and wrong replies (arXiv 2503.14476, section 3.2)."""

    enabled: bool = True
    """Off: every generated group is trained on."""
    max_rounds: int = Field(10, ge=1)
    """Generation rounds in a step before it is closed with what it has (the authors' script: 10)."""
    oversample: float = Field(1.0, ge=1.0, le=16.0)
    """Prompts drawn in a round, as a multiple of the groups that are still wanted (the authors' script: 3)."""


class SoftOverlong(Frozen):
    """The length part of the reward (arXiv 2503.14476, Eq. 13)."""

    enabled: bool = True
    """Off: correctness is the whole reward, and the other fields are not looked at."""
    max_length: int | None = Field(None, ge=2)
    """Lmax, in tokens. Default: the limit on new tokens, `batch.max_tokens`."""
    cache: int | None = Field(None, ge=1)
    """Lcache, in tokens: the width of the slope below Lmax. Default: a fifth of Lmax, as the paper's 4096 of 20480."""
    factor: float = Field(1.0, gt=0)
    """The punishment at Lmax and beyond."""

    def resolve(self, max_tokens: int) -> tuple[int, int, float]:
        """Return (Lmax, Lcache, factor) for a limit of `max_tokens` new tokens. Raises ConfigError if Lcache >= Lmax."""
        max_length = self.max_length if self.max_length is not None else max_tokens
        cache = self.cache if self.cache is not None else max(1, max_length // 5)
        if cache >= max_length:
            raise ConfigError(
                f"algorithm.soft_overlong.cache = {cache} leaves no length unpunished: the slope would begin at "
                f"max_length - cache = {max_length - cache} tokens. Use a cache below max_length ({max_length}), "
                "e.g. a fifth of it, or soft_overlong.enabled = false."
            )
        return max_length, cache, self.factor


class _GroupRelative(Frozen):
    """What algorithms with a group-relative advantage have in common."""

    dual_clip: float | None = Field(None, gt=1)
    """Bound c > 1 on the loss of tokens with a negative advantage (arXiv 1912.09729). Off by default, as in the papers."""
    dynamic_sampling: DynamicSampling = DynamicSampling()
    """Replace groups that are all right or all wrong."""
    overlong_filtering: bool = False
    """Do not train on replies that the limit ended. By finish reason; they leave numerator and denominator."""
    overlong_in_statistics: bool = True
    """Whether filtered replies stay in the mean and deviation of their group's rewards."""
    soft_overlong: SoftOverlong = SoftOverlong()
    """Punish replies that come near the limit."""

    def _assemble(self, *, clip_low: float, clip_high: float, loss_mean: LossMean, max_tokens: int) -> Algorithm:
        from dapo.algorithms import policy
        from dapo.algorithms.value import Algorithm, Weigh
        from dapo.maths import weights

        means: dict[LossMean, Weigh] = {
            "token_mean": weights.token_mean,
            "group_token_mean": weights.group_token_mean,
            "sequence_mean": weights.sequence_mean,
            "constant_length": partial(weights.constant_length, length=max_tokens),
        }
        soft = self.soft_overlong
        return Algorithm(
            needs=frozenset(),
            judge=policy.judge_mixed if self.dynamic_sampling.enabled else policy.judge_everything,
            penalise=policy.overlong_penalty(*soft.resolve(max_tokens)) if soft.enabled else policy.no_penalty,
            label=policy.label_by_group(
                mask_truncated=self.overlong_filtering,
                masked_in_statistics=self.overlong_in_statistics,
                advantage=policy.GROUP_NORMALISED,
            ),
            weigh=means[loss_mean],
            loss=policy.clipped_loss(clip_low=clip_low, clip_high=clip_high, dual_clip=self.dual_clip),
        )


class DAPOConfig(_GroupRelative):
    """DAPO (arXiv 2503.14476): decoupled clip, dynamic sampling, token-level loss, soft overlong punishment, no KL."""

    type: Literal["dapo"] = "dapo"
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Lower clip: the ratio is held above 1 - clip_low."""
    clip_high: float = Field(0.28, gt=0)
    """Upper clip: the ratio is held below 1 + clip_high. Above clip_low it is clip-higher (section 3.1)."""
    loss_mean: LossMean = "token_mean"
    """How tokens are averaged; `token_mean` is the paper's token-level loss over the whole optimizer step."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        return self._assemble(
            clip_low=self.clip_low, clip_high=self.clip_high, loss_mean=self.loss_mean, max_tokens=max_tokens
        )


class GRPOConfig(_GroupRelative):
    """GRPO (arXiv 2402.03300): symmetric clip, mean per reply, every group kept."""

    type: Literal["grpo"] = "grpo"
    clip: float = Field(0.2, gt=0, lt=1)
    """The ratio is held between 1 - clip and 1 + clip."""
    loss_mean: LossMean = "sequence_mean"
    """How tokens are averaged; `sequence_mean` is the mean over replies of each reply's mean."""
    dynamic_sampling: DynamicSampling = DynamicSampling(enabled=False)
    """Off: groups without a signal stay in the batch, with advantage 0."""
    soft_overlong: SoftOverlong = SoftOverlong(enabled=False)
    """Off: correctness is the whole reward."""

    def build(self, max_tokens: int) -> Algorithm:
        """Make the value that the loop and the trainer are handed."""
        return self._assemble(clip_low=self.clip, clip_high=self.clip, loss_mean=self.loss_mean, max_tokens=max_tokens)


AlgorithmConfig = Annotated[DAPOConfig | GRPOConfig, Field(discriminator="type")]
