"""Calls a user's asynchronous function without letting it stop the run: in an event loop of its own, within a limit.

Consumes: calls. Waits for: the coroutine. Produces: what it returned, or its exception. Unblocked by: the limit, after which
the coroutine is cancelled, or left to itself if it does not listen; a loop that a coroutine blocks is left to itself too, and
another one takes the other calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dapo.tasks.answer import MOST_HANGING, CallTimeout, harmless
from dapo.tasks.calling import MAIN_THREAD_ONLY
from dapo.tasks.own_loop import Asked, OwnLoop

_GRACE_SECONDS = 1.0
"""How long a call that was cancelled may take to end, and a loop to take a turn when it is in doubt."""

_BLOCKED_SECONDS = 100.0
"""How long a function without a limit of its own may hold up its loop."""

_AGAIN = object()
"""The answer to a call whose loop was left alone through no fault of its own."""


class AsyncCaller:
    """Makes the calls of one function, as many at once as are asked for.

    A call is given up when `seconds` have passed since it was asked for and since any call ended: where calls wait for each
    other, each that ends gives the others time. A loop that takes no turn for as long is left to itself; the call that
    holds it up is given up, and the others are made anew in another loop.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._seconds = seconds
        self._blocked_seconds = seconds if math.isfinite(seconds) else _BLOCKED_SECONDS
        self._own: OwnLoop | None = None
        self._under_way: set[Asked] = set()
        self._doubted: Asked | None = None
        self._last = -math.inf
        self._given_up: list[Asked] = []
        self._left_alone: list[Asked] = []
        self._in_main_thread = False

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return what the function returns, or what that comes to when awaited. Raises what it raises, and CallTimeout.

        A function that sets signal handlers works in the main thread alone; from its first complaint on it is called
        there, and without a limit.
        """
        while not self._in_main_thread:
            own = await self._loop()
            asked = own.ask(lambda: function(*arguments))
            self._under_way.add(asked)
            try:
                value = await self._value(own, asked)
            except ValueError as error:
                if MAIN_THREAD_ONLY not in str(error):
                    raise
                self._in_main_thread = True
            else:
                if value is not _AGAIN:
                    return value
            finally:
                self._under_way.discard(asked)
                if not asked.answer.future.done():  # whoever asked has given up
                    self._doubted = asked
                    self._given_up.append(asked)
                    own.cancel(asked)
        return await _called_here(function, *arguments)

    async def _value(self, own: OwnLoop, asked: Asked) -> Any:
        """The answer. Raises what the function raises, and CallTimeout."""
        answer = asked.answer.future
        while not answer.done():
            await asyncio.wait({answer}, timeout=min(self._blocked_seconds, max(0.0, self._left(asked))))
            if answer.done():
                break
            if not await own.answers(self._blocked_seconds, unless=answer):
                self._leave(own, asked)
            elif not answer.done() and self._left(asked) <= 0:
                raise await self._give_up(own, asked)
        self._last = time.monotonic()
        return answer.result()

    def _left(self, asked: Asked) -> float:
        """Seconds until a call is given up."""
        return max(asked.asked, self._last) + self._seconds - time.monotonic()

    async def _give_up(self, own: OwnLoop, asked: Asked) -> CallTimeout:
        """Cancel a call, and give it a moment to end."""
        own.cancel(asked)
        await asyncio.wait({asked.answer.future}, timeout=_GRACE_SECONDS)
        if not asked.answer.future.done():
            self._given_up.append(asked)
        timeout = self._timeout(self._seconds)
        asked.answer.settle(None, timeout)
        return timeout

    def _leave(self, own: OwnLoop, suspect: Asked) -> None:
        """Leave a loop that takes no turn to itself. `suspect` is to blame where it cannot be told who holds it up."""
        if own is not self._own:
            return
        blocker = own.blocker() or suspect
        self._own, self._doubted, self._given_up = None, None, []
        self._left_alone.append(blocker)
        for asked in self._under_way:
            own.cancel(asked)  # should the loop ever go on
            if asked is blocker:
                asked.answer.settle(None, self._timeout(self._blocked_seconds))
            else:
                asked.answer.settle(_AGAIN)

    async def _loop(self) -> OwnLoop:
        """The loop to ask; another one, if a call was given up and the loop takes no turn any more."""
        own, doubted = self._own, self._doubted
        if own is not None and doubted is not None:
            if not await own.answers(_GRACE_SECONDS):
                self._leave(own, doubted)
            elif self._doubted is doubted:
                self._doubted = None
        if self._hanging() >= MOST_HANGING:
            raise self._timeout(None)
        if self._own is None:
            self._own = OwnLoop()
        return self._own

    def _timeout(self, seconds: float | None) -> CallTimeout:
        return CallTimeout(seconds, self._hanging())

    def _hanging(self) -> int:
        """How many calls hold up a loop that was left alone, or go on long after they were given up."""
        self._left_alone = [asked for asked in self._left_alone if not asked.is_over]
        self._given_up = [asked for asked in self._given_up if not asked.is_over]
        late = time.monotonic() - _GRACE_SECONDS
        return len(self._left_alone) + sum(asked.given_up is None or asked.given_up <= late for asked in self._given_up)


async def _called_here(function: Callable[..., Any], *arguments: object) -> Any:
    """Call in the loop of who asks. Raises what the function raises, but nothing that would end who asks."""
    asking = asyncio.current_task()
    try:
        value = function(*arguments)
        return await value if isinstance(value, Awaitable) else value
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and asking is not None and asking.cancelling():
            raise
        raise harmless(error) from error
