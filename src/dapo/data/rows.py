"""Rows of files as they stand, before anyone knows what the columns mean. Reading is one pass with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dapo.errors import DataError

SUFFIXES = (".jsonl", ".json", ".parquet")


class IntegerText(str):
    """An integer of a JSON file, digit for digit."""

    __slots__ = ()


class FloatText(str):
    """A number of a JSON file with a point or an exponent, as it is written."""

    __slots__ = ()


Values = Mapping[str, Any]
"""A row: column names and what stands in them. Numbers of JSON are IntegerText and FloatText."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row. `position` is what its file needs to find it again; `fault` says why there are no values."""

    position: int
    values: Values
    fault: str | None = None
    raw: bytes | None = None
    """The line itself, where the file has lines."""


class RowFile(Protocol):
    """One file, or one split of a Hub data set."""

    @property
    def path(self) -> Path: ...

    def scan(self, columns: frozenset[str] | None = None) -> Iterator[RawRow]:
        """Yield the rows in order, with these top-level columns at least. Memory does not grow with the file."""
        ...

    def store(self, positions: NDArray[np.int64]) -> Sequence[Values]:
        """Return random access to the rows at these positions, which rise. Memory does not grow with the rows."""
        ...


def open_file(path: Path, name: str | None = None) -> RowFile:
    """Open one file by the ending of its name, or of `name` where a cache has renamed it. Raises DataError."""
    match Path(name or path).suffix.lower():
        case ".jsonl":
            from dapo.data.json_rows import JsonLines

            return JsonLines(path)
        case ".json":
            from dapo.data.json_rows import JsonArray, JsonLines

            return JsonArray(path) if _begins_with_bracket(path) else JsonLines(path)
        case ".parquet":
            from dapo.data.arrow_rows import Parquet

            return Parquet(path)
    raise DataError(f"{path} ends in {path.suffix or 'nothing'}; give a file that ends in {', '.join(SUFFIXES)}")


def open_path(path: Path) -> tuple[RowFile, ...]:
    """Open a file, or every data file of a folder in the order of their names. Raises DataError."""
    if not path.is_dir():
        return (open_file(path),)
    names = sorted(name for name in path.rglob("*") if name.suffix.lower() in SUFFIXES and name.is_file())
    if not names:
        raise DataError(
            f"{path} is a folder without a file that ends in {', '.join(SUFFIXES)}; give a folder that has one"
        )
    return tuple(open_file(name) for name in names)


def plain(value: Any) -> Any:
    """Give the numbers of a JSON row the usual Python types: for columns that nobody compares as answers."""
    match value:
        case IntegerText():
            return int(value) if len(value) <= 4000 else str(value)
        case FloatText():
            return float(value)
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
    return value


def _begins_with_bracket(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
