"""JSON lines: one object a line, written so that a reader never meets more than one broken line, the last.

Numbers that are not finite become `null`, since JSON has no word for them. Text is written in ASCII with escapes, so
a lone surrogate in a model's reply is kept as it is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dapo.errors import DataError

_CHUNK_BYTES = 65_536  # read backwards from the end in pieces of this size: a file may be large, its last line is not


def to_json(value: object) -> str:
    """Return `value` as one line of valid JSON; NaN and the infinities become null."""
    return json.dumps(_finite(value), allow_nan=False)


def append_json_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one object to `path`, making the file and its folder if they are missing.

    A half-written line that a crash has left at the end is removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _mend_end(path)
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(to_json(value) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, without a half-written last line; a missing file has none.

    Raises DataError, with the line's number, for a broken line that is not the last, or a line that is no object.
    """
    if not path.exists():
        return []
    objects: list[dict[str, Any]] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no line end after it: the writer was stopped in the middle
                break
            raise DataError(
                f"line {number} of {path} is not JSON ({error}); remove the line or restore the file"
            ) from error
        if not isinstance(value, dict):
            raise DataError(f"line {number} of {path} is {type(value).__name__}, not an object; remove the line")
        objects.append(value)
    return objects


class JsonLines:
    """A Reporter that appends `{"step": n, **metrics}` to a file, one line a step, flushed at once.

    Floats keep all their digits; a number that is not finite is written as null. Opening a file that ends in a
    half-written line removes that line.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _mend_end(path)
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step."""
        self._file.write(to_json({"step": step, **metrics}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    return value


def _mend_end(path: Path) -> None:
    """Make the file end with a line end: complete a whole last line, cut off a half-written one."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = _start_of_last_line(file, size)
        file.seek(start)
        rest = file.read()
        if not rest:
            return
        try:
            json.loads(rest)
        except ValueError:
            file.truncate(start)
        else:
            file.write(b"\n")


def _start_of_last_line(file: BinaryIO, size: int) -> int:
    """Return the offset after the last line end of the file, or 0 if it has none."""
    end = size
    while end > 0:
        begin = max(0, end - _CHUNK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
