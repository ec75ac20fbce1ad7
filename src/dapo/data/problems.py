"""Opens a source and gives its problems as a sequence that reads a row when it is asked for.

Order, shuffling and position are not kept here: a permutation of `range(len(problems))` from a seed, and the number of
draws, are all that a stream over a sequence needs to go on exactly where it stopped.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dapo.data.config import SourceConfig
from dapo.data.contents import look_at_answer
from dapo.data.integers import comparable
from dapo.data.normal import text_key
from dapo.data.opening import OpenedSource, ScannedRow, open_rows, scan_rows, to_problem
from dapo.data.records import Origin, Record, Unreadable
from dapo.data.rows import Values
from dapo.errors import DataError
from dapo.types import Problem

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What opening a source found. Row numbers count from 0 over the files in order; lists show the first thousand."""

    layout: str
    rows: int
    problems: int
    duplicates: int
    conflicting: tuple[int, ...]
    num_conflicting: int
    unusable: tuple[int, ...]
    num_unusable: int
    over_limit: int = 0

    def to_text(self) -> str:
        """One line for a person."""
        parts = [f"{self.rows} rows give {self.problems} problems ({self.layout})"]
        if self.duplicates:
            parts.append(f"{self.duplicates} copies left out")
        if self.num_conflicting:
            parts.append(f"{self.num_conflicting} rows of problems with conflicting answers left out")
        if self.num_unusable:
            parts.append(f"{self.num_unusable} unusable rows left out")
        if self.over_limit:
            parts.append(f"{self.over_limit} over the token limit left out")
        return "; ".join(parts)


def open_problems(config: SourceConfig) -> ProblemSet:
    """Open a source as a sequence of problems; one pass checks every row, and rows are read again when asked for.

    Memory: the row positions, and with `unique` about 150 bytes a unique problem while opening. Raises DataError for
    rows that cannot be used or that conflict, where the source says so.
    """
    source = open_rows(config)
    census = _Census(config)
    for scanned in scan_rows(source, source.layout.columns):
        census.count(scanned)
        if config.limit is not None and not config.unique and len(census.rows) >= config.limit:
            break
    kept = census.finish(source)
    return ProblemSet(
        source=source,
        stores=[file.store(census.positions_in(number, kept)) for number, file in enumerate(source.files)],
        rows=census.kept_rows(kept),
        loaded=census.loaded(source, len(kept)),
    )


class ProblemSet(Sequence[Problem]):
    """Problems of a source, read one at a time. `loaded` says what opening found."""

    def __init__(
        self,
        *,
        source: OpenedSource,
        stores: Sequence[Sequence[Values]],
        rows: NDArray[np.int64],
        loaded: Loaded,
        chosen: NDArray[np.int64] | None = None,
    ) -> None:
        self._source = source
        self._stores = stores
        self._ends = np.cumsum([len(store) for store in stores], dtype=np.int64)
        self._rows = rows
        self._chosen = np.arange(len(rows), dtype=np.int64) if chosen is None else chosen
        self._renamed = self._find_repeated_ids()
        self.loaded = loaded

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | Sequence[Problem]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        place = int(self._chosen[index])
        record = self._record(place)
        view = look_at_answer(record.answer, integers=False)
        name = f"{record.id}@{record.row}" if self._renamed is None or place in self._renamed else record.id
        return to_problem(record, view.text or "", self._source.config, name)

    def source_row(self, index: int) -> int:
        """The row of the source that a problem comes from, counted from 0 over the files in order."""
        return int(self._rows[self._chosen[index]])

    def within(self, limit: int, count_tokens: Callable[[Problem], int]) -> ProblemSet:
        """Return the problems of at most `limit` tokens, measured as the caller renders them, and count the others."""
        fits = np.array([count_tokens(problem) <= limit for problem in self], dtype=bool)
        left_out = int((~fits).sum())
        loaded = replace(self.loaded, problems=int(fits.sum()), over_limit=self.loaded.over_limit + left_out)
        return ProblemSet(
            source=self._source, stores=self._stores, rows=self._rows, loaded=loaded, chosen=self._chosen[fits]
        )

    def _record(self, place: int) -> Record:
        number = int(np.searchsorted(self._ends, place, side="right"))
        begin = int(self._ends[number - 1]) if number else 0
        row = int(self._rows[place])
        name = f"{self._source.files[number].path.stem}-{row}"
        record = self._source.layout.record(self._stores[number][place - begin], row, name)
        if isinstance(record, Unreadable):
            raise DataError(f"{self._source.config.path}: row {row} has changed since it was opened: {record.reason}")
        return record

    def _find_repeated_ids(self) -> frozenset[int] | None:
        """Places whose id an earlier place has; None where copies are kept, and every id gets its row."""
        if not self._source.config.unique:
            return None
        if self._source.layout.id is None:
            return frozenset()
        seen: set[bytes] = set()
        repeated = []
        for place in range(len(self._rows)):
            mark = hashlib.blake2b(self._record(place).id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            if mark in seen:
                repeated.append(place)
            seen.add(mark)
        return frozenset(repeated)


class _Census:
    """Counts rows and remembers where the first copy of each problem stands."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._seen: set[bytes] = set()
        self._place_of: dict[bytes, int] = {}
        self._answers: list[str] = []
        self._rows_of_conflict: dict[int, list[int]] = {}
        self.rows = array("q")
        self._files = array("i")
        self._positions = array("q")
        self._num_rows = 0
        self._duplicates = 0
        self._unusable: list[tuple[int, str]] = []

    def count(self, scanned: ScannedRow) -> None:
        record = scanned.record
        self._num_rows += 1
        if isinstance(record, Unreadable):
            self._refuse(record.row, record.reason)
            return
        if not self._config.unique:
            self._keep_if_usable(scanned, record)
            return
        mark = _mark(f"{record.text}\0{record.answer.origin}\0{record.answer.text}")
        if mark in self._seen:
            self._duplicates += 1
            return
        self._seen.add(mark)
        self._keep_if_new(scanned, record)

    def _keep_if_usable(self, scanned: ScannedRow, record: Record) -> str | None:
        view = look_at_answer(record.answer, integers=False)
        fault = _fault(record, view.text, tuple(note.detail for note in view.notes if not note.mended))
        if fault is not None:
            self._refuse(record.row, fault)
            return None
        self.rows.append(record.row)
        self._files.append(scanned.file)
        self._positions.append(scanned.raw.position)
        return comparable(view.text or "")

    def _keep_if_new(self, scanned: ScannedRow, record: Record) -> None:
        key = text_key(record.text)
        place = self._place_of.get(key)
        if place is None:
            answer = self._keep_if_usable(scanned, record)
            if answer is not None:
                self._place_of[key] = len(self.rows) - 1
                self._answers.append(answer)
            return
        self._duplicates += 1
        answer = comparable(look_at_answer(record.answer, integers=False).text or "")
        if answer and answer != self._answers[place]:
            self._rows_of_conflict.setdefault(place, [self.rows[place]]).append(record.row)

    def _refuse(self, row: int, reason: str) -> None:
        self._unusable.append((row, reason))

    def finish(self, source: OpenedSource) -> NDArray[np.int64]:
        """Return the places to keep. Raises DataError for what the source does not allow."""
        where = source.config.path
        if self._unusable and self._config.unusable == "error":
            shown = "\n".join(f"  row {row}: {reason}" for row, reason in self._unusable[:_SHOWN])
            raise DataError(
                f"{where}: {len(self._unusable)} of {self._num_rows} rows cannot be used:\n{shown}\n"
                'Clean the set with `dapo data clean`, or leave such rows out with unusable = "skip".'
            )
        if self._rows_of_conflict and self._config.conflicts == "error":
            shown = "\n".join(f"  rows {', '.join(map(str, rows))}" for rows in self._conflicts()[:_SHOWN])
            raise DataError(
                f"{where}: {len(self._rows_of_conflict)} problems stand in it with different answers:\n{shown}\n"
                'Correct them, or leave all their rows out with conflicts = "drop".'
            )
        kept = np.setdiff1d(
            np.arange(len(self.rows), dtype=np.int64), np.array(list(self._rows_of_conflict), dtype=np.int64)
        )[: self._config.limit]
        if not len(kept):
            raise DataError(f"{where}: none of its {self._num_rows} rows is left to use; see `dapo data check {where}`")
        return kept

    def positions_in(self, file: int, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the kept rows of one file stand in it."""
        files = np.frombuffer(self._files, dtype=np.int32)[kept]
        positions: NDArray[np.int64] = np.frombuffer(self._positions, dtype=np.int64)[kept][files == file]
        return positions

    def kept_rows(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """The source rows of the kept places."""
        rows: NDArray[np.int64] = np.frombuffer(self.rows, dtype=np.int64)[kept]
        return rows

    def _conflicts(self) -> list[list[int]]:
        return list(self._rows_of_conflict.values())

    def loaded(self, source: OpenedSource, problems: int) -> Loaded:
        conflicting = sorted(row for rows in self._conflicts() for row in rows)
        return Loaded(
            layout=source.layout.name,
            rows=self._num_rows,
            problems=problems,
            duplicates=self._duplicates,
            conflicting=tuple(conflicting[:1000]),
            num_conflicting=len(conflicting),
            unusable=tuple(row for row, _ in self._unusable[:1000]),
            num_unusable=len(self._unusable),
        )


def _fault(record: Record, answer: str | None, notes: tuple[str, ...]) -> str | None:
    if not record.text.strip():
        return "its prompt is empty"
    if answer is None:
        return "it has no answer"
    if record.answer.origin is Origin.OTHER:
        return f"its answer is neither text nor a number: {record.answer.text[:40]}"
    return notes[0] if record.answer.origin is Origin.FLOAT and notes else None


def _mark(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
