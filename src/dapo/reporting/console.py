"""Progress for a person: a live bar on a terminal, one plain line a step anywhere else."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dapo.reporting.text import duration, visible

_REFRESHES_PER_SECOND = 2  # enough for a clock that shows seconds, and next to nothing of a small machine


class Console:
    """A Reporter that writes to a terminal or a log.

    On a terminal every step leaves one line, and below the lines a bar shows step, stage and time left. Where the
    stream is no terminal, or the environment has NO_COLOR or TERM=dumb, there are the lines alone, without control
    codes. `total_steps` is the number of the last step; `stream` is standard error unless given; `clock` gives seconds.
    """

    def __init__(
        self, total_steps: int, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total_steps = total_steps
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._last_write = clock()
        self._seconds_of_steps: list[float] = []
        self._bar = _Bar(self._stream, total_steps, clock) if is_live(self._stream) else None

    def stage(self, name: str) -> None:
        """Say what is running now, e.g. `generate`; shown on a terminal only."""
        if self._bar is not None:
            self._bar.show_stage(name)

    def note(self, text: str) -> None:
        """Print a message, such as a warning, above the bar."""
        self._print(visible(text))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the line of a step. A metric that is missing is left out of the line."""
        now = self._clock()
        seconds = metrics.get("time/step", now - self._last_write)
        self._last_write = now
        if math.isfinite(seconds):
            self._seconds_of_steps.append(seconds)
        left = self._seconds_left(step)
        parts = step_parts(step, self._total_steps, metrics, seconds)
        if self._bar is not None:
            self._print("  ".join(parts))
            self._bar.show_step(step, left)
            return
        self._print("  ".join([*parts, f"left {duration(left)}"] if left else parts))

    def close(self) -> None:
        """Take the bar away; the lines stay. A second call does nothing."""
        if self._bar is not None:
            self._bar.close()

    def _seconds_left(self, step: int) -> float:
        """Steps to go, times the mean time of the steps seen by this process."""
        if not self._seconds_of_steps:
            return 0.0
        mean = sum(self._seconds_of_steps) / len(self._seconds_of_steps)
        return mean * max(0, self._total_steps - step)

    def _print(self, text: str) -> None:
        # A log in a narrow encoding must not stop a run because a message has a letter that it lacks.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, errors="backslashreplace").decode(encoding)
        if self._bar is not None:
            self._bar.print_above(text)
            return
        self._stream.write(text + "\n")
        self._stream.flush()


def is_live(stream: TextIO) -> bool:
    """Return whether a bar may be drawn on `stream`: a terminal that has cursor movement, and no wish against it."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def step_parts(step: int, total_steps: int, metrics: Mapping[str, float], seconds: float) -> list[str]:
    """Return the parts of a step's line, e.g. `["step  3/12", "reward -0.52", "accuracy 24.0%", …, "41 s"]`."""
    width = len(str(total_steps))
    parts = [f"step {step:>{width}}/{total_steps}"]
    parts += _part("reward", metrics.get("reward/mean"), "{:.2f}")
    parts += _part("accuracy", metrics.get("reward/accuracy_all"), "{:.1%}")
    kept, generated = metrics.get("sampling/groups_kept"), metrics.get("sampling/groups_generated")
    if kept is not None and generated is not None:
        parts.append(f"kept {kept:.0f}/{generated:.0f}")
    parts += _part("entropy", metrics.get("policy/entropy"), "{:.2f}")
    parts += _part("length", metrics.get("length/mean"), "{:.1f}")
    parts += _part("truncated", metrics.get("length/truncated"), "{:.0%}")
    parts += _part("grad", metrics.get("optim/grad_norm"), "{:.2f}")
    parts.append(duration(seconds) if math.isfinite(seconds) else "? s")
    return parts


def _part(label: str, value: float | None, form: str) -> list[str]:
    return [] if value is None else [f"{label} {form.format(value)}"]


class _Bar:
    """The live line at the bottom of a terminal. It appears with the first stage, step or message."""

    def __init__(self, stream: TextIO, total_steps: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._total_steps = total_steps
        self._step = 0
        self._left = 0.0
        self._stage = ""
        self._stage_since = clock()
        # Standard output stays as it is: it may carry a result that a program reads.
        self._live = Live(
            console=RichConsole(file=stream, force_terminal=True, highlight=False),
            get_renderable=self._render,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
        )

    def show_stage(self, name: str) -> None:
        self._stage, self._stage_since = visible(name), self._clock()
        self._live.start(refresh=True)

    def show_step(self, step: int, seconds_left: float) -> None:
        self._step, self._left, self._stage = step, seconds_left, ""
        self._live.start()
        self._live.refresh()

    def print_above(self, text: str) -> None:
        self._live.start()
        self._live.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> Table:
        row = Table.grid(padding=(0, 2))
        now = f"{self._stage} {duration(self._clock() - self._stage_since)}" if self._stage else ""
        left = f"left {duration(self._left)}" if self._left else ""
        share = self._step / self._total_steps if self._total_steps else 0.0
        row.add_row(
            Text(f"step {self._step}/{self._total_steps}"),
            ProgressBar(total=max(1, self._total_steps), completed=self._step, width=24),
            Text(f"{share:.0%}"),
            Text(left),
            Text(now),
        )
        return row
