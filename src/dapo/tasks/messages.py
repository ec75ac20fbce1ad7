"""Makes the messages of a problem."""

from __future__ import annotations

from dapo.types import Message


def to_messages(question: str, system: str | None) -> tuple[Message, ...]:
    """Return the question as the user's message, after the system message if there is one."""
    user = Message(role="user", content=question)
    return (user,) if system is None else (Message(role="system", content=system), user)
