"""Says what is wrong with a problem set: one pass over the rows, then a look at the rows together."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.contamination import EvaluationIndex, index_evaluation
from dapo.data.contents import look_at_answer, look_at_text
from dapo.data.findings import POLICY, Action, Finding, Kind, Report
from dapo.data.integers import comparable
from dapo.data.known_keys import key_difference, recognise
from dapo.data.layouts import Layout
from dapo.data.ledger import Ledger, Member
from dapo.data.mending import Note, mend_text
from dapo.data.normal import runs, text_key, tokens
from dapo.data.opening import OpenedSource, open_rows, scan_records, scan_rows, to_problem
from dapo.data.records import Record, Unreadable
from dapo.data.similar import sketch
from dapo.data.templates import split_wrapper
from dapo.errors import ConfigError
from dapo.types import Message, Problem

CountTokens = Callable[[Problem], int]
"""How long a prompt is: the caller's chat template and tokenizer, the same as in training."""

_RANK = {Action.REPORT: 0, Action.MEND: 1, Action.DROP: 2}
KEEP, MEND, DROP = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row put right as far as there is one right reading, and everything found on the way.

    `body` is the mended problem without its wrapper; `answer` is None where none is left. `contest_problem` is the name
    of a known contest problem.
    """

    record: Record
    body: str
    words: list[str]
    pairs: set[int]
    answer: str | None
    notes: tuple[Note, ...]
    contest_problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A report, and what it is made of: an action a row (KEEP, MEND or DROP), and every finding but exact copies."""

    report: Report
    actions: array[int]
    copy_of: array[int]
    findings: dict[int, list[Finding]]


def run_check(
    source: str | Path | SourceConfig, options: CheckConfig | None = None, *, count_tokens: CountTokens | None = None
) -> Report:
    """Check a problem set and return the report. Raises DataError if it cannot be opened, ConfigError for the options.

    `count_tokens` measures a prompt as training does; it is needed for `options.max_prompt_tokens`.
    """
    opened = open_rows(SourceConfig.model_validate(source))
    return inspect(opened, options or CheckConfig(), count_tokens=count_tokens).report


def inspect(opened: OpenedSource, options: CheckConfig, *, count_tokens: CountTokens | None = None) -> Inspection:
    """Check an opened source; see `run_check`."""
    if options.max_prompt_tokens is not None and count_tokens is None:
        raise ConfigError(
            f"max_prompt_tokens = {options.max_prompt_tokens} needs a tokenizer to count with; name the model "
            "that will be trained, or leave the limit out"
        )
    inspector = _Inspector(
        opened=opened,
        options=options,
        integers=wants_integers(opened.layout, options),
        evaluation=_evaluation(options),
        count_tokens=count_tokens,
    )
    for scanned in scan_rows(opened, opened.layout.columns):
        inspector.look_at(scanned.record)
    return inspector.finish()


def wants_integers(layout: Layout, options: CheckConfig) -> bool:
    """Whether answers must be integers."""
    return layout.integer_answers if options.answers == "auto" else options.answers == "integer"


def action_for(kind: Kind, mended: bool, options: CheckConfig) -> Action:
    """What is done about a finding: the options first, then mending, then the kind's policy."""
    if kind in options.keep:
        return Action.REPORT
    if kind in options.drop:
        return Action.DROP
    return Action.MEND if mended else POLICY[kind].otherwise


def judge(record: Record, *, integers: bool, options: CheckConfig) -> Judged:
    """Look at one row alone, mend what the options allow, and say what was found. It depends on nothing but the row."""
    notes: list[Note] = []
    messages, bodies = [], []
    for message in record.messages:
        wrapped = split_wrapper(message.content)
        mended = mend_text(wrapped.body, options.keep)
        notes += mended.notes
        bodies.append(mended.text)
        messages.append(Message(role=message.role, content=f"{wrapped.prefix}{mended.text}{wrapped.suffix}"))
    body = "\n\n".join(bodies)
    notes += look_at_text(body, options)
    view = look_at_answer(record.answer, integers=integers)
    notes += view.notes
    words = tokens(body)
    pairs = runs(words, 2)
    found = recognise(body, pairs) if view.text is not None else None
    answer = view.text
    if found is not None and answer is not None:
        difference = key_difference(record.row, record.id, answer, found)
        likely = "" if found.certain else ", as far as its words tell"
        if len(found.problem.keys) > 1:
            detail = f"the official key of {found.problem.name} accepts {' and '.join(found.problem.keys)}{likely}"
            notes.append(Note(kind=Kind.KNOWN_KEY, detail=detail))
        elif difference is not None:
            detail = f"the official key of {found.problem.name}{likely} is {difference.keys[0]}, not {answer[:40]!a}"
            notes.append(Note(kind=Kind.KNOWN_KEY, detail=detail, mended=found.certain))
            if found.certain and Kind.KNOWN_KEY not in options.keep:
                answer = difference.keys[0]
                notes = [note for note in notes if note.kind not in _ABOUT_WRONG_ANSWERS]
    return Judged(
        record=replace(record, messages=tuple(messages)),
        body=body,
        words=words,
        pairs=pairs,
        answer=answer,
        notes=_by_kind(notes),
        contest_problem=None if found is None else found.problem.name,
    )


def _by_kind(notes: list[Note]) -> tuple[Note, ...]:
    """One note a kind; it is mended only if all of its parts are."""
    merged: dict[Kind, Note] = {}
    for note in notes:
        before = merged.get(note.kind)
        if before is not None:
            note = replace(note, detail=f"{before.detail}; {note.detail}", mended=before.mended and note.mended)
        merged[note.kind] = note
    return tuple(merged.values())


_ABOUT_WRONG_ANSWERS = frozenset(
    {Kind.NOT_AN_INTEGER, Kind.SEVERAL_ANSWERS, Kind.STORED_AS_FLOAT, Kind.DAMAGED_BY_FLOAT, Kind.BIG_ANSWER}
)  # moot once the official key stands in for the answer


@dataclass(slots=True, kw_only=True)
class _Inspector:
    opened: OpenedSource
    options: CheckConfig
    integers: bool
    evaluation: EvaluationIndex | None
    count_tokens: CountTokens | None
    ledger: Ledger = field(default_factory=Ledger)
    actions: array[int] = field(default_factory=lambda: array("B"))
    findings: dict[int, list[Finding]] = field(default_factory=dict)
    contest_problems: set[str] = field(default_factory=set)

    def look_at(self, record: Record | Unreadable) -> None:
        self.actions.append(KEEP)
        if isinstance(record, Unreadable):
            self.ledger.skip_row()
            self._note(record.row, record.id, Note(kind=Kind.UNREADABLE_ROW, detail=record.reason))
            return
        if self.ledger.is_copy(record):
            return
        judged = judge(record, integers=self.integers, options=self.options)
        if judged.contest_problem is not None:
            self.contest_problems.add(judged.contest_problem)
        for note in (*judged.notes, *self._notes_of_outside(judged)):
            self._note(record.row, record.id, note)
        self._enter(record, judged)

    def _notes_of_outside(self, judged: Judged) -> list[Note]:
        notes = []
        limit = self.options.max_prompt_tokens
        if limit is not None and self.count_tokens is not None:
            length = self.count_tokens(to_problem(judged.record, judged.answer or "", self.opened.config))
            if length > limit:
                notes.append(Note(kind=Kind.PROMPT_OVER_LIMIT, detail=f"{length} tokens, the limit is {limit}"))
        if self.evaluation is not None:
            overlap = self.evaluation.find(judged.body, self.options.overlap, judged.words)
            if overlap is not None:
                detail = f"{overlap.share:.0%} of the evaluation problem {overlap.id}"
                notes.append(Note(kind=Kind.CONTAMINATED, detail=detail))
        return notes

    def _enter(self, record: Record, judged: Judged) -> None:
        if not judged.body.strip():
            return
        key = text_key(judged.body)
        if self.actions[record.row] == DROP or judged.answer is None:
            self.ledger.add(key, None, None)
            return
        member = Member(row=record.row, id=record.id, answer=comparable(judged.answer))
        similarity = self.options.similarity
        self.ledger.add(key, member, None if similarity is None else sketch(judged.body, judged.words, judged.pairs))

    def _note(self, row: int, name: str, note: Note, related: tuple[int, ...] = ()) -> None:
        action = action_for(note.kind, note.mended, self.options)
        finding = Finding(row=row, id=name, kind=note.kind, detail=note.detail, action=action, related=related)
        self.findings.setdefault(row, []).append(finding)
        self.actions[row] = max(self.actions[row], _RANK[action])

    def finish(self) -> Inspection:
        for found in self.ledger.findings(self.options.similarity):
            note = Note(kind=found.kind, detail=found.detail)
            self._note(found.member.row, found.member.id, note, found.related)
        copies = np.frombuffer(self.ledger.copy_of, dtype=np.int64)
        actions = np.frombuffer(self.actions, dtype=np.uint8).copy()
        is_copy = copies >= 0
        drops_copies = action_for(Kind.EXACT_DUPLICATE, False, self.options) is Action.DROP
        actions[is_copy] = DROP if drops_copies else actions[copies[is_copy]]
        self.actions = array("B", actions.tobytes())
        counts = Counter(finding.kind for found in self.findings.values() for finding in found)
        if is_copy.any():
            counts[Kind.EXACT_DUPLICATE] = int(is_copy.sum())
        report = Report(
            source=self.opened.config.path,
            layout=self.opened.layout.name,
            rows=len(actions),
            unique=self.ledger.num_unique,
            dropped=int((actions == DROP).sum()),
            mended=int((actions == MEND).sum()),
            counts={kind: counts[kind] for kind in Kind if counts[kind]},
            contests=dict(sorted(Counter(" ".join(name.split()[:2]) for name in self.contest_problems).items())),
            findings=self._examples(np.flatnonzero(is_copy)[: self.options.examples]),
        )
        return Inspection(report=report, actions=self.actions, copy_of=self.ledger.copy_of, findings=self.findings)

    def _examples(self, copies: np.ndarray) -> tuple[Finding, ...]:
        held: Counter[Kind] = Counter()
        chosen = [copy_finding(int(row), f"row {row}", self.ledger.copy_of, self.options) for row in copies]
        for row in sorted(self.findings):
            for finding in self.findings[row]:
                if held[finding.kind] < self.options.examples:
                    held[finding.kind] += 1
                    chosen.append(finding)
        return tuple(sorted(chosen, key=lambda finding: (finding.row, finding.kind)))


def copy_finding(row: int, name: str, copy_of: array[int], options: CheckConfig) -> Finding:
    """The finding about a row that repeats an earlier one to the letter."""
    first = copy_of[row]
    return Finding(
        row=row,
        id=name,
        kind=Kind.EXACT_DUPLICATE,
        detail=f"the text and answer of row {first}",
        action=action_for(Kind.EXACT_DUPLICATE, False, options),
        related=(first,),
    )


def _evaluation(options: CheckConfig) -> EvaluationIndex | None:
    if not options.evaluation:
        return None
    records: Iterable[Record] = (
        record for source in options.evaluation for record in scan_records(source) if isinstance(record, Record)
    )
    return index_evaluation(records)
