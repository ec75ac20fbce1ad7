from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator

import pytest

from dapo.ports import Reporter
from dapo.reporting.console import Console, is_live

STEP = {
    "reward/mean": -0.519,
    "reward/accuracy_all": 0.24,
    "sampling/groups_kept": 8,
    "sampling/groups_generated": 14,
    "policy/entropy": 1.82,
    "length/mean": 11.3,
    "length/truncated": 0.02,
    "optim/grad_norm": 0.91,
    "time/step": 41.2,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Latin(io.StringIO):
    encoding = "latin-1"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    yield Terminal()


def seconds() -> Iterator[float]:
    """A clock that goes ten seconds at every look."""
    now = 0.0
    while True:
        yield now
        now += 10.0


def test_a_log_gets_one_plain_line_a_step() -> None:
    stream = io.StringIO()
    console = Console(12, stream)
    console.stage("generate")
    console.write(3, STEP)
    console.close()
    assert stream.getvalue() == (
        "step  3/12  reward -0.52  accuracy 24.0%  kept 8/14  entropy 1.82  length 11.3  truncated 2%  grad 0.91"
        "  41 s  left 6 min\n"
    )


def test_time_left_is_the_mean_of_the_steps_seen_times_the_steps_to_go() -> None:
    stream = io.StringIO()
    console = Console(4, stream)
    console.write(1, {"time/step": 20.0})
    console.write(2, {"time/step": 40.0})
    console.write(3, {"time/step": 30.0})
    console.write(4, {"time/step": 30.0})
    assert stream.getvalue() == (
        "step 1/4  20 s  left 60 s\nstep 2/4  40 s  left 60 s\nstep 3/4  30 s  left 30 s\nstep 4/4  30 s\n"
    )


def test_without_the_step_time_the_clock_between_two_steps_is_used() -> None:
    stream = io.StringIO()
    console = Console(3, stream, clock=seconds().__next__)
    console.write(1, {})
    console.write(2, {})
    assert stream.getvalue() == "step 1/3  10 s  left 20 s\nstep 2/3  10 s  left 10 s\n"


def test_a_number_that_is_not_finite_is_shown_and_does_not_spoil_the_time_left() -> None:
    stream = io.StringIO()
    Console(3, stream).write(1, {"optim/grad_norm": math.nan, "time/step": math.nan})
    assert stream.getvalue() == "step 1/3  grad nan  ? s\n"


def test_a_note_cannot_carry_control_codes() -> None:
    stream = io.StringIO()
    Console(3, stream).note("careful: \x1b[31mred\x1b[0m")
    assert stream.getvalue() == "careful: ␛[31mred␛[0m\n"


def test_a_stream_with_few_letters_gets_escapes_and_no_error() -> None:
    stream = Latin()
    Console(3, stream).note("é → 中")
    assert stream.getvalue() == "é \\u2192 \\u4e2d\n"


def test_no_colour_and_dumb_terminals_get_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_live(terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_live(terminal)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(terminal)
    Console(2, terminal).write(1, {"reward/mean": 1.0, "time/step": 2.0})
    assert terminal.getvalue() == "step 1/2  reward 1.00  2.0 s  left 2.0 s\n"


def test_a_terminal_shows_lines_and_below_them_step_stage_and_time_left(terminal: Terminal) -> None:
    console = Console(12, terminal, clock=seconds().__next__)
    console.stage("generate")
    console.write(3, STEP)
    console.note("careful [bold]now[/bold]")
    console.stage("train")
    console.close()
    console.close()
    text = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "step  3/12  reward -0.52  accuracy 24.0%  kept 8/14" in text
    assert "careful [bold]now[/bold]" in text
    assert re.search(r"step 0/12 .* 0% .* generate \d+ s", text)
    assert re.search(r"step 3/12 .* 25%  left 6 min  train \d+ s", text)


def test_the_bar_is_taken_away_at_the_end(terminal: Terminal) -> None:
    console = Console(2, terminal)
    console.stage("generate")
    console.close()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")


def test_closing_what_never_began_writes_nothing(terminal: Terminal) -> None:
    Console(2, terminal).close()
    assert terminal.getvalue() == ""


def test_it_is_a_reporter() -> None:
    assert isinstance(Console(1, io.StringIO()), Reporter)
