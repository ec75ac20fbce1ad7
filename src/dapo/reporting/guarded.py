"""A reporter that may fail: what it raises is told once and never stops training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from dapo.ports import Reporter

_log = logging.getLogger(__name__)

FAILURES = 3
"""After so many failures on end a reporter is not asked again."""


class GuardedReporter:
    """Passes on to a reporter until it has failed too often."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._name = type(reporter).__name__
        self._failed = 0
        self._has_told = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report one step, if the reporter still serves."""
        if self._failed < FAILURES:
            self._failed = (
                0 if self._tried(lambda: self._reporter.write(step, metrics), f"step {step}") else self._failed + 1
            )

    def close(self) -> None:
        """Flush and free."""
        self._tried(self._reporter.close, "its end")

    def _tried(self, work: Callable[[], None], what: str) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training goes on
            if not self._has_told:
                _log.warning(
                    "The reporter %s failed at %s (%s: %s). Training goes on; metrics.jsonl has every number. After %d "
                    "failures on end it is left out.",
                    self._name,
                    what,
                    type(error).__name__,
                    error,
                    FAILURES,
                )
            self._has_told = True
            return False
        return True
