"""Ctrl-C and its kin: end at once while nothing has been written, end cleanly after saving once something has."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

Handler = Callable[[int, FrameType | None], None]

INTERRUPTED = 130
"""The exit code of a process that was interrupted, as a shell would give it."""

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
_ENDING = [signal.SIGINT, signal.SIGTERM, *([_HANGUP] if _HANGUP is not None else [])]


@contextmanager
def ends_at_once() -> Iterator[None]:
    """While models and libraries are loaded, Ctrl-C, SIGTERM or a closed terminal end the process there and then.

    As an exception it could be caught half-way, by a library that takes it for a failed import.
    """
    with _handling(_ENDING, _end_at_once):
        yield


@contextmanager
def stops_cleanly(stop: asyncio.Event, note: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM or a closed terminal set `stop`, so that the loop saves and ends; once more ends at once.

    A terminal that is closed may say so several times, the system first and then the shell: that is nobody's impatience.

    The handler runs between two steps of the main thread, so it acts even where somebody's code blocks the event loop.
    """
    loop = asyncio.get_running_loop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            if number != _HANGUP:
                _end_at_once(number, frame)
            return
        stop.set()
        loop.call_soon_threadsafe(lambda: None)  # wakes the loop, should it sleep
        note(f"{signal.Signals(number).name} received: saving and stopping (once more to stop without saving)")

    with _handling(_ENDING, ask):
        yield


def _end_at_once(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # the terminal may be gone
        os.write(2, b"\ndapo: interrupted\n")  # past the stream's buffer, which may be in use at this moment
    os._exit(INTERRUPTED)


@contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in numbers}
    if _HANGUP is not None and before.get(_HANGUP) is signal.SIG_IGN:
        del before[_HANGUP]  # `nohup` has asked for that
    try:
        for number in before:
            signal.signal(number, handler)
    except ValueError:  # not in the main thread: a program that calls us keeps its own handlers
        yield
        return
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


async def unless_stopped(work: Coroutine[Any, Any, T] | Awaitable[T], stop: asyncio.Event) -> T | None:
    """Await `work`, or give it up and return None once `stop` is set."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    finally:
        stopping.cancel()
        if not task.done():
            task.cancel()
