"""What goes into a verifier and what comes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

VerifierName = Literal["math", "dapo"]
"""`math`: is the final answer equal to the gold? `dapo`: the rule of the DAPO authors, for reproduction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response to grade against its gold answer. `truncated` says that a limit ended it."""

    response: str
    gold: str
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The verdict on one reply.

    `extracted` is the final answer that was read, None where there is none. `why` is the reason in words.
    `error` says that the verifier itself failed (time, memory, an exception); the reply then counts as wrong.
    `watched` is what a second, watching verifier said; None without one.
    """

    correct: bool
    extracted: str | None
    why: str
    error: str | None = None
    watched: bool | None = None

    @property
    def disagrees(self) -> bool:
        """Whether the watching verifier said otherwise."""
        return self.watched is not None and self.watched != self.correct


def disagreement_rate(grades: Iterable[Grade]) -> float:
    """The share of watched grades on which the two verifiers differ; 0 where none was watched."""
    watched = [grade for grade in grades if grade.watched is not None]
    return sum(grade.disagrees for grade in watched) / len(watched) if watched else 0.0
