"""Where the time of a step went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dapo.types import Stat, Total


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - started

    def stats(self) -> dict[str, Stat]:
        """`time/STAGE` for each stage, and `time/step` for all since the clock was made."""
        stages: dict[str, Stat] = {f"time/{stage}": Total(value=seconds) for stage, seconds in self._seconds.items()}
        return stages | {"time/step": Total(value=time.perf_counter() - self._started)}
