"""One row as every layout gives it: messages, an answer with where it came from, and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dapo.data.rows import FloatText, IntegerText, Values, plain
from dapo.types import Message


class Origin(StrEnum):
    """How the file holds an answer."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    MISSING = "missing"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as text, and how the file holds it. A float keeps the text that the file or Python writes it with."""

    text: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row. `row` counts from 0 over the files in order. `values` is the row as it stands, `used` its columns that
    hold the prompt and the answer."""

    row: int
    id: str
    messages: tuple[Message, ...]
    answer: Answer
    values: Values
    used: frozenset[str]

    @property
    def info(self) -> dict[str, Any]:
        """The other columns, their numbers as Python's."""
        return {name: plain(value) for name, value in self.values.items() if name not in self.used}

    @property
    def text(self) -> str:
        """What is asked: the contents of all messages."""
        return self.messages[0].content if len(self.messages) == 1 else "\n\n".join(m.content for m in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A row that gives no prompt, and why."""

    row: int
    id: str
    reason: str


def read_answer(value: Any) -> Answer:
    """Return an answer as text. Integers of any size keep their digits; a float is marked as one.

    >>> read_answer(105263157894736842).text
    '105263157894736842'
    """
    match value:
        case None:
            return Answer(text="", origin=Origin.MISSING)
        case bool():
            return Answer(text=str(value), origin=Origin.OTHER)
        case IntegerText():
            return Answer(text=str(value), origin=Origin.INTEGER)
        case FloatText():
            return Answer(text=str(value), origin=Origin.FLOAT)
        case str():
            return Answer(text=value.strip(), origin=Origin.TEXT if value.strip() else Origin.MISSING)
        case int():
            return Answer(text=str(value), origin=Origin.INTEGER)
        case float():
            return Answer(text=repr(value), origin=Origin.FLOAT)
        case Decimal():
            whole = value.is_finite() and value == value.to_integral_value()
            return Answer(text=f"{value:.0f}" if whole else str(value), origin=Origin.INTEGER if whole else Origin.TEXT)
    return Answer(text=str(value), origin=Origin.OTHER)


_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "system": "system", "assistant": "assistant"}


def read_messages(value: Any) -> tuple[Message, ...]:
    """Return text or a list of messages (role and content, or from and value) as messages. Raises ValueError."""
    if isinstance(value, FloatText | IntegerText) or value is None or not isinstance(value, str | list):
        raise ValueError("it has no prompt" if value is None else "its prompt is neither text nor a list of messages")
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    messages = tuple(_read_message(item) for item in value)
    if not messages or messages[-1].role != "user":
        raise ValueError("its last message is not the user's, so there is nothing to reply to")
    return messages


def _read_message(item: Any) -> Message:
    if not isinstance(item, dict):
        raise ValueError("one of its messages is not an object")
    role = item.get("role", item.get("from"))
    content = item.get("content", item.get("value"))
    if role not in _ROLES or not isinstance(content, str):
        raise ValueError("one of its messages has no known role with a text")
    return Message(role=_ROLES[role], content=content)
