"""Reporters and a screen that may fail: what they raise is told once and never stops training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from dapo.ports import Reporter
from dapo.reporting.console import Console

_log = logging.getLogger(__name__)

FAILURES = 3
"""After so many failures on end a reporter is not asked again."""


class GuardedReporter:
    """Passes on to a reporter until it has failed too often."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._guard = _Guard(
            f"The reporter {type(reporter).__name__}", f" After {FAILURES} failures on end it is left out."
        )
        self._failed = 0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report one step, if the reporter still serves."""
        if self._failed < FAILURES:
            is_done = self._guard.tried(lambda: self._reporter.write(step, metrics), f"step {step}")
            self._failed = 0 if is_done else self._failed + 1

    def close(self) -> None:
        """Flush and free."""
        self._guard.tried(self._reporter.close, "its end")


class GuardedConsole:
    """Passes on to a console whose terminal may be closed at any time. It is asked again each time: a disk that is full
    may have room later."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._guard = _Guard("The screen")

    def stage(self, name: str) -> None:
        """Say what is running now."""
        self._guard.tried(lambda: self._console.stage(name), f"the stage {name}")

    def note(self, text: str) -> None:
        """Print a message."""
        self._guard.tried(lambda: self._console.note(text), "a message")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the line of a step."""
        self._guard.tried(lambda: self._console.write(step, metrics), f"step {step}")

    def close(self) -> None:
        """Take the bar away."""
        self._guard.tried(self._console.close, "its end")


class _Guard:
    """Tries work, and tells the first failure."""

    def __init__(self, name: str, advice: str = "") -> None:
        self._name = name
        self._advice = advice
        self._has_told = False

    def tried(self, work: Callable[[], None], what: str) -> bool:
        """Whether the work was done."""
        try:
            work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - training goes on; rich ends the process at a broken pipe
            if not self._has_told:
                _log.warning(
                    "%s failed at %s (%s: %s). Training goes on; metrics.jsonl has every number.%s",
                    self._name,
                    what,
                    type(error).__name__,
                    error,
                    self._advice,
                )
            self._has_told = True
            return False
        return True
