"""JSON lines and JSON arrays. Numbers stay the text that they are in the file."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dapo.data.rows import FloatText, IntegerText, RawRow, Values
from dapo.errors import DataError

_BOM = b"\xef\xbb\xbf"


def parse(line: bytes) -> Any:
    """Parse one JSON value; numbers come back as IntegerText and FloatText. Raises ValueError with what is wrong."""
    try:
        return json.loads(
            line.removeprefix(_BOM).decode(), parse_int=IntegerText, parse_float=FloatText, parse_constant=FloatText
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class JsonLines:
    """One JSON object a line. A position is the byte at which the line begins; blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def scan(self, columns: frozenset[str] | None = None) -> Iterator[RawRow]:
        """Yield the rows; a line that is no JSON object comes with its fault."""
        del columns  # a line is parsed whole
        begin = 0
        with self.path.open("rb") as stream:
            for line in stream:
                if line.strip() not in (b"", _BOM):
                    yield _row(line, begin)
                begin += len(line)

    def store(self, positions: NDArray[np.int64]) -> Sequence[Values]:
        """Return the rows through a memory map of the file."""
        return _MappedLines(self.path, positions)


def _row(line: bytes, begin: int) -> RawRow:
    try:
        value = parse(line)
    except ValueError as error:
        return RawRow(position=begin, values={}, fault=str(error), raw=line)
    if not isinstance(value, dict):
        return RawRow(position=begin, values={}, fault="it is not a JSON object", raw=line)
    return RawRow(position=begin, values=value, raw=line)


class _MappedLines(Sequence[Values]):
    def __init__(self, path: Path, positions: NDArray[np.int64]) -> None:
        self._path = path
        self._positions = positions
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if len(positions) else b""

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Values: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Values]: ...
    def __getitem__(self, index: int | slice) -> Values | Sequence[Values]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        begin = int(self._positions[index])
        end = self._bytes.find(b"\n", begin)
        row = _row(self._bytes[begin : end if end >= 0 else len(self._bytes)], begin)
        if row.fault is not None:
            raise DataError(
                f"{self._path} has changed since it was opened: at byte {begin}, {row.fault}. Open it again."
            )
        return row.values


class JsonArray:
    """One JSON array of objects, read whole: for small files. A position is the place in the array."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _items(self) -> list[Any]:
        try:
            value = parse(self.path.read_bytes())
        except ValueError as error:
            raise DataError(f"{self.path} cannot be read: {error}; correct the file") from error
        if not isinstance(value, list):
            raise DataError(f"{self.path} is no JSON array; write one object a line and end the name in .jsonl")
        return value

    def scan(self, columns: frozenset[str] | None = None) -> Iterator[RawRow]:
        """Yield the rows; an item that is no object comes with its fault."""
        del columns
        for place, value in enumerate(self._items()):
            if isinstance(value, dict):
                yield RawRow(position=place, values=value)
            else:
                yield RawRow(position=place, values={}, fault="it is not a JSON object")

    def store(self, positions: NDArray[np.int64]) -> Sequence[Values]:
        """Return the rows from memory."""
        items = self._items()
        return [items[int(place)] for place in positions]
