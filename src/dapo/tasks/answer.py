"""What a call of a user's function came to, on its way from the thread that made it to the event loop that asked."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

_NOT_TO_BE_RAISED = (StopIteration, StopAsyncIteration, concurrent.futures.CancelledError)
"""Exceptions that mean something to a coroutine or a future that they are raised in: it would end, or be cancelled."""


MOST_HANGING = 4
"""So many calls that never come back end the run: each holds a thread, or goes on beside the others."""


class CallTimeout(Exception):
    """A call did not come back in time. `hanging` calls have not come back by now. `seconds` None: others were given up."""

    def __init__(self, seconds: float | None, hanging: int) -> None:
        super().__init__("was given up" if seconds is None else f"took more than {seconds:g} seconds")
        self.hanging = hanging


class Answer:
    """Made by who asks, given from any thread. Once nobody waits any more it may be given in vain."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        # Whoever asked may be gone when the answer comes; an error that nobody reads would be printed by asyncio.
        self.future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def give(self, value: object) -> None:
        """Answer with a value, from another thread."""
        self._from_thread(self.future.set_result, value)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, from another thread."""
        self._from_thread(self.future.set_exception, harmless(error))

    def settle(self, value: object, error: Exception | None = None) -> None:
        """Answer from the loop that asked; what comes later is not looked at."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)

    def _from_thread(self, give: Callable[[Any], None], value: object) -> None:
        def give_if_wanted() -> None:
            if not self.future.done():
                give(value)

        try:
            self._loop.call_soon_threadsafe(give_if_wanted)
        except RuntimeError:
            return  # the loop that asked is closed: the run is over


def harmless(error: BaseException) -> Exception:
    """The error itself; a RuntimeError that names it where raising it would end the process, a task or a coroutine."""
    if isinstance(error, Exception) and not isinstance(error, _NOT_TO_BE_RAISED):
        return error
    named = RuntimeError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    named.__cause__ = error
    return named
