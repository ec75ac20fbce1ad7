"""Opens a source, tells its layout, and passes over its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dapo.data.config import SourceConfig
from dapo.data.layouts import Layout, choose_layout
from dapo.data.records import Record, Unreadable
from dapo.data.rows import RawRow, RowFile, open_path
from dapo.data.templates import apply_template
from dapo.errors import DataError
from dapo.types import Message, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """The files of a source and what their columns mean."""

    config: SourceConfig
    files: tuple[RowFile, ...]
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRow:
    """A row on its way through: which file, what stands there, and how the layout reads it."""

    file: int
    raw: RawRow
    record: Record | Unreadable


def open_rows(config: SourceConfig) -> OpenedSource:
    """Find the files of a source and tell their layout. Raises DataError."""
    path = Path(config.path).expanduser()
    if config.reader == "hub" or (config.reader == "auto" and not path.exists() and _may_be_hub_id(config.path)):
        from dapo.data.hub import open_hub

        files = open_hub(config)
    elif not path.exists():
        raise DataError(f"{config.path} does not exist (looked for {path.absolute()}); correct the path")
    else:
        files = open_path(path)
    try:
        first = next((row.values for file in files for row in file.scan() if row.fault is None), None)
    except OSError as error:
        raise DataError(f"{config.path} cannot be read: {error.strerror}; give a file that can be") from error
    if first is None:
        raise DataError(f"{config.path} has no row that can be read; give a file with at least one")
    return OpenedSource(config=config, files=files, layout=choose_layout(first, config))


def scan_rows(source: OpenedSource, columns: frozenset[str] | None = None) -> Iterator[ScannedRow]:
    """Yield every row in order, in one pass with bounded memory. `columns` limits what is read, where a file can."""
    row = 0
    for number, file in enumerate(source.files):
        stem = file.path.stem
        for raw in file.scan(columns):
            name = f"{stem}-{row}"
            if raw.fault is not None:
                record: Record | Unreadable = Unreadable(row=row, id=name, reason=raw.fault)
            else:
                record = source.layout.record(raw.values, row, name)
            yield ScannedRow(file=number, raw=raw, record=record)
            row += 1


def scan_records(config: SourceConfig) -> Iterator[Record | Unreadable]:
    """Yield every row of a source as a record, in order. Raises DataError if the source cannot be opened."""
    return (scanned.record for scanned in scan_rows(open_rows(config)))


def to_problem(record: Record, answer: str, config: SourceConfig, name: str | None = None) -> Problem:
    """Make a problem of a row: the last message in the source's template, everything else as it is."""
    *before, last = record.messages
    asked = Message(role=last.role, content=apply_template(last.content, config.template))
    return Problem(id=name or record.id, messages=(*before, asked), answer=answer, info=record.info)


def _may_be_hub_id(path: str) -> bool:
    parts = path.split("/")
    known_ending = Path(path).suffix.lower() in (".jsonl", ".json", ".parquet", ".csv", ".gz")
    return len(parts) == 2 and all(parts) and not known_ending and not path.startswith((".", "~"))
