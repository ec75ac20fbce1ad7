"""How much to collect, and how many prompts to have under way. Pure: outcomes in, numbers out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dapo.types import KeptShare, Sampling

WhenShort = Literal["train_partial", "error", "carry_over", "top_up"]

_FIRST_GUESS = 4.0
"""How many groups the first guess of the share that is kept counts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPlan:
    """How much to collect in a step, and when to give up.

    groups: to train on. max_rounds: caps the prompts of a step, a round being `groups * oversample` prompts. max_groups
    and max_tokens cap them too: groups generated, and reply tokens of groups that are judged. max_staleness: optimizer
    updates that a group left over may be behind; 0 carries none. when_short: what becomes of a step that a cap ends.
    scoring_seconds: a scorer that gives nothing back for so long is given up. judging_seconds: the engine waits so long at
    most for groups that it has handed out to be judged.
    """

    groups: int
    group_size: int
    sampling: Sampling
    seed: int
    max_rounds: int = 1
    oversample: float = 1.0
    max_groups: int | None = None
    max_tokens: int | None = None
    max_staleness: int = 0
    when_short: WhenShort = "train_partial"
    scoring_seconds: float = 300.0
    judging_seconds: float = 0.5

    @property
    def round(self) -> int:
        """Prompts of one round."""
        return math.ceil(self.groups * self.oversample)

    @property
    def most_groups(self) -> int:
        """The most groups that a step may generate."""
        most = self.max_rounds * self.round
        return most if self.max_groups is None else min(most, self.max_groups)


def prompts_under_way(plan: CollectPlan, share: KeptShare, *, missing: int, judged: int, kept: int) -> int:
    """How many prompts to have under way beyond the judged ones: what is missing, times what a kept group costs.

    The cost is one over the share that is kept, judged by this step so far and by the steps before, and at least
    `oversample`, which is the first guess. There are at most four times a step's groups under way, so that hard problems
    do not draw without bound.
    """
    if missing <= 0:
        return 0
    expected = (share.kept + kept + _FIRST_GUESS / plan.oversample) / (share.judged + judged + _FIRST_GUESS)
    cost = max(plan.oversample, 1 / expected)
    return min(math.ceil(round(missing * cost, 6)), math.ceil(max(4.0, plan.oversample) * plan.groups))
