"""Runs the command line on a tiny model in a folder of its own, and reads what a run leaves behind."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tiny import make_tiny

STEPS = 14

RECIPE = f"""
steps = {STEPS}
seed = 3

[model]
path = "model"
device = "cpu"

[task]
type = "jsonl"
path = "problems.jsonl"
held_out = 16
reward = "rewards:starts_with_a_digit"

[algorithm]
type = "dapo"

[batch]
groups_per_step = 8
group_size = 8
updates_per_step = 2
max_tokens = 6
max_prompt_tokens = 16

[engine]
type = "hf"
precision = "float32"

[trainer]
precision = "float32"
learning_rate = 3e-3

[evaluation]
samples = 4
top_p = 1.0
"""

REWARDS = """
async def starts_with_a_digit(problem, reply):
    return reply[:1].isdigit()


def breaks(problem, reply):
    raise ZeroDivisionError("the scorer divides by nothing")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a finished command left on its streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """A folder with a tiny model, problems, rewards and a recipe, and the command line in it."""

    folder: Path

    def dapo(self, *arguments: str, code: int = 0) -> Ended:
        """Run a command to its end, and check its exit code."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, f"exit code {process.returncode}, not {code}\n{out}\n{err}"
        return Ended(code=process.returncode, out=out, err=err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command: one thread, as a tiny model is fastest on, and no network."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "dapo", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def train(self, run: str, *overrides: str, resume: bool = False, code: int = 0) -> Ended:
        """`dapo train recipe.toml --run RUN`, with overrides."""
        return self.dapo("train", "recipe.toml", "--run", run, *_options(overrides, resume), code=code)

    def stop_train(self, run: str, number: signal.Signals, *overrides: str) -> Ended:
        """Train, send a signal once two steps are made, and wait for the end."""
        process = self.start("train", "recipe.toml", "--run", run, *_options(overrides, False))
        metrics = self.folder / run / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no two steps within a minute"
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)  # what a machine that is taken away leaves
        return Ended(code=process.returncode, out=out, err=err)

    def run(self, name: str) -> RunFiles:
        return RunFiles(folder=self.folder / name)


def _options(overrides: Sequence[str], resume: bool) -> list[str]:
    options = ["--json"]
    for override in overrides:
        options += ["-o", override]
    return [*options, "--resume"] if resume else options


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files of a run, read with nothing but the standard library."""

    folder: Path

    @property
    def config(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return content

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "metrics.jsonl")

    @property
    def steady_metrics(self) -> list[dict[str, Any]]:
        """The metrics that follow from the seed: all but time and memory."""
        return [
            {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
            for line in self.metrics
        ]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "eval.jsonl")

    @property
    def checkpoints(self) -> list[str]:
        """Their names, without the link to the best."""
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir() if path.name != "best")

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        with gzip.open(self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:06d}"

    def content(self) -> dict[str, tuple[int, bytes]]:
        """Every file with its time of change and its bytes."""
        return {
            str(path.relative_to(self.folder)): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def furnish(folder: Path) -> Workshop:
    """Write model, problems, rewards and recipe."""
    make_tiny(folder / "model", spread=0.1, positions=64)
    problems = [{"prompt": f"{a}+{b}", "answer": a + b} for a in range(8) for b in range(8)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems), encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return Workshop(folder=folder)
