"""Writes rows to JSON lines or parquet, aside first and then in place, so that no reader sees half a file."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dapo.data.layouts import ColumnPath, look_up
from dapo.data.records import Record
from dapo.data.rewriting import put
from dapo.data.rows import FloatText, Values, plain
from dapo.errors import DataError

_ROWS_A_BATCH = 512


class RowWriter(Protocol):
    """Takes rows one at a time."""

    def write(self, values: Values, raw: bytes | None, record: Record) -> None:
        """Write one row; `raw` is its line where it is unchanged and came out of a file of lines."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it takes the place of `path` when all went well, and goes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as stream:
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def to_line(value: Any) -> bytes:
    """One line of valid JSON. Integers keep their digits; numbers that are not finite become null."""
    text = json.dumps(_finite(plain(value)), ensure_ascii=False, allow_nan=False, default=str)
    return text.encode("utf-8", "backslashreplace") + b"\n"  # a lone surrogate becomes its JSON escape


class JsonLinesWriter:
    """JSON lines. An unchanged line of the source is written byte for byte."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("wb")

    def write(self, values: Values, raw: bytes | None, record: Record) -> None:
        """Write one row."""
        del record
        self._stream.write(to_line(values) if raw is None else raw.strip().removeprefix(b"\xef\xbb\xbf") + b"\n")

    def close(self) -> None:
        """Flush and close."""
        self._stream.close()


class ParquetWriter:
    """Parquet with the source's own columns, or with id, prompt, answer and info (JSON) where it had no schema.

    A float column of answers is written as text, which holds every digit.
    """

    def __init__(self, path: Path, schema: Any | None, answer: ColumnPath) -> None:
        import pyarrow.parquet as pq

        self._answer = answer
        self._is_plain = schema is None
        self._schema = _plain_schema() if schema is None else _with_text_for_float(schema, answer)
        self._writer = pq.ParquetWriter(path, self._schema)
        self._rows: list[Values] = []

    def write(self, values: Values, raw: bytes | None, record: Record) -> None:
        """Write one row."""
        del raw
        self._rows.append(_plain_row(values, record, self._answer) if self._is_plain else self._typed(values))
        if len(self._rows) >= _ROWS_A_BATCH:
            self._flush()

    def _typed(self, values: Values) -> Values:
        answer = look_up(values, self._answer)
        if isinstance(answer, int | float) and _leaf(self._schema, self._answer) == "string":
            return put(dict(values), self._answer, str(answer))
        return values

    def _flush(self) -> None:
        import pyarrow as pa

        try:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise DataError(f"The rows do not fit into one parquet schema: {error}. Write .jsonl instead.") from error
        self._rows = []

    def close(self) -> None:
        """Write the last batch and close."""
        if self._rows:
            self._flush()
        self._writer.close()


def _plain_schema() -> Any:
    import pyarrow as pa

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    return pa.schema(
        [("id", pa.string()), ("prompt", pa.list_(message)), ("answer", pa.string()), ("info", pa.string())]
    )


def _plain_row(values: Values, record: Record, answer: ColumnPath) -> Values:
    found = look_up(values, answer)
    return {
        "id": record.id,
        "prompt": [{"role": message.role, "content": message.content} for message in record.messages],
        "answer": record.answer.text if found is None or isinstance(found, FloatText) else str(found),
        "info": to_line(record.info).decode().strip(),
    }


def _with_text_for_float(schema: Any, path: ColumnPath) -> Any:
    import pyarrow as pa

    def changed(kind: Any, rest: ColumnPath) -> Any:
        if rest and pa.types.is_struct(kind):
            return pa.struct(
                [field.with_type(changed(field.type, rest[1:])) if field.name == rest[0] else field for field in kind]
            )
        return pa.string() if not rest and pa.types.is_floating(kind) else kind

    fields = [field.with_type(changed(field.type, path[1:])) if field.name == path[0] else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata if fields == list(schema) else None)


def _leaf(schema: Any, path: ColumnPath) -> str:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return str(kind)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
    return value
