"""A pause between two steps of an engine."""

from __future__ import annotations

import asyncio


class Pause:
    """Whoever works calls `wait` between two steps; it returns at once unless `begin` was called and `end` was not."""

    def __init__(self) -> None:
        self._end: asyncio.Event | None = None

    def begin(self) -> None:
        """Make whoever waits next wait."""
        if self._end is None:
            self._end = asyncio.Event()

    def end(self) -> None:
        """Let go of whoever waits."""
        if self._end is not None:
            self._end.set()
            self._end = None

    async def wait(self) -> None:
        """Return once there is no pause."""
        while self._end is not None:
            await self._end.wait()
