"""What can be wrong with a row, what is done about it, and the report that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Action(StrEnum):
    """What a clean-up does about a finding."""

    MEND = "mend"
    """The row stays, put right; there is one right reading and the report holds both."""
    DROP = "drop"
    """The row leaves."""
    REPORT = "report"
    """The row stays as it is; a person may want to look."""


class Kind(StrEnum):
    """What can be wrong."""

    UNREADABLE_ROW = "unreadable_row"
    EMPTY_PROMPT = "empty_prompt"
    CONTROL_CHARACTER = "control_character"
    DOUBLED_BACKSLASH = "doubled_backslash"
    GLUED_SENTENCE = "glued_sentence"
    CONFLICTING_INSTRUCTION = "conflicting_instruction"
    SHORT_PROMPT = "short_prompt"
    LONG_PROMPT = "long_prompt"
    PROMPT_OVER_LIMIT = "prompt_over_limit"
    MISSING_FIGURE = "missing_figure"
    MULTIPLE_CHOICE = "multiple_choice"
    POSSIBLE_CHOICE = "possible_choice"
    OTHER_SCRIPT = "other_script"
    MISSING_ANSWER = "missing_answer"
    ANSWER_FORM = "answer_form"
    NOT_AN_INTEGER = "not_an_integer"
    SEVERAL_ANSWERS = "several_answers"
    STORED_AS_FLOAT = "stored_as_float"
    DAMAGED_BY_FLOAT = "damaged_by_float"
    BIG_ANSWER = "big_answer"
    SENTINEL_ANSWER = "sentinel_answer"
    KNOWN_KEY = "known_key"
    HAS_DUPLICATES = "has_duplicates"
    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    CONFLICTING_ANSWERS = "conflicting_answers"
    SIMILAR_CONFLICT = "similar_conflict"
    CONTAMINATED = "contaminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done where mending would be a guess, and what the kind means in a few words."""

    otherwise: Action
    meaning: str


def _policy(otherwise: Action, meaning: str) -> Policy:
    return Policy(otherwise=otherwise, meaning=meaning)


POLICY: Mapping[Kind, Policy] = MappingProxyType(
    {
        Kind.UNREADABLE_ROW: _policy(Action.DROP, "no prompt can be read from the row"),
        Kind.EMPTY_PROMPT: _policy(Action.DROP, "the problem has no text"),
        Kind.CONTROL_CHARACTER: _policy(Action.DROP, "a control character, often where a backslash was eaten"),
        Kind.DOUBLED_BACKSLASH: _policy(Action.REPORT, "a TeX command after two backslashes"),
        Kind.GLUED_SENTENCE: _policy(Action.REPORT, "no space before an added sentence"),
        Kind.CONFLICTING_INSTRUCTION: _policy(Action.REPORT, "the problem brings its own rule for the answer's form"),
        Kind.SHORT_PROMPT: _policy(Action.REPORT, "a very short problem"),
        Kind.LONG_PROMPT: _policy(Action.REPORT, "a very long problem"),
        Kind.PROMPT_OVER_LIMIT: _policy(Action.DROP, "more tokens than the limit after the template"),
        Kind.MISSING_FIGURE: _policy(Action.REPORT, "a picture or link that a text model cannot see"),
        Kind.MULTIPLE_CHOICE: _policy(Action.REPORT, "options to choose from are left in the problem"),
        Kind.POSSIBLE_CHOICE: _policy(Action.REPORT, "a bracketed A that may be an option, mostly a function of a set"),
        Kind.OTHER_SCRIPT: _policy(Action.REPORT, "a problem in Chinese, Japanese or Korean script"),
        Kind.MISSING_ANSWER: _policy(Action.DROP, "no answer"),
        Kind.ANSWER_FORM: _policy(Action.REPORT, "an integer in another dress"),
        Kind.NOT_AN_INTEGER: _policy(Action.DROP, "an answer that is no integer where integers are wanted"),
        Kind.SEVERAL_ANSWERS: _policy(Action.DROP, "a key with more than one answer"),
        Kind.STORED_AS_FLOAT: _policy(Action.DROP, "the file holds the answer as a float"),
        Kind.DAMAGED_BY_FLOAT: _policy(Action.DROP, "an integer above 2**53 that a float has rounded"),
        Kind.BIG_ANSWER: _policy(Action.REPORT, "an answer that needs exact integers (14 digits or more)"),
        Kind.SENTINEL_ANSWER: _policy(Action.REPORT, "the answer -1, which may stand for `not parsed`"),
        Kind.KNOWN_KEY: _policy(Action.REPORT, "a contest problem whose official key is another"),
        Kind.HAS_DUPLICATES: _policy(Action.REPORT, "the first row of a problem that other rows repeat"),
        Kind.EXACT_DUPLICATE: _policy(Action.DROP, "the same text and answer as an earlier row"),
        Kind.NEAR_DUPLICATE: _policy(Action.DROP, "the same problem in other typesetting or nearly the same words"),
        Kind.CONFLICTING_ANSWERS: _policy(Action.DROP, "one problem with different answers"),
        Kind.SIMILAR_CONFLICT: _policy(Action.REPORT, "nearly the same words and numbers, another answer"),
        Kind.CONTAMINATED: _policy(Action.DROP, "a problem of an evaluation set"),
    }
)
"""What is done about each kind. MEND is not in the table: a finding is mended where exactly one reading is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with one row. Rows count from 0 over the files in order."""

    row: int
    id: str
    kind: Kind
    detail: str
    action: Action
    related: tuple[int, ...] = ()

    @property
    def mendable(self) -> bool:
        """Whether there is one right reading."""
        return self.action is Action.MEND

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "mendable": self.mendable}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is wrong with a problem set. `counts` has every finding; `findings` the first of each kind, in row order."""

    source: str
    layout: str
    rows: int
    unique: int
    dropped: int
    mended: int
    counts: Mapping[Kind, int]
    contests: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def kept(self) -> int:
        """How many rows a clean-up leaves."""
        return self.rows - self.dropped

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind that the report holds."""
        return tuple(finding for finding in self.findings if finding.kind is kind)

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "layout": self.layout,
            "rows": self.rows,
            "unique": self.unique,
            "kept": self.kept,
            "dropped": self.dropped,
            "mended": self.mended,
            "counts": {str(kind): count for kind, count in self.counts.items()},
            "contests": dict(self.contests),
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def to_text(self, examples: int = 3) -> str:
        """The report for a person: a line a kind with what would be done, and a few rows of each."""
        lines = [
            f"{self.source} ({self.layout}): {self.rows} rows, {self.unique} unique problems",
            f"a clean-up keeps {self.kept}, drops {self.dropped} and mends {self.mended} of those it keeps",
        ]
        lines += [f"known problems of {contest}: {count}" for contest, count in self.contests.items()]
        if not self.counts:
            lines.append("nothing found")
        for kind, count in self.counts.items():
            held = self.of(kind)
            actions = "/".join(sorted({str(finding.action) for finding in held})) or str(POLICY[kind].otherwise)
            lines.append(f"{count:>9}  {kind} [{actions}]: {POLICY[kind].meaning}")
            lines += [f"           row {finding.row} ({finding.id}): {finding.detail}" for finding in held[:examples]]
        return "\n".join(lines)
