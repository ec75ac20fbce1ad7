from __future__ import annotations

import errno
import io
import logging
from collections.abc import Mapping

import pytest

from dapo.reporting.console import Console
from dapo.reporting.guarded import FAILURES, GuardedConsole, GuardedReporter


class Tracker:
    """Fails at these steps, and when it is closed."""

    def __init__(self, *fails_at: int) -> None:
        self._fails_at = fails_at
        self.steps: list[int] = []

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append(step)
        if step in self._fails_at:
            raise ConnectionError("the tracker is gone")

    def close(self) -> None:
        raise ConnectionError("the tracker is gone")


def test_a_lost_tracker_is_told_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GuardedReporter(tracker := Tracker(*range(2, 99)))
    with caplog.at_level(logging.WARNING):
        for step in range(1, 9):
            guarded.write(step, {"reward/mean": 0.5})
        guarded.close()
    assert tracker.steps == list(range(1, 2 + FAILURES))  # after so many failures it is not asked again
    assert len(caplog.messages) == 1
    assert "Tracker failed at step 2 (ConnectionError: the tracker is gone). Training goes on" in caplog.messages[0]


def test_a_failure_now_and_then_is_no_reason_to_give_up(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GuardedReporter(tracker := Tracker(1, 2, 4, 5, 7))
    for step in range(1, 10):
        guarded.write(step, {})
    assert tracker.steps == list(range(1, 10)) and len(caplog.messages) == 1


class ClosedTerminal(io.StringIO):
    """Fails from here on; with a bar or without one."""

    def __init__(self, number: int, *, is_terminal: bool) -> None:
        super().__init__()
        self._number = number
        self._is_terminal = is_terminal
        self.tries = 0

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.tries += 1
        raise OSError(self._number, "gone")


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_nothing_that_is_said_on_a_closed_terminal_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, is_terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = ClosedTerminal(number, is_terminal=is_terminal)
    console = GuardedConsole(Console(9, stream))
    tries = []
    for step in range(1, 6):
        console.stage("generate")
        console.note("a message")
        console.write(step, {"reward/mean": 0.5})
        tries.append(stream.tries)
    console.close()
    assert tries == sorted(set(tries))  # asked again each time: a disk may have room later
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("The screen failed at ") and "Training goes on" in caplog.messages[0]
