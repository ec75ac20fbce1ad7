"""Reads problems out of a JSON lines file. All that is wrong with it is one error that names file and lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.errors import DataError
from dapo.tasks.integers import canonical_integer
from dapo.tasks.messages import to_messages
from dapo.types import Message, Problem

if TYPE_CHECKING:
    from dapo.tasks.config import JsonlConfig

_ROLES = ("system", "user", "assistant")
_SHOWN_ROWS = 5


class FloatText(str):
    """A JSON number with a point or an exponent, as it is written."""

    __slots__ = ()


class IntegerText(str):
    """A JSON integer, digit for digit."""

    __slots__ = ()


class BadRowError(ValueError):
    """What is wrong with one row; collected into one DataError for the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Where the parts of a problem stand in a row, and what its answer must be."""

    prompt_column: str
    answer_column: str
    id_column: str
    integer_answers: bool
    system: str | None

    @classmethod
    def of(cls, config: JsonlConfig) -> Format:
        return cls(
            prompt_column=config.prompt_column,
            answer_column=config.answer_column,
            id_column=config.id_column,
            integer_answers=config.match != "exact" and config.reward is None,
            system=config.system,
        )


def read_problems(path: Path, layout: Format, default_id: str = "row") -> tuple[Problem, ...]:
    """Return the problems of the file in its order; a row without an id is named `"{default_id}-{line number}"`.

    Raises DataError for a file that cannot be read or has no rows, and one for all bad rows together.
    """
    problems: list[Problem] = []
    faults: list[str] = []
    line_of_id: dict[str, int] = {}
    for number, line in _numbered_lines(path):
        try:
            problem = _to_problem(line, layout, f"{default_id}-{number}")
            if problem.id in line_of_id:
                raise BadRowError(
                    f"its id {problem.id!r} is also that of line {line_of_id[problem.id]}; ids name one row"
                )
        except BadRowError as error:
            faults.append(f"  line {number}: {error}")
            continue
        line_of_id[problem.id] = number
        problems.append(problem)
    if faults:
        shown = faults[:_SHOWN_ROWS]
        more = f"\n  and {len(faults) - len(shown)} more" if len(faults) > len(shown) else ""
        raise DataError(
            f"{path}: {len(faults)} of {len(faults) + len(problems)} rows cannot be used; correct or remove them:\n"
            + "\n".join(shown)
            + more
        )
    if not problems:
        raise DataError(f"{path} has no rows; it needs one JSON object a line, with a prompt and an answer")
    return tuple(problems)


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank with their numbers from 1. Only a line feed ends a line."""
    try:
        content = path.expanduser().read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist (looked for {path.expanduser().absolute()}); correct the path"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; give the path of a readable file") from error
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _to_problem(line: bytes, layout: Format, default_id: str) -> Problem:
    row = _parse(line)
    answer = _answer(row, layout)
    messages = _messages(row, layout)
    used = (layout.prompt_column, layout.answer_column, layout.id_column)
    return Problem(
        id=_id(row, layout.id_column, default_id),
        messages=messages,
        answer=answer,
        info={name: _plain(value) for name, value in row.items() if name not in used},
    )


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line.decode(), parse_float=FloatText, parse_int=IntegerText, parse_constant=FloatText)
    except UnicodeDecodeError as error:
        raise BadRowError(f"not UTF-8 (byte {error.start + 1} of the line); save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise BadRowError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise BadRowError("not usable JSON: it is nested too deeply") from error
    if not isinstance(row, dict):
        raise BadRowError(f"not a JSON object but {_kind(row)}")
    return row


def _column(row: Mapping[str, Any], column: str, setting: str) -> Any:
    if row.get(column) is not None:
        return row[column]
    if column in row:
        raise BadRowError(f"its {column!r} is null")
    close = get_close_matches(column, list(row), n=1)
    hint = f"did you mean {setting} = {close[0]!r}?" if close else f"name the right one with {setting}"
    raise BadRowError(f"has no {column!r}; its columns are {', '.join(map(repr, row)) or 'none'}; {hint}")


def _answer(row: Mapping[str, Any], layout: Format) -> str:
    answer = _column(row, layout.answer_column, "answer_column")
    if isinstance(answer, FloatText):
        raise BadRowError(
            f"its answer {answer} is a decimal number, which may have lost digits; "
            "write an integer with all its digits, or any other answer as text in quotes"
        )
    if not isinstance(answer, str):
        raise BadRowError(f"its answer is {_kind(answer)}; it must be text or an integer")
    text = str(answer).strip()
    if not text:
        raise BadRowError("its answer is empty")
    if layout.integer_answers and canonical_integer(text) is None:
        shown = text if len(text) <= 60 else text[:60] + "..."
        raise BadRowError(
            f"its answer {shown!r} is no integer, which match = 'integer' needs; "
            "set match = 'exact' or a reward of your own"
        )
    return text


def _messages(row: Mapping[str, Any], layout: Format) -> tuple[Message, ...]:
    prompt = _column(row, layout.prompt_column, "prompt_column")
    if isinstance(prompt, str) and not isinstance(prompt, (FloatText, IntegerText)):
        if not prompt.strip():
            raise BadRowError("its prompt is empty")
        return to_messages(prompt, layout.system)
    if not isinstance(prompt, list):
        raise BadRowError(f"its prompt is {_kind(prompt)}; it must be text or a list of messages")
    messages = tuple(_message(number, message) for number, message in enumerate(prompt, start=1))
    if not messages or messages[-1].role != "user":
        raise BadRowError("its messages must end with one of the role 'user', for the policy to reply to")
    if layout.system is None:
        return messages
    if any(message.role == "system" for message in messages):
        raise BadRowError("it has a system message, and the recipe sets system too; keep one of them")
    return (Message(role="system", content=layout.system), *messages)


def _message(number: int, message: Any) -> Message:
    if not isinstance(message, dict):
        raise BadRowError(f'message {number} is {_kind(message)}; it must be {{"role": ..., "content": ...}}')
    for key in "role", "content":
        if type(message.get(key)) is not str:
            raise BadRowError(f"message {number} has no text under {key!r}; it must have role and content")
    if message["role"] not in _ROLES:
        raise BadRowError(f"message {number} has the unknown role {message['role']!r}; roles are {', '.join(_ROLES)}")
    if not message["content"].strip():
        raise BadRowError(f"message {number} has empty content")
    extra = [key for key, value in message.items() if key not in ("role", "content") and value is not None]
    if extra:
        raise BadRowError(f"message {number} has {extra[0]!r}, which would be lost; only role and content are used")
    return Message(role=message["role"], content=message["content"])


def _id(row: Mapping[str, Any], column: str, default: str) -> str:
    name = row.get(column)
    if name is None:
        return default
    if isinstance(name, FloatText) or not isinstance(name, str) or not name.strip():
        raise BadRowError(f"its {column!r} is {_kind(name)}; an id is text or an integer")
    return str(name)


def _plain(value: Any) -> Any:
    """Give numbers of columns that only a user's own reward reads the usual Python types."""
    match value:
        case FloatText():
            return float(value)
        case IntegerText():
            return int(value) if len(value) <= 4000 else str(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case FloatText() | IntegerText():
            return f"the number {value}"
        case str():
            return "empty text" if not value.strip() else "text"
        case list():
            return "a list"
    return "an object"
