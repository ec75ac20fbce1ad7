"""The run folder: complete in itself and readable without this program."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from dapo.errors import DataError, RequestError
from dapo.files import ASIDE, disk_errors_told, remove_tree, sync, write_atomically
from dapo.jsonlines import append_json_line, read_json_lines, to_json
from dapo.storage.checkpoint import checkpoints, leftovers, steps_saved
from dapo.storage.manifest import damage
from dapo.storage.rollouts import write_rollouts

_PACKAGES = ("dapo-rl", "torch", "transformers", "tokenizers", "safetensors", "datasets", "math-verify", "numpy")


BESIDE = ("versions", "forked_from")
"""What config.json holds beside the recipe."""
_FILES = ("config.json", "metrics.jsonl", "eval.jsonl", "report.html", ".lock")
_FOLDERS = ("checkpoints", "rollouts", "evaluations", "nonfinite")
"""What the program writes into a run folder."""

_STEP_FILE = re.compile(r"step-([0-9]{6,})(\.jsonl\.gz)?")


def package_versions() -> dict[str, str]:
    """Versions of what matters for the result."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class RunFolder:
    """Paths and writers of one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.path / "eval.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def rollouts(self, step: int) -> Path:
        return self.path / "rollouts" / f"step-{step:06d}.jsonl.gz"

    def newest_checkpoint(self) -> Path | None:
        """The newest checkpoint that is complete by the sizes of its files, if there is one."""
        found = checkpoints(self.checkpoints)
        return found[-1] if found else None

    def check(self, *, resume: bool) -> None:
        """Refuse a folder that another run has written into, one with links that lead out of it, and a resume of what is
        not there. Raises RequestError."""
        for place in (self.path, *self.path.parents):
            if place.exists() and not place.is_dir():
                raise RequestError(
                    f"The run folder {self.path} cannot be: {place} is a file. Choose another with --run."
                )
        self._refuse_links()
        has_run = (self.path / "config.json").exists()
        if resume and not has_run:
            raise RequestError(
                f"--resume was asked for, and {self.path} holds no run. Leave --resume away to start one."
            )
        if not resume and self.path.is_dir() and any(place.name != ".lock" for place in self.path.iterdir()):
            raise RequestError(
                f"The run folder {self.path} is not empty. Go on with that run by --resume, or choose another folder "
                "with --run."
            )

    def _refuse_links(self) -> None:
        """The folder itself may be a link; what the program writes and removes in it may not. Raises RequestError."""
        folders = [self.path / name for name in _FOLDERS]
        below = [path for folder in folders if folder.is_dir() and not folder.is_symlink() for path in folder.iterdir()]
        of_steps = [path for path in below if _STEP_FILE.fullmatch(path.name)]
        found = [path for path in (*(self.path / name for name in _FILES), *folders, *of_steps) if path.is_symlink()]
        if found:
            raise RequestError(
                f"{found[0]} is a link to {os.readlink(found[0])}, and a run writes and removes what is in its folder, not "
                "what lies elsewhere. Put the file or folder itself there, or make the whole run folder a link."
            )

    def config(self) -> dict[str, Any]:
        """The content of config.json: the recipe that is followed, and what stands beside it. Raises RequestError."""
        try:
            content = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise RequestError(f"{self.path}/config.json is not JSON: {error}. Restore the file.") from error
        if not isinstance(content, dict):
            raise RequestError(f"{self.path}/config.json holds no object. Restore the file.")
        return content

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the folder. The system drops the lock with the process, however that ends.

        Raises RequestError if another process holds it, or if the folder cannot be made; an empty folder that was made
        for the lock goes again.
        """
        made = not self.path.exists()
        place = self.path / ".lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Nothing that is there is emptied, and no link is followed.
            handle = os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644), "wb")
        except OSError as error:
            if place.is_symlink():
                self._refuse_links()
            raise RequestError(
                f"The run folder {self.path} cannot be written to: {error}. Choose another with --run."
            ) from error
        with handle:
            if not _is_locked(handle, place):
                raise RequestError(
                    f"Another process is training in {self.path}. Wait for it, or choose another folder with --run."
                )
            try:
                yield
            finally:
                place.unlink(missing_ok=True)
                if made and not any(self.path.iterdir()):
                    self.path.rmdir()

    def start(self, config: Mapping[str, Any], *, forked_from: Mapping[str, Any] | None = None) -> None:
        """Make the folder and write the resolved config with the versions of what matters. Raises RunError."""
        beside = {"versions": package_versions()} | ({"forked_from": forked_from} if forked_from else {})
        content = (_pretty({**config, **beside}) + "\n").encode()
        with disk_errors_told(self.path / "config.json", lambda: len(content)):
            write_atomically(self.path / "config.json", content)

    def forget_after(self, step: int) -> None:
        """Drop lines, rollouts and evaluations of steps after `step`, which will be made again, and what a process that
        was killed had half written. Raises DataError for a line that is none of a run's, before anything is dropped, and
        RunError if the disk does not take it."""
        kept = {
            path: [row for row in _lines_of_steps(path, numbers) if row["step"] <= step]
            for path, numbers in ((self.metrics, ()), (self.evaluations, _SHOWN_NUMBERS))
            if path.exists()
        }
        with disk_errors_told(self.path, lambda: self.metrics.stat().st_size):
            for path, rows in kept.items():
                write_atomically(path, "".join(to_json(row) + "\n" for row in rows).encode())
            for folder in (self.path / "rollouts", self.path / "evaluations", self.path / "nonfinite"):
                for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                    name = _STEP_FILE.fullmatch(path.name)
                    if name is not None and int(name[1]) > step:
                        remove_tree(path)
            for path in [*leftovers(self.checkpoints), *self.path.rglob(f"{ASIDE}*")]:
                remove_tree(path)

    def missing_steps(self, first: int, last: int) -> list[int]:
        """The steps of `first` to `last` that have no line in metrics.jsonl."""
        there = {row["step"] for row in _lines_of_steps(self.metrics, ())}
        return [step for step in range(first, last + 1) if step not in there]

    def add_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a step's line. Raises RunError if the disk does not take it, as all writers of this class do."""
        self._append(self.metrics, {"step": step, **metrics})

    def add_evaluation(self, line: Mapping[str, Any]) -> None:
        self._append(self.evaluations, line)

    def add_rollouts(self, step: int, lines: Sequence[dict[str, Any]]) -> None:
        path = self.rollouts(step)
        with disk_errors_told(path, lambda: sum(len(to_json(line)) for line in lines)):
            write_rollouts(path, lines)

    def sync_lines(self) -> None:
        """Bring to the disk the lines that were appended so far."""
        for path in (self.metrics, self.evaluations, self.path / "rollouts", self.path / "evaluations", self.path):
            sync(path)

    def accuracies(self) -> dict[int, float]:
        """Held-out accuracy by step, of the evaluations so far."""
        return {line["step"]: line["avg"] for line in read_json_lines(self.evaluations)}

    def _append(self, path: Path, value: Mapping[str, Any]) -> None:
        with disk_errors_told(path, lambda: len(to_json(value)) + 1):
            append_json_line(path, value)


_SHOWN_NUMBERS = ("avg", "ci_low", "ci_high", "problems", "samples")
"""What of an evaluation's line is read again: the best checkpoint follows from it, and the last words of a run."""


def _lines_of_steps(path: Path, numbers: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl or eval.jsonl. Raises DataError for one without a step, or without these numbers."""
    rows = read_json_lines(path)
    for row in rows:
        wrong = [name for name in numbers if type(row.get(name)) not in (int, float)]
        if type(row.get("step")) is not int or wrong:
            lacks = f"no number {wrong[0]!r}" if wrong else "no whole number 'step'"
            raise DataError(f"{path} has a line with {lacks}, {to_json(row)[:80]}; remove the line or restore the file")
    return rows


def _is_locked(handle: BinaryIO, place: Path) -> bool:
    """Take the lock if it is free. A file that its holder has removed in between is no lock any more."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle.fileno()).st_ino == place.lstat().st_ino
    except OSError:
        return False


def default_run_folder(recipe: Path, *, resume: bool) -> Path:
    """`runs/NAME` for `NAME.toml`; a new run takes a number behind it where that is taken."""
    base = Path("runs") / (recipe.stem.strip(".") or "run")  # a name of dots alone would be another folder
    candidate, number = base, 1
    while not resume and candidate.is_dir() and any(candidate.iterdir()):
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate


def find_policy(path: str) -> str:
    """The newest policy of a run folder; any other name of a model as it is. Raises RequestError for a run without one."""
    folder = Path(path).expanduser()
    if not (folder / "checkpoints").is_dir() and not (folder / "metrics.jsonl").is_file():
        return path
    run = RunFolder(folder)
    saved = steps_saved(run.checkpoints)
    if not saved:
        raise RequestError(f"The run {folder} has no checkpoint yet, so there is no policy to use.")
    newest = max(saved)
    fault = damage(saved[newest], newest, hashes=False)
    if fault is not None:
        whole = run.newest_checkpoint()
        advice = f"{whole} is the newest that is complete: name it instead" if whole else "No other is complete"
        raise RequestError(f"The newest checkpoint of the run, {saved[newest]}, is damaged: {fault}. {advice}.")
    return str(saved[newest])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
