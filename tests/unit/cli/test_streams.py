"""Streams that are gone: a command says nothing of a pipe that nobody reads, and of a full disk it does in words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NO_ROOM = "dapo: What was to be printed could not be written: No space left on device.\n"


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def full_disk() -> Iterator[int]:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as file:
        yield file.fileno()


def dapo(*words: str, out: int = subprocess.PIPE, err: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Exit code and what was printed, as far as it could be."""
    done = subprocess.run(
        [sys.executable, "-m", "dapo", *words], stdout=out, stderr=err, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout or "", done.stderr or ""


@pytest.mark.parametrize("words", [["show", "mine.toml"], ["show", "mine.toml", "--json"], ["--version"], ["--help"]])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(recipe: Path, closed_pipe: int, words: list[str]) -> None:
    assert dapo(*words, out=closed_pipe) == (1, "", "")


@pytest.mark.parametrize("words", [["show", "mine.toml"], ["--version"], ["--help"]])
def test_a_full_disk_behind_standard_output_is_told_in_words(recipe: Path, full_disk: int, words: list[str]) -> None:
    assert dapo(*words, out=full_disk) == (1, "", NO_ROOM)


def test_an_error_that_cannot_be_told_keeps_its_exit_code(recipe: Path, closed_pipe: int, full_disk: int) -> None:
    for err in (closed_pipe, full_disk):
        assert dapo("show", "none.toml", err=err) == (2, "", "")
        assert dapo("nonsense", err=err) == (2, "", "")
        code, out, _ = dapo("show", "mine.toml", err=err)
        assert code == 0 and out.startswith("steps = 4\n")


@pytest.mark.parametrize(("closed", "words", "code"), [(1, ["show", "mine.toml"], 0), (2, ["show", "none.toml"], 2)])
def test_a_stream_that_was_closed_before_takes_anything(recipe: Path, closed: int, words: list[str], code: int) -> None:
    command = f'exec "$0" -m dapo "$@" {closed}>&-'
    done = subprocess.run(["sh", "-c", command, sys.executable, *words], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
