"""What the columns of a row mean. A layout is a value; it is named in the recipe or told from the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dapo.data.integers import mended_integer
from dapo.data.records import Answer, Origin, Record, Unreadable, read_answer, read_messages
from dapo.data.rows import Values
from dapo.errors import DataError

if TYPE_CHECKING:
    from dapo.data.config import SourceConfig

ColumnPath = tuple[str, ...]
"""A column, or the way into a nested one: `("reward_model", "ground_truth")`."""

_PROMPT_NAMES = ("prompt", "problem", "question")
_ANSWER_NAMES = ("answer", "final_answer", "label", "ground_truth")
_ID_NAMES = ("id", "unique_id", "problem_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where prompt, answer and id stand in a row.

    `integer_answers`: every answer should be an integer. `after_hashes`: the answer is what follows the last `####`.
    """

    name: str
    prompt: ColumnPath
    answer: ColumnPath
    id: ColumnPath | None = None
    integer_answers: bool = True
    after_hashes: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns that prompt, answer and id need."""
        return frozenset(path[0] for path in (self.prompt, self.answer, self.id) if path is not None)

    @property
    def used(self) -> frozenset[str]:
        """The top-level columns that hold nothing but the prompt or the answer."""
        return frozenset(path[0] for path in (self.prompt, self.answer) if len(path) == 1)

    def record(self, values: Values, row: int, default_id: str) -> Record | Unreadable:
        """Read one row. A row without a readable prompt comes back as Unreadable; one without an answer is a Record."""
        name = default_id if self.id is None else _as_id(look_up(values, self.id), default_id)
        try:
            messages = read_messages(look_up(values, self.prompt))
        except ValueError as error:
            return Unreadable(row=row, id=name, reason=str(error))
        used = self.used
        return Record(row=row, id=name, messages=messages, answer=self._answer(values), values=values, used=used)

    def _answer(self, values: Values) -> Answer:
        answer = read_answer(look_up(values, self.answer))
        if not self.after_hashes or answer.origin is not Origin.TEXT:
            return answer
        _, hashes, after = answer.text.rpartition("####")
        if not hashes or not after.strip():
            return Answer(text="", origin=Origin.MISSING)
        return Answer(text=mended_integer(after) or after.strip(), origin=Origin.TEXT)


LAYOUTS: Mapping[str, Layout] = {
    "dapo_math_17k": Layout(
        name="dapo_math_17k",
        prompt=("prompt",),
        answer=("reward_model", "ground_truth"),
        id=("extra_info", "index"),
    ),
    "math500": Layout(
        name="math500", prompt=("problem",), answer=("answer",), id=("unique_id",), integer_answers=False
    ),
    "gsm8k": Layout(name="gsm8k", prompt=("question",), answer=("answer",), after_hashes=True),
    "conversations": Layout(name="conversations", prompt=("prompt",), answer=("final_answer",), integer_answers=False),
    "aime": Layout(name="aime", prompt=("problem",), answer=("answer",)),
    "plain": Layout(name="plain", prompt=("prompt",), answer=("answer",)),
}
"""The built-in layouts, with the columns of the sets as their makers publish them."""


def look_up(values: Values, path: ColumnPath) -> Any:
    """Return what stands at a path, or None where it leads nowhere."""
    found: Any = values
    for name in path:
        if not isinstance(found, dict):  # rows are plain dicts; asking for Mapping is five times slower
            return None
        found = found.get(name)
    return found


def choose_layout(first: Values, source: SourceConfig) -> Layout:
    """Return the layout that the recipe names, or the one that the first row shows. Raises DataError."""
    layout = _told_apart(first, source) if source.layout == "auto" else _with_own_names(LAYOUTS[source.layout], first)
    named = replace(
        layout,
        prompt=_path_of(source.prompt_column, first) or layout.prompt,
        answer=_path_of(source.answer_column, first) or layout.answer,
        id=_path_of(source.id_column, first) or layout.id,
    )
    for setting, path in (("prompt_column", named.prompt), ("answer_column", named.answer)):
        if look_up(first, path) is None and not _exists(first, path):
            raise DataError(
                f"{source.path}: the layout {named.name!r} looks for {'.'.join(path)!r}, but the first row has the "
                f"columns {_listed(first)}; name the right one with {setting} = ..."
            )
    return named


def _told_apart(first: Values, source: SourceConfig) -> Layout:
    if source.prompt_column and source.answer_column:
        return LAYOUTS["plain"] if "reward_model" not in first else LAYOUTS["dapo_math_17k"]
    if "prompt" in first and look_up(first, ("reward_model", "ground_truth")) is not None:
        return LAYOUTS["dapo_math_17k"]
    prompt = source.prompt_column or _one_of(_PROMPT_NAMES, first, "prompt_column", source)
    answer = source.answer_column or _one_of(_ANSWER_NAMES, first, "answer_column", source)
    found = Layout(name="plain", prompt=(prompt,), answer=(answer,), id=_id_path(first))
    folded = {name.casefold() for name in first}
    if isinstance(first.get(answer), str) and "####" in first[answer]:
        return replace(found, name="gsm8k", after_hashes=True)
    if {"subject", "level"} <= folded:
        return replace(found, name="math500", integer_answers=False)
    if answer == "final_answer" and isinstance(first.get(prompt), list):
        return replace(found, name="conversations", integer_answers=False)
    if _speaks_of_aime(first, source):
        return replace(found, name="aime")
    return found


def _with_own_names(layout: Layout, first: Values) -> Layout:
    """Take over the file's own spelling of a layout's columns (`Problem` for `problem`)."""
    spelled = {name.casefold(): name for name in first}
    prompt, answer, name = (
        None if path is None else (spelled.get(path[0], path[0]), *path[1:])
        for path in (layout.prompt, layout.answer, layout.id)
    )
    assert prompt is not None and answer is not None
    return replace(layout, prompt=prompt, answer=answer, id=name)


def _one_of(names: tuple[str, ...], first: Values, setting: str, source: SourceConfig) -> str:
    found = [column for name in names for column in first if column.casefold() == name]
    if len(found) > 1 and all(first[name] == first[found[0]] for name in found):
        return found[0]
    if len(found) == 1:
        return found[0]
    problem = "none of them is" if not found else f"{' and '.join(found)} may both be"
    what = "prompt" if setting == "prompt_column" else "answer"
    raise DataError(
        f"{source.path} has the columns {_listed(first)}; {problem} known to hold the {what}. "
        f"Name it with {setting} = ..., or name a layout: {', '.join(LAYOUTS)}."
    )


def _id_path(first: Values) -> ColumnPath | None:
    return next(((column,) for name in _ID_NAMES for column in first if column.casefold() == name), None)


def _path_of(column: str | None, first: Values) -> ColumnPath | None:
    if column is None:
        return None
    return (column,) if column in first else tuple(column.split("."))


def _exists(values: Values, path: ColumnPath) -> bool:
    parent = values if len(path) == 1 else look_up(values, path[:-1])
    return isinstance(parent, Mapping) and path[-1] in parent


def _speaks_of_aime(first: Values, source: SourceConfig) -> bool:
    short = [value for value in first.values() if isinstance(value, str) and len(value) < 200]
    return any("aime" in text.casefold() for text in (source.path, *short))


def _as_id(value: Any, default: str) -> str:
    return str(value).strip() or default if isinstance(value, str | int) and not isinstance(value, bool) else default


def _listed(values: Values) -> str:
    return ", ".join(values) or "none"
