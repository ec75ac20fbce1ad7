"""What the configs of several algorithms have in common. No torch until something is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.errors import ConfigError
from dapo.frozen import Frozen

if TYPE_CHECKING:
    from torch import Tensor

    from dapo.algorithms.value import ReferenceSettings, Weigh
    from dapo.types import Batch, Columns, LabelledBatch, Reason, Rollout, ScoredGroup

LossMean = Literal[
    "token_mean", "group_token_mean", "sequence_mean", "sequence_sum", "constant_length", "micro_batch_mean"
]


class DynamicSampling(Frozen):
    """Draw prompts until the step has its groups with both right and wrong replies (arXiv 2503.14476, section 3.2)."""

    enabled: bool = True
    """Off: every generated group is trained on."""
    max_rounds: int = Field(10, ge=1)
    """A step draws at most so many rounds of prompts, of `groups_per_step` x `oversample` each (the authors' script: 10)."""
    oversample: float = Field(1.0, ge=1.0, le=16.0)
    """Prompts under way at first, and at least, for each group that is still wanted (the authors' script: 3)."""
    max_groups: int | None = Field(None, ge=1)
    """Also draw at most so many prompts in a step."""
    max_tokens: int | None = Field(None, ge=1)
    """Also draw no more prompts in a step once its judged groups hold so many reply tokens."""
    when_short: Literal["train_partial", "error", "carry_over", "top_up"] = "train_partial"
    """What becomes of a step that these limits end before it has its groups. `train_partial`: it trains on what it has.
    `error`: the run ends. `carry_over`: it trains nothing, and the next step goes on from its groups. `top_up`: groups
    that are all right or all wrong fill it, with advantage 0. At the end of the data it always trains on what it has."""
    max_staleness: int = Field(0, ge=0)
    """Groups beyond those a step trains on go to the next, unless they are more than so many optimizer updates behind the
    policy by then. 0: they are dropped."""


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


class ReferenceConfig(Frozen):
    """The frozen model that a KL is measured against: the policy as it was at the start, unless it is refreshed."""

    refresh_updates: int | None = Field(None, ge=1)
    """Take over the policy as the new reference after every so many optimizer updates."""

    def build(self) -> ReferenceSettings:
        """Make the settings that the trainer is handed."""
        from dapo.algorithms.value import ReferenceSettings

        return ReferenceSettings(refresh_updates=self.refresh_updates)


class CommonConfig(Frozen):
    """What every algorithm's config has: which groups and replies train, and the length part of the reward."""

    dynamic_sampling: DynamicSampling = DynamicSampling(enabled=False)
    """Replace groups that are all right or all wrong. Off: every group is trained on."""
    overlong_filtering: bool = False
    """Do not train on replies that the limit ended. By finish reason; they leave numerator and denominator."""
    overlong_in_statistics: bool = True
    """Whether filtered replies stay in the mean and deviation of their group's rewards."""
    soft_overlong: SoftOverlong = SoftOverlong(enabled=False)
    """Punish replies that come near the limit. Off: correctness is the whole reward."""

    def remarks(self, most_tokens: int) -> list[str]:
        """What is allowed here and may not do what is meant. `most_tokens`: reply tokens of a step, at most."""
        return []

    def judge(self) -> Callable[[ScoredGroup], Reason]:
        """Which groups are kept."""
        from dapo.algorithms import policy

        return policy.judge_mixed if self.dynamic_sampling.enabled else policy.judge_everything

    def penalise(self, max_tokens: int) -> Callable[[Rollout], Mapping[str, float]]:
        """The parts of the reward beside correctness."""
        from dapo.algorithms import policy

        if not self.soft_overlong.enabled:
            return policy.no_penalty
        return policy.overlong_penalty(*self.soft_overlong.resolve(max_tokens))

    def label_by_group(
        self, advantage: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Callable[[Batch, Columns], LabelledBatch]:
        """Every token of a reply gets its group-relative advantage."""
        from dapo.algorithms import policy

        return policy.label_by_group(
            mask_truncated=self.overlong_filtering,
            masked_in_statistics=self.overlong_in_statistics,
            advantage=advantage,
        )


def weigh_by(loss_mean: LossMean, *, max_tokens: int, micro_batch_rows: int = 1) -> Weigh:
    """The mean over tokens that a recipe names."""
    from dapo.maths import weights

    means: dict[LossMean, Weigh] = {
        "token_mean": weights.token_mean,
        "group_token_mean": weights.group_token_mean,
        "sequence_mean": weights.sequence_mean,
        "sequence_sum": weights.sequence_sum,
        "constant_length": partial(weights.constant_length, length=max_tokens),
        "micro_batch_mean": partial(weights.micro_batch_mean, rows=micro_batch_rows),
    }
    return means[loss_mean]
