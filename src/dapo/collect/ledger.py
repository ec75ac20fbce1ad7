"""What became of every group, in numbers that balance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dapo.types import JudgedGroup, Mean, Peak, Reason, ScoredRollout, Stat, Total

Groups = tuple[JudgedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The groups of a step, each once: generated in it (`new`) or carried into it (`old`), settled or left for the next.

    A group that is left keeps the reason `kept` until the step that settles it.
    """

    new: Groups = ()
    old: Groups = ()
    new_left: Groups = ()
    old_left: Groups = ()

    @property
    def settled(self) -> Groups:
        """Those whose fate is known, the carried ones first."""
        return self.old + self.new

    @property
    def left(self) -> Groups:
        """Those that go on to the next step, the oldest first."""
        return self.old_left + self.new_left

    def stats(self) -> dict[str, Stat]:
        """Reward and length before and after the filter, and the count of groups, replies and tokens by fate."""
        generated = self.new + self.new_left
        trained = [scored for judged in self.settled if judged.reason.is_trained for scored in judged.group.rollouts]
        return {
            **_before_the_filter([scored for judged in generated for scored in judged.group.rollouts]),
            **_after_the_filter(trained),
            **self._counts(),
            "sampling/replies_generated": Total(value=sum(len(judged.group.rollouts) for judged in generated)),
            "sampling/tokens_generated": Total(value=tokens(generated)),
            "sampling/tokens_carried_in": Total(value=tokens(self.old + self.old_left)),
            "sampling/tokens_carried_out": Total(value=tokens(self.left)),
            "sampling/tokens_kept": Total(value=sum(scored.rollout.length for scored in trained)),
            "sampling/tokens_wasted": Total(
                value=tokens([judged for judged in self.settled if not judged.reason.is_trained])
            ),
        }

    def _counts(self) -> dict[str, Stat]:
        count = Counter(judged.reason for judged in self.settled)
        numbers = {
            "generated": len(self.new) + len(self.new_left),
            "carried_in": len(self.old) + len(self.old_left),
            "kept": count[Reason.KEPT] + count[Reason.CARRIED] + count[Reason.TOP_UP],
            "top_up": count[Reason.TOP_UP],
            "all_right": count[Reason.ALL_RIGHT],
            "all_wrong": count[Reason.ALL_WRONG],
            "surplus": count[Reason.SURPLUS],
            "stale": count[Reason.STALE],
            "error": count[Reason.ERROR],
            "carried_out": len(self.left),
        }
        return {f"sampling/groups_{name}": Total(value=number) for name, number in numbers.items()}


def tokens(groups: Sequence[JudgedGroup]) -> int:
    """Reply tokens of some groups."""
    return sum(scored.rollout.length for judged in groups for scored in judged.group.rollouts)


def _before_the_filter(replies: Sequence[ScoredRollout]) -> dict[str, Stat]:
    """Over every reply that was generated in the step; nothing where there was none."""
    count = len(replies)
    if not count:
        return {}
    rewards = [scored.reward for scored in replies]
    lengths = [scored.rollout.length for scored in replies]
    centre = sum(rewards) / count
    deviation = math.sqrt(sum((reward - centre) ** 2 for reward in rewards) / count)
    watched = [scored.score.disagrees for scored in replies if scored.score.disagrees is not None]
    disagreement = {"reward/disagreement": Mean(total=sum(watched), count=len(watched))} if watched else {}
    return {
        "reward/mean": Mean(total=sum(rewards), count=count),
        "reward/std": Mean(total=deviation, count=1),
        "reward/accuracy_all": Mean(total=sum(scored.score.correct for scored in replies), count=count),
        **disagreement,
        "reward/errors": Total(value=sum(scored.score.error is not None for scored in replies)),
        "length/mean": Mean(total=sum(lengths), count=count),
        "length/max": Peak(value=max(lengths)),
        "length/truncated": Mean(total=sum(scored.rollout.is_truncated for scored in replies), count=count),
    }


def _after_the_filter(replies: Sequence[ScoredRollout]) -> dict[str, Stat]:
    """Over every reply of the groups that are trained on; nothing where there is none."""
    count = len(replies)
    if not count:
        return {}
    return {
        "reward/mean_kept": Mean(total=sum(scored.reward for scored in replies), count=count),
        "reward/accuracy_kept": Mean(total=sum(scored.score.correct for scored in replies), count=count),
        "length/mean_kept": Mean(total=sum(scored.rollout.length for scored in replies), count=count),
    }
