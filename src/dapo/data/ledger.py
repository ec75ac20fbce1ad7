"""Which rows of a set are one problem, and what follows from it. Memory grows with the unique problems."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from dapo.data.findings import Kind
from dapo.data.integers import comparable
from dapo.data.records import Record
from dapo.data.similar import Sketch, similar_pairs

_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One wording of a problem: where it stands, and its answer in the form in which answers are compared."""

    row: int
    id: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFinding:
    """Something about a row that only the rest of the set shows."""

    member: Member
    kind: Kind
    detail: str
    related: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    """Collects the rows of a set. `copy_of` holds for each row the earlier row that it repeats to the letter, or -1."""

    copy_of: array[int] = field(default_factory=lambda: array("q"))
    _first_of_mark: dict[bytes, int] = field(default_factory=dict)
    _slot_of_key: dict[bytes, int] = field(default_factory=dict)
    _members: list[list[Member]] = field(default_factory=list)
    _sketches: list[Sketch | None] = field(default_factory=list)
    _repeats: dict[int, array[int]] = field(default_factory=dict)

    @property
    def num_unique(self) -> int:
        """How many problems there are, by normal form."""
        return len(self._slot_of_key)

    def skip_row(self) -> None:
        """Count a row that is no problem."""
        self.copy_of.append(-1)

    def is_copy(self, record: Record) -> bool:
        """Count a row; true if an earlier row has the same text and answer."""
        content = f"{record.text}\0{record.answer.origin}\0{record.answer.text}".encode("utf-8", "surrogatepass")
        first = self._first_of_mark.setdefault(hashlib.blake2b(content, digest_size=16).digest(), record.row)
        self.copy_of.append(-1 if first == record.row else first)
        return first != record.row

    def add(self, key: bytes, member: Member | None, sketch: Sketch | None) -> None:
        """Put a row under its key. A member of None is a row that leaves anyway: it only counts as a problem."""
        slot = self._slot_of_key.setdefault(key, len(self._members))
        if slot == len(self._members):
            self._members.append([])
            self._sketches.append(None)
        if member is not None:
            self._members[slot].append(member)
            self._sketches[slot] = self._sketches[slot] or sketch

    def findings(self, similarity: float | None) -> Iterator[SetFinding]:
        """Yield what is wrong with the rows together: conflicts, near duplicates and similar rows that disagree."""
        for found in self._disagreements_and_repeats(similarity):
            if found.kind is Kind.NEAR_DUPLICATE:
                self._repeats.setdefault(found.related[0], array("q")).append(found.member.row)
            yield found
        yield from self._firsts()

    def _firsts(self) -> Iterator[SetFinding]:
        """Name the rows that others repeat, so that a person finds a problem from any of its rows."""
        for row, first in enumerate(self.copy_of):
            if first >= 0:
                self._repeats.setdefault(first, array("q")).append(row)
        for members in self._members:
            for member in members:
                rows = sorted(self._repeats.get(member.row, ()))
                if rows:
                    shown = ", ".join(map(str, rows[:_SHOWN]))
                    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
                    detail = f"repeated by row {shown}{more}"
                    yield SetFinding(
                        member=member, kind=Kind.HAS_DUPLICATES, detail=detail, related=tuple(rows[:_SHOWN])
                    )

    def _disagreements_and_repeats(self, similarity: float | None) -> Iterator[SetFinding]:
        agreeing = []
        for slot, members in enumerate(self._members):
            if len({comparable(member.answer) for member in members}) > 1:
                yield from _conflict(members)
            elif members:
                agreeing.append(slot)
                yield from (
                    _near(member, members[0], "the same problem in other typesetting") for member in members[1:]
                )
        if similarity is not None:
            yield from self._similar(agreeing, similarity)

    def _similar(self, slots: list[int], similarity: float) -> Iterator[SetFinding]:
        sketched = [(slot, sketch) for slot in slots if (sketch := self._sketches[slot]) is not None]
        leaving: set[int] = set()
        for pair in similar_pairs([sketch for _, sketch in sketched], similarity):
            first = self._members[sketched[pair.first][0]][0]
            second = self._members[sketched[pair.second][0]][0]
            if first.answer != second.answer:
                yield _disagreeing(first, second, pair.similarity)
                yield _disagreeing(second, first, pair.similarity)
            elif pair.first not in leaving and pair.second not in leaving:
                leaving.add(pair.second)
                yield _near(second, first, f"the same numbers and {pair.similarity:.0%} of the word pairs")


def _conflict(members: list[Member]) -> Iterator[SetFinding]:
    shown = ", ".join(f"{member.answer[:40]} (row {member.row})" for member in members[:_SHOWN])
    for member in members:
        others = tuple(other.row for other in members if other is not member)
        yield SetFinding(member=member, kind=Kind.CONFLICTING_ANSWERS, detail=f"answers {shown}", related=others)


def _near(member: Member, first: Member, how: str) -> SetFinding:
    detail = f"{how} as row {first.row}"
    return SetFinding(member=member, kind=Kind.NEAR_DUPLICATE, detail=detail, related=(first.row,))


def _disagreeing(member: Member, other: Member, similarity: float) -> SetFinding:
    detail = f"{member.answer[:40]} here, {other.answer[:40]} in row {other.row}, {similarity:.0%} of the word pairs"
    return SetFinding(member=member, kind=Kind.SIMILAR_CONFLICT, detail=detail, related=(other.row,))
