"""Runs that die and are resumed, and what must be the same afterwards."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.workshop import RunFiles, Workshop, read_lines

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = (
    "steps=6",
    "report.console=false",
    "batch.groups_per_step=4",
    "batch.group_size=4",
    "checkpoint.every=2",
    "checkpoint.keep=1",
    "evaluation.every=2",
    "evaluation.samples=2",
)
"""Six steps with three checkpoints and four evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """How a run in a child ended."""

    killed: bool
    code: int | None
    moments: int | None
    said: str
    heard: str
    seconds: float


class ForkServer:
    """A process that runs trainings as its children, each in a moment."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fork_server"],
            cwd=shop.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def train(
        self, run: str, overrides: Sequence[str], *, resume: bool | None = None, code: int | None = None, **death: Any
    ) -> Died:
        """Train; by default resume what is there. `code` is the exit code that must come, if any."""
        folder = self.shop.folder / run
        going_on = (folder / "config.json").exists() if resume is None else resume
        if not going_on and folder.exists():
            empty(folder)
        request = {"run": run, "overrides": list(overrides), "resume": going_on, **death}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        died = Died(**json.loads(self._process.stdout.readline()))
        assert code is None or died.code == code, died
        return died

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=120)


def empty(folder: Path) -> None:
    """A run that was killed before its config was written left no more than a lock or a file half written."""
    for path in folder.iterdir():
        assert path.name == ".lock" or path.name.startswith(".writing-"), path
        path.unlink()


def check_same(run: RunFiles, straight: RunFiles) -> None:
    """Bit by bit: the last checkpoint with all that is in it, metrics, rollouts and evaluations; and nothing is left over."""
    assert run.config == straight.config
    there, here = contents(straight.checkpoint(6)), contents(run.checkpoint(6))
    assert there.keys() == here.keys()
    assert [name for name in there if there[name] != here[name]] == []
    assert run.steady_metrics == straight.steady_metrics
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert without_seconds(run.evaluations) == without_seconds(straight.evaluations)
    assert [line["step"] for line in run.evaluations] == [0, 2, 4, 6]
    assert decompressed(run) == decompressed(straight)
    assert replies(run) == replies(straight)
    assert names(run) == names(straight)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def decompressed(run: RunFiles) -> dict[str, bytes]:
    return {path.name: gzip.decompress(path.read_bytes()) for path in sorted((run.folder / "rollouts").iterdir())}


def replies(run: RunFiles) -> dict[str, list[dict[str, Any]]]:
    folders = sorted((run.folder / "evaluations").iterdir())
    return {folder.name: read_lines(folder / "replies.jsonl") for folder in folders}


def names(run: RunFiles) -> list[str]:
    """Every name below the run folder, links as such."""
    return sorted(path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*"))


def without_seconds(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
