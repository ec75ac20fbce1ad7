"""Reads a run folder for reports. Every part may be missing: a run that has just begun has a record too."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dapo.errors import DataError
from dapo.jsonlines import read_json_lines
from dapo.reporting.charts import Point

_ROLLOUT_FILE = re.compile(r"step-(\d+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run folder says. Steps are in order and each is there once; evaluations are in order of their steps."""

    folder: Path
    config: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Mapping[str, Any], ...]
    rollout_files: tuple[tuple[int, Path], ...]

    @property
    def name(self) -> str:
        """The folder's name, which is the run's."""
        return self.folder.resolve().name

    @property
    def data_names(self) -> tuple[str, ...]:
        """Names of the held-out data that was evaluated, in order of first use."""
        return tuple(dict.fromkeys(str(line.get("data", "held-out")) for line in self.evaluations))

    def values(self, metric: str) -> tuple[Point, ...]:
        """The curve of one metric; a step without it is a gap."""
        return tuple(Point(x=line["step"], y=number(line.get(metric))) for line in self.steps)

    def has(self, metric: str) -> bool:
        """Whether any step has a number under this name."""
        return any(point.y is not None for point in self.values(metric))

    def total(self, metric: str) -> float:
        """The sum of one metric over all steps."""
        return sum(point.y for point in self.values(metric) if point.y is not None)

    def accuracy(self, data: str) -> tuple[Point, ...]:
        """Held-out accuracy on `data` with its interval, one point an evaluation."""
        return tuple(
            Point(
                x=line["step"],
                y=number(line.get("avg")),
                low=number(line.get("ci_low")),
                high=number(line.get("ci_high")),
            )
            for line in self.evaluations
            if str(line.get("data", "held-out")) == data
        )


def read_run(run_folder: Path) -> RunRecord:
    """Read what there is in `run_folder`.

    Where a step or an evaluation stands twice, as after a resume from an earlier checkpoint, the later line counts.
    Raises DataError if the folder does not exist or a file is broken elsewhere than in its last line.
    """
    if not run_folder.is_dir():
        raise DataError(f"there is no run folder {run_folder}; give the folder that `dapo train` printed")
    steps = {line["step"]: line for line in _with_step(run_folder / "metrics.jsonl")}
    evaluations = {(line["step"], str(line.get("data"))): line for line in _with_step(run_folder / "eval.jsonl")}
    return RunRecord(
        folder=run_folder,
        config=_read_config(run_folder / "config.json"),
        steps=tuple(steps[step] for step in sorted(steps)),
        evaluations=tuple(sorted(evaluations.values(), key=lambda line: int(line["step"]))),
        rollout_files=_rollout_files(run_folder / "rollouts"),
    )


def read_groups(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the groups of one file of `rollouts/`, as far as it can be read: it may end in the middle."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="surrogatepass") as file:
            for line in file:
                group = json.loads(line)
                if isinstance(group, dict):
                    yield group
    except (OSError, EOFError, zlib.error, ValueError):
        return  # a file that is being written, or whose writer was stopped


def number(value: object) -> float | None:
    """Return a finite number as a float, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def describe(config: Mapping[str, Any], key: str) -> str:
    """Return the name that a config gives to one of its parts, such as `algorithm` or `model`; empty if it has none.

    A part is a text, or an object that names itself under `name`, `path` or `type`.
    """
    part = config.get(key)
    if part is None and isinstance(config.get("config"), Mapping):
        return describe(config["config"], key)
    if isinstance(part, Mapping):
        part = next((part[name] for name in ("name", "path", "type") if part.get(name)), None)
    return part if isinstance(part, str) else ""


def _with_step(path: Path) -> list[dict[str, Any]]:
    return [line for line in read_json_lines(path) if number(line.get("step")) is not None]


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); restore the file or remove it") from error
    return config if isinstance(config, dict) else {}


def _rollout_files(folder: Path) -> tuple[tuple[int, Path], ...]:
    if not folder.is_dir():
        return ()
    found = ((_ROLLOUT_FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return tuple(sorted((int(match[1]), path) for match, path in found if match))
