"""How a reply becomes a score: DAPO's rule, and the rules that read an answer out of a reply.

Every rule is a pure function `(reply text, gold) -> (correct, extracted)`; `RULES` names them for the recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dapo.tasks.integers import canonical_integer, final_integer
from dapo.types import Finish, Rollout, Score

__all__ = ["ENGINE_FAILED", "RULES", "Rule", "exact", "final_integer", "integer", "judge", "rule_score", "unjudged"]

Rule = Callable[[str, str], tuple[bool, str | None]]
"""Takes the text of a reply and the gold answer; returns whether it is right and the answer that was read."""

ENGINE_FAILED = "the engine failed before the reply was complete"


def rule_score(correct: bool, extracted: str | None, error: str | None = None) -> Score:
    """Score by DAPO's rule: +1 for a right answer and -1 for any other (arXiv 2503.14476, Eq. 7)."""
    return Score(correct=correct, reward=1.0 if correct else -1.0, extracted=extracted, error=error)


def integer(reply: str, gold: str) -> tuple[bool, str | None]:
    """Compare the integer that the reply ends on with the gold by value, whatever their number of digits."""
    found = final_integer(reply)
    return found is not None and found == canonical_integer(gold), found


def exact(reply: str, gold: str) -> tuple[bool, str | None]:
    """Compare the whole reply with the gold, without the white space around them. An empty reply is never right."""
    found = reply.strip()
    return found != "" and found == gold.strip(), found or None


RULES: Mapping[str, Rule] = MappingProxyType({"integer": integer, "exact": exact})
"""The rules by the name that a recipe's `match` gives."""


def unjudged(rollout: Rollout) -> Score | None:
    """Return the score of a reply that never came to its end, or None where there is an ending to judge.

    A truncated reply is wrong whatever it holds: where it was cut off, the last number is a step on the way and no
    answer, and paying for it would teach the policy to scatter numbers.
    """
    if rollout.finish is Finish.LENGTH:
        return rule_score(False, None)
    if rollout.finish is Finish.ERROR:
        return rule_score(False, None, error=ENGINE_FAILED)
    return None


def judge(rollout: Rollout, gold: str, rule: Rule) -> Score:
    """Score one reply by a rule; a truncated or failed one is wrong without being read."""
    return unjudged(rollout) or rule_score(*rule(rollout.text, gold))
