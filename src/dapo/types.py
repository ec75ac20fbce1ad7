"""The values that flow, in the order in which they are made. Each stage returns a new one; none is filled in later.

    Problem ─► Prompt ─► RolloutGroup ─► ScoredGroup ─► JudgedGroup ─► Batch ─► Minibatch ─► Update
      task      render      engine          task          collect       └────── batching ──┘   trainer

Shape letters: B rows (replies), T reply tokens, G replies of one group, V vocabulary. A row's prompt is no part
of T: every per-token tensor covers reply positions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The policy wrote an end token."""
    LENGTH = "length"
    """The limit on new tokens was reached first: the reply is truncated."""
    ERROR = "error"
    """The engine failed; the reply is not to be trained on."""


class Reason(StrEnum):
    """Why a generated group was or was not trained on."""

    KEPT = "kept"
    ALL_RIGHT = "all_right"
    ALL_WRONG = "all_wrong"
    SURPLUS = "surplus"
    """It could have been trained on, and the step was full."""
    CARRIED = "carried"
    """Surplus of an earlier step, trained on in this one."""
    STALE = "stale"
    """Surplus of an earlier step, by now too old to train on."""
    TOP_UP = "top_up"
    """All right or all wrong, and trained on with advantage 0 to fill a step that was short."""
    ERROR = "error"

    @property
    def is_trained(self) -> bool:
        """Whether a group with this reason is trained on."""
        return self in (Reason.KEPT, Reason.CARRIED, Reason.TOP_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message, e.g. `Message(role="user", content="What is 7 * 8?")`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a task asks, before any tokenizer has seen it.

    Example: `Problem(id="mul-7-8", messages=(Message(role="user", content="What is 7 * 8?"),), answer="56")`.
    `answer` is text, so that an integer of any size keeps its digits. `info` is for the task's own scorer.
    """

    id: str
    messages: tuple[Message, ...]
    answer: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the policy reads it: the chat template applied once, and its token ids."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an engine draws tokens. `top_p`, `top_k` and `min_p` other than these are for evaluation only.

    `temperature` 0 is greedy. `max_tokens` counts new tokens, the end token among them.
    """

    temperature: float = 1.0
    max_tokens: int
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One reply: what follows the prompt, token by token.

    `mask` is true where the policy wrote the token (a tool's output would be false); it is never guessed from
    ids. `logprobs` are those of the distribution that was sampled from (temperature included), 0.0 where the mask
    is false. `text` has no end marker; tags such as `<think>` stay.
    """

    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: Finish
    policy_version: int

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.mask) == len(self.logprobs):
            raise AssertionError(
                f"a rollout of {len(self.token_ids)} tokens has {len(self.mask)} mask entries "
                f"and {len(self.logprobs)} log-probabilities"
            )

    @property
    def length(self) -> int:
        """The number of its token ids."""
        return len(self.token_ids)

    @property
    def is_truncated(self) -> bool:
        """Whether the limit ended it, by its finish reason and never by its width."""
        return self.finish is Finish.LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The G replies to one prompt."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a task thinks of one reply.

    `reward` is the correctness part of the reward (DAPO's rule: +1 right, -1 wrong). `extracted` is the answer that
    was read out of the reply, if any. `error` says that the scorer itself failed; the reply then counts as wrong.
    `disagrees` says whether a second scorer, which only watches, saw it otherwise; None where none watches.
    """

    correct: bool
    reward: float
    extracted: str | None = None
    error: str | None = None
    disagrees: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A reply with its score. The reward is the sum of named parts, e.g. `{"correctness": 1.0, "overlong": -0.25}`."""

    rollout: Rollout
    score: Score
    parts: Mapping[str, float]

    @property
    def reward(self) -> float:
        """The shaped reward: the sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The G scored replies to one prompt."""

    prompt: Prompt
    rollouts: tuple[ScoredRollout, ...]

    @property
    def num_correct(self) -> int:
        """How many replies are right; what dynamic sampling looks at."""
        return sum(scored.score.correct for scored in self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGroup:
    """A generated group and what became of it. `name` is `"STEP-NUMBER"`, e.g. `"12-0007"`."""

    name: str
    group: ScoredGroup
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean that adds up over micro-batches and ranks: `total / count`, 0 where nothing was counted."""

    total: float
    count: float

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else 0.0

    def __add__(self, other: Mean) -> Mean:
        return Mean(total=self.total + other.total, count=self.count + other.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A maximum that adds up."""

    value: float

    def __add__(self, other: Peak) -> Peak:
        return Peak(value=max(self.value, other.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum that adds up."""

    value: float

    def __add__(self, other: Total) -> Total:
        return Total(value=self.value + other.value)


Stat = Mean | Peak | Total
Stats = Mapping[str, Stat]


def merge_stats(*many: Stats) -> dict[str, Stat]:
    """Add statistics by name. Every statistic knows how it adds, so no metric needs a reduction of its own."""
    merged: dict[str, Stat] = {}
    for stats in many:
        for name, stat in stats.items():
            before = merged.get(name)
            if before is None:
                merged[name] = stat
            elif type(before) is type(stat):
                merged[name] = before + stat  # type: ignore[operator]
            else:
                raise AssertionError(f"{name} is a {type(before).__name__} here and a {type(stat).__name__} there")
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptShare:
    """How many of the groups that were judged in the steps before could be trained on; a step back counts half."""

    kept: float = 0.0
    judged: float = 0.0

    def after(self, kept: int, judged: int) -> KeptShare:
        """The same after one more step."""
        return KeptShare(kept=self.kept / 2 + kept, judged=self.judged / 2 + judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What one step's sampling leaves to the next: groups to train on there, the oldest first, and the share kept."""

    groups: tuple[JudgedGroup, ...] = ()
    share: KeptShare = KeptShare()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a step's sampling brought: every group whose fate is settled, with its reason, and what was counted.

    Groups from earlier steps come first, then those of this step in prompt order. What goes on to the next step is in
    `left` and not in `groups`.
    """

    groups: tuple[JudgedGroup, ...]
    stats: Stats
    left: Inherited = Inherited()

    @property
    def kept(self) -> tuple[ScoredGroup, ...]:
        """The groups to train on: those carried over first, then in prompt order."""
        return tuple(judged.group for judged in self.groups if judged.reason.is_trained)


Columns = Mapping[str, "Tensor"]
"""Named per-token tensors of shape [B, T]; what an algorithm's label made and its loss reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The replies of one rollout step as tensors; rows in group order, T the longest reply.

    mask_BT: true where the policy wrote the token. lengths_B: tokens of each reply; what lies beyond is padding.
    sampled_logprobs_BT: the engine's. rewards_B: shaped. group_B: number of the row's group. truncated_B: ended by
    the limit, by finish reason. version_B: the policy version that wrote the row.
    """

    prompt_ids: tuple[tuple[int, ...], ...]
    tokens_BT: Tensor
    mask_BT: Tensor
    lengths_B: Tensor
    sampled_logprobs_BT: Tensor
    rewards_B: Tensor
    group_B: Tensor
    truncated_B: Tensor
    version_B: Tensor

    @property
    def num_rows(self) -> int:
        return len(self.prompt_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledBatch:
    """A batch with what the algorithm says of it.

    trained_BT: the tokens that train (a masked reply has none), in numerator and denominator alike. `columns` holds
    `advantages` and whatever else the loss reads, each [B, T]. `stats` is what labelling measured.
    """

    batch: Batch
    trained_BT: Tensor
    columns: Columns
    stats: Stats = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """The rows of one optimizer step. `weight_BT` holds all normalisation: nothing divides after it.

    loss of the step = sum over all micro-batches and ranks of (weight_BT * loss_BT).sum()
    """

    prompt_ids: tuple[tuple[int, ...], ...]
    tokens_BT: Tensor
    lengths_B: Tensor
    version_B: Tensor
    sampled_logprobs_BT: Tensor
    trained_BT: Tensor
    weight_BT: Tensor
    columns: Columns

    @property
    def num_rows(self) -> int:
        return len(self.prompt_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """An algorithm's loss before any mean, with what to watch: tensors [B, T] by metric name.

    `watch` is averaged over the tokens that train, `peaks` gives their maximum.
    """

    loss_BT: Tensor
    watch: Mapping[str, Tensor]
    peaks: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer step: the version of the policy after it, and what was measured.

    `is_skipped` says that a loss or gradient was not finite, so that nothing was updated and the version stayed;
    `suspect_rows` are then the rows of the minibatch at which it was seen.
    """

    policy_version: int
    stats: Stats
    is_skipped: bool = False
    suspect_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The only thing that flows back: a version of the policy, as tensors by name or as a folder of safetensors."""

    policy_version: int
    source: Mapping[str, Tensor] | Path
