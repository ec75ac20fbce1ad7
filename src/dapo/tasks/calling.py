"""Calls a user's function without letting it stop the run: in a thread of its own, one call at a time, within a limit.

Consumes: calls. Waits for: the function. Produces: what it returned, or its exception. Unblocked by: the limit, after which
the thread is left to itself and another takes the calls that wait.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dapo.tasks.answer import Answer, CallTimeout, harmless

MAIN_THREAD_ONLY = "signal only works in main thread"


@dataclass(slots=True, kw_only=True, eq=False)
class _Call:
    work: Callable[[], Any]
    answer: Answer = field(default_factory=Answer)
    started: float | None = None


class Caller:
    """Makes the calls of one function; the limit counts from when a call begins, not from when it is asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._left_alone: list[threading.Thread] = []
        self._in_main_thread = False

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return what the function returns. Raises what it raises, and CallTimeout.

        A function that sets signal handlers works in the main thread alone; from its first complaint on it is called
        there, and without a limit.
        """
        if self._in_main_thread:
            return _called_here(function, *arguments)
        call = _Call(work=lambda: function(*arguments))
        self._calls.put(call)
        if self._worker is None:
            self._start()
        answer = call.answer.future
        while not answer.done():
            left = self._seconds if call.started is None else call.started + self._seconds - time.monotonic()
            if left <= 0:
                raise self._give_up(call)
            await asyncio.wait({answer}, timeout=left)
        try:
            return answer.result()
        except ValueError as error:
            if MAIN_THREAD_ONLY not in str(error):
                raise
            self._in_main_thread = True
            return _called_here(function, *arguments)

    def _start(self) -> None:
        self._worker = threading.Thread(target=self._work, name="dapo-reward", daemon=True)
        self._worker.start()

    def _give_up(self, call: _Call) -> CallTimeout:
        assert self._worker is not None
        self._left_alone = [thread for thread in [*self._left_alone, self._worker] if thread.is_alive()]
        self._start()
        return CallTimeout(self._seconds, len(self._left_alone))

    def _work(self) -> None:
        while self._worker is threading.current_thread():
            call = self._calls.get()
            call.started = time.monotonic()
            try:
                value = call.work()
            except BaseException as error:  # noqa: BLE001 - handed to who asked; a reward may not end the run by sys.exit
                call.answer.fail(error)
            else:
                call.answer.give(value)


def _called_here(function: Callable[..., Any], *arguments: object) -> Any:
    """Call in the thread of who asks. Raises what the function raises, but nothing that would end who asks."""
    try:
        return function(*arguments)
    except BaseException as error:
        raise harmless(error) from error
