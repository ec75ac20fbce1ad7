"""A terminal that is closed, a pipe that nobody reads, a full disk behind standard output: none of them ends a run."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.workshop import Workshop

QUICK = ("steps=4", "evaluation.samples=1", "evaluation.every=1", "checkpoint.every=2")
SAVED = ["step-000002", "step-000004"]


Started = subprocess.Popen[bytes]


def start(shop: Workshop, run: str, *overrides: str, out: int, err: int, term: str, own: bool = False) -> Started:
    """Start a training on these streams. `own` makes standard error its terminal, which tells it when it is closed."""
    options = [word for override in (*QUICK, *overrides) for word in ("-o", override)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dapo", "train", "recipe.toml", "--run", run, *options],
        cwd=shop.folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TERM": term},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(err, termios.TIOCSCTTY, 0)) if own else None,
    )
    return process


def wait_for_steps(metrics: Path, count: int, process: Started, drain: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < count:
        assert process.poll() is None and time.monotonic() < deadline, process.returncode
        drain()
        time.sleep(0.02)


def close_in_mid_run(shop: Workshop, run: str, *overrides: str, term: str, own: bool) -> int:
    """Train on a terminal, close that after the first step, and return the exit code."""
    ours, theirs = pty.openpty()
    process = start(shop, run, *overrides, out=theirs, err=theirs, term=term, own=own)
    os.close(theirs)
    os.set_blocking(ours, False)

    def drain() -> None:
        try:
            os.read(ours, 65_536)
        except BlockingIOError:
            return

    wait_for_steps(shop.folder / run / "metrics.jsonl", 1, process, drain)
    os.close(ours)
    return process.wait(timeout=100)


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_terminal_that_cannot_be_written_to_any_more_leaves_the_run_to_its_end(shop: Workshop, term: str) -> None:
    run = f"gone-{term}"
    assert close_in_mid_run(shop, run, term=term, own=False) == 0
    files = shop.run(run)
    assert [line["step"] for line in files.metrics] == [1, 2, 3, 4]
    assert [line["step"] for line in files.evaluations] == [0, 1, 2, 3, 4]
    assert (files.checkpoints, (files.folder / "report.html").is_file()) == (SAVED, True)


def test_a_terminal_that_says_that_it_is_closed_saves_the_run_and_ends_it(shop: Workshop) -> None:
    assert close_in_mid_run(shop, "hung-up", "steps=500", "checkpoint.every=500", term="xterm", own=True) == 0
    files = shop.run("hung-up")
    steps = [line["step"] for line in files.metrics]
    assert len(steps) < 500 and files.checkpoints == [f"step-{len(steps):06d}"]


def test_a_pipe_that_nobody_reads_any_more_leaves_the_run_to_its_end(shop: Workshop) -> None:
    reading, writing = os.pipe()
    process = start(shop, "piped", out=writing, err=writing, term="xterm")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.readline()  # what `head -n 1` reads
    assert process.wait(timeout=100) == 0
    files = shop.run("piped")
    assert ([line["step"] for line in files.metrics], files.checkpoints) == ([1, 2, 3, 4], SAVED)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("which", ["out", "err"])
def test_a_full_disk_behind_a_stream_leaves_the_run_to_its_end(shop: Workshop, tmp_path: Path, which: str) -> None:
    run = f"full-{which}"
    with Path("/dev/full").open("wb") as full, (tmp_path / "other").open("wb") as other:
        streams = {"out": other.fileno(), "err": other.fileno()} | {which: full.fileno()}
        process = start(shop, run, out=streams["out"], err=streams["err"], term="dumb")
        assert process.wait(timeout=100) == 0
    files = shop.run(run)
    assert ([line["step"] for line in files.metrics], files.checkpoints) == ([1, 2, 3, 4], SAVED)
    said = (tmp_path / "other").read_text()
    assert "Traceback" not in said
    if which == "out":
        assert said.endswith("dapo: What was to be printed could not be written: No space left on device.\n")
    else:
        assert said.startswith("Training is finished: 4 steps, ")
