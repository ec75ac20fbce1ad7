"""An event loop of its own for a user's asynchronous code, in a daemon thread.

Nothing here is ever waited for without a limit, so that neither a coroutine that will not be cancelled, nor one that blocks,
nor what it has left in the loop's threads can keep the program from going on, or from ending.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dapo.tasks.answer import Answer, harmless

_MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""As many as asyncio's own default executor has."""


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Asked:
    """One call in a loop; `asked` and `given_up` are times of the monotonic clock."""

    work: Callable[[], Any]
    answer: Answer = field(default_factory=Answer)
    asked: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None
    given_up: float | None = None
    is_over: bool = False


class OwnLoop:
    """Runs calls, many at once. All methods are called from the thread of who asks."""

    def __init__(self) -> None:
        self._owners: weakref.WeakKeyDictionary[asyncio.Task[Any], Asked] = weakref.WeakKeyDictionary()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads())
        self._loop.set_task_factory(partial(_owned_task, self._owners))
        self.thread = threading.Thread(target=_run, args=(self._loop,), name="dapo-reward-loop", daemon=True)
        self.thread.start()
        weakref.finalize(self, _stop, self._loop).atexit = False

    def ask(self, work: Callable[[], Any]) -> Asked:
        """Begin a call. What `work` returns is awaited, if it can be."""
        asked = Asked(work=work)
        self._loop.call_soon_threadsafe(_begin, self._loop, self._owners, asked)
        return asked

    def cancel(self, asked: Asked) -> None:
        """Ask a call to end; it may not listen."""
        asked.given_up = asked.given_up or time.monotonic()
        self._loop.call_soon_threadsafe(lambda: asked.task is not None and asked.task.cancel())

    async def answers(self, seconds: float, *, unless: asyncio.Future[Any] | None = None) -> bool:
        """Whether the loop takes a turn within so many seconds; true, too, as soon as `unless` is done."""
        turn = Answer()
        self._loop.call_soon_threadsafe(turn.give, None)
        waited = {turn.future} if unless is None else {turn.future, unless}
        done, _ = await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    def blocker(self) -> Asked | None:
        """The call whose code the loop is in; None where that cannot be told."""
        task = asyncio.current_task(self._loop)
        return self._owners.get(task) if task is not None else None


class DaemonThreads(ThreadPoolExecutor):
    """A default executor for a loop, whose threads nobody waits for at the end of the program."""

    def __init__(self, most: int = _MOST_THREADS) -> None:
        super().__init__(1)  # asyncio takes no executor of another class; its own threads are never started
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._most = most
        self._num_started = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in one of the threads."""
        future: Future[Any] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._num_started < self._most:
            self._num_started += 1
            threading.Thread(
                target=_serve, args=(self._calls, self._idle), name=f"dapo-reward-{self._num_started}", daemon=True
            ).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for: the threads end with the program."""


_ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def _serve(calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]], idle: threading.Semaphore) -> None:
    while True:
        future, call = calls.get()
        if future.set_running_or_notify_cancel():
            try:
                value = call()
            except BaseException as error:  # noqa: BLE001 - handed to who asked
                future.set_exception(harmless(error))
            else:
                future.set_result(value)
        del future, call
        idle.release()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except BaseException:  # noqa: BLE001 - a task that the user's code has left alone raised SystemExit
            continue
        break
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        with suppress(BaseException):
            loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


Owners = weakref.WeakKeyDictionary[asyncio.Task[Any], Asked]


def _owned_task(
    owners: Owners, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Make a task as asyncio does, and note which call it belongs to."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    asked = _ASKED.get()
    if asked is not None:
        owners[task] = asked
    return task


def _begin(loop: asyncio.AbstractEventLoop, owners: Owners, asked: Asked) -> None:
    if asked.given_up is None:
        asked.task = loop.create_task(_perform(asked))
        owners[asked.task] = asked
    else:
        asked.is_over = True


async def _perform(asked: Asked) -> None:
    _ASKED.set(asked)
    try:
        value = asked.work()
        if isinstance(value, Awaitable):
            value = await value
    except BaseException as error:  # noqa: BLE001 - handed to who asked; a reward may not end the run by sys.exit either
        asked.answer.fail(error)
    else:
        asked.answer.give(value)
    finally:
        asked.is_over = True
