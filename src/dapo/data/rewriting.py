"""Puts a mended prompt and answer back into a row, and leaves every other column as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from dapo.data.check import Judged
from dapo.data.integers import plain_integer
from dapo.data.layouts import ColumnPath, Layout, look_up
from dapo.data.records import Record
from dapo.data.rows import FloatText, IntegerText, Values

_MOST_DIGITS = 4000  # Python refuses to print longer integers


def rewrite(values: Values, layout: Layout, record: Record, judged: Judged) -> dict[str, Any]:
    """Return a copy of the row with the judged prompt and answer."""
    row = dict(values)
    if judged.record.messages != record.messages:
        row = put(row, layout.prompt, _prompt(look_up(values, layout.prompt), judged.record))
    if judged.answer is not None and changes_answer(record, judged):
        old = look_up(values, layout.answer)
        text = judged.answer
        if layout.after_hashes and isinstance(old, str):
            text = f"{old.rpartition('####')[0]}#### {text}"
        row = put(row, layout.answer, _answer(old, text))
    return row


def changes_answer(record: Record, judged: Judged) -> bool:
    """Whether the judged answer is written otherwise than the row's."""
    return judged.answer != record.answer.text


def put(row: dict[str, Any], path: ColumnPath, value: Any) -> dict[str, Any]:
    """Return a copy of the row with `value` at the path."""
    name, *rest = path
    inner = row.get(name)
    return {**row, name: put(dict(inner), tuple(rest), value) if rest and isinstance(inner, Mapping) else value}


def _prompt(old: Any, record: Record) -> Any:
    if isinstance(old, str):
        return record.messages[0].content
    key_of = ("content", "value")
    return [
        {**item, next(key for key in key_of if key in item): message.content}
        for item, message in zip(old, record.messages, strict=True)
    ]


def _answer(old: Any, text: str) -> Any:
    """Keep the type of the old answer where it can hold the new one; a float becomes an integer."""
    if isinstance(old, Decimal):
        return Decimal(text)
    is_number = isinstance(old, IntegerText | FloatText | int | float) and not isinstance(old, bool)
    if is_number and plain_integer(text) is not None and len(text) <= _MOST_DIGITS:
        return int(text)
    return text
