"""Groups on their way from the engine to the judge, and the engine that waits for them."""

from __future__ import annotations

import asyncio
import time

from dapo.ports import Engine, Pausable


class Handover:
    """Counts groups that were handed out and are not judged. While there are any the engine waits, `seconds` at most.

    What an engine computes together depends on when prompts are asked for, and that on when groups are judged. With the wait
    it depends on outcomes alone, as long as a scorer answers in time. The wait is from the first of the groups on: scorers
    that are slower stop the engine once, and not again until all of theirs are judged.
    """

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine if isinstance(engine, Pausable) else None
        self._seconds = seconds
        self._unjudged = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def hand_out(self) -> None:
        """A group has come from the engine. To be called in the moment that it comes."""
        self._unjudged += 1
        if self._unjudged > 1 or self._seconds <= 0:
            return
        self._deadline = time.monotonic() + self._seconds
        if self._engine is not None:
            self._engine.pause()
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.let_go)

    def judge(self) -> None:
        """One of the groups is judged."""
        self._unjudged -= 1

    @property
    def seconds_left(self) -> float:
        """How long to wait for groups that are about to be judged; 0 where there is none, or no time."""
        return max(0.0, self._deadline - time.monotonic()) if self._unjudged else 0.0

    def let_go_if_all_judged(self) -> None:
        """Let the engine go on, unless there are groups that it waits for."""
        if self._unjudged == 0:
            self.let_go()

    def let_go(self) -> None:
        """Let the engine go on whatever there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._engine is not None:
            self._engine.go_on()
