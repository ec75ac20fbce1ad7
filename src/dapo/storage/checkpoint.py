"""A checkpoint: the policy in Hugging Face format, and beside it all that resume needs. Whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dapo.errors import DataError, RequestError, RunError
from dapo.files import ASIDE, disk_errors_told, disk_words, remove_tree, sync, sync_tree, write_atomically
from dapo.jsonlines import read_json_lines
from dapo.ports import Snapshot
from dapo.storage.manifest import PROGRESS, damage, write_manifest

_NAME = re.compile(r"step-([0-9]{6,})")
_PENDING = "pending"
_SAVING = ".saving-"
_DROPPING = ".dropping-"
_DAMAGED = "damaged-"
BEST = "best"
"""The link to the checkpoint with the best held-out accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands: steps made, and what the loop needs to go on from there, as JSON has it.

    The list `state["pending"]`, if there is one, goes to a file of JSON lines of its own: it holds whole groups.
    """

    step: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest whole checkpoint of a run, and the newer ones that are not: each with what is wrong with it."""

    checkpoint: Path
    step: int
    damaged: Mapping[Path, str]


def write_checkpoint(
    folder: Path,
    progress: Progress,
    snapshot: Snapshot,
    tokenizer: Mapping[str, bytes],
    *,
    before_it_counts: Callable[[], None] = lambda: None,
) -> Path:
    """Write `folder/step-NNNNNN` aside, sync it, and rename it into place. Returns its path.

    `tokenizer` holds the tokenizer's files. `before_it_counts` runs just before the renaming. Raises RunError if the disk
    does not take it; older checkpoints are untouched then.
    """
    from safetensors import SafetensorError  # what a full disk is to it; no OSError

    target = checkpoint_path(folder, progress.step)
    if target.exists():
        return target
    aside = folder / f"{_SAVING}{target.name}"
    try:
        remove_tree(aside)
        aside.mkdir(parents=True)
        snapshot.write(aside)
        for name, content in tokenizer.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_bytes(content)
        _write_progress(aside, progress)
        for path in aside.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # safetensors lets nobody else read
        sync_tree(aside)
        write_manifest(aside, progress.step)
        before_it_counts()
        os.replace(aside, target)
        sync(folder)
    except (OSError, SafetensorError) as error:
        remove_tree(aside)
        raise RunError(
            f"The checkpoint {target} could not be written: {disk_words(error, folder, snapshot.num_bytes)} Older "
            "checkpoints are as they were. Make room or choose another folder, then use --resume."
        ) from error
    return target


def copy_checkpoint(source: Path, folder: Path) -> Path:
    """Put a checkpoint of another run into `folder`, whole or not at all. Files are shared where the disk allows it.

    Files of a checkpoint are never written to again, so two runs may hold the same ones. Raises RunError.
    """
    aside = folder / f"{_SAVING}{source.name}"
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    with disk_errors_told(folder, lambda: size):
        aside.mkdir(parents=True)
        shutil.copytree(source, aside, copy_function=_link_or_copy, dirs_exist_ok=True)
        sync_tree(aside)
        os.replace(aside, folder / source.name)
        sync(folder)
    return folder / source.name


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        return str(shutil.copy2(source, target))
    return target


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:06d}"


def steps_saved(folder: Path) -> dict[int, Path]:
    """Whatever has a checkpoint's name, whole or not, by its step, oldest first."""
    if not folder.is_dir():
        return {}
    found = {int(name[1]): path for path in folder.iterdir() if (name := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that are complete by the sizes of their files, oldest first."""
    return [path for step, path in steps_saved(folder).items() if damage(path, step, hashes=False) is None]


def newest_whole(folder: Path) -> Found | None:
    """The newest checkpoint whose every file is as it was written, by size and hash, and whose tensors and progress can
    be read; None where none was ever made.

    Raises RequestError where there are some and none of them is whole, or where the newest is of a later layout.
    """
    damaged: dict[Path, str] = {}
    for step, path in reversed(steps_saved(folder).items()):
        fault = damage(path, step, hashes=True) or _unreadable(path, step)
        if fault is None:
            return Found(checkpoint=path, step=step, damaged=damaged)
        damaged[path] = fault
    if damaged:
        lines = "\n".join(f"  - {path}: {fault}" for path, fault in damaged.items())
        raise RequestError(
            f"No checkpoint in {folder} is whole, so there is nothing to go on from:\n{lines}\n"
            "Restore one of them from a copy, or begin a new run in another folder with --run."
        )
    return None


def read_progress(checkpoint: Path) -> Progress:
    """Read where the run stood when the checkpoint was written. Raises DataError where that is not what is there."""
    path = checkpoint / PROGRESS
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}); restore the file") from error
    if (
        not isinstance(content, dict)
        or type(content.get("step")) is not int
        or not isinstance(content.get("state"), dict)
    ):
        raise DataError(f"{path} holds no step with a state; restore the file")
    state = dict(content["state"])
    if (checkpoint / f"{_PENDING}.jsonl").is_file():
        state[_PENDING] = read_json_lines(checkpoint / f"{_PENDING}.jsonl")
    return Progress(step=content["step"], state=state)


def _unreadable(checkpoint: Path, step: int) -> str | None:
    """What of a checkpoint cannot be read, though every file is as the manifest says."""
    from safetensors import SafetensorError, safe_open

    try:
        found = read_progress(checkpoint).step
        if found != step:
            return f"{PROGRESS} says that it is of step {found}"
    except (OSError, DataError) as error:
        return f"it cannot be read: {error}"
    for path in sorted(checkpoint.rglob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (OSError, SafetensorError) as error:
            return f"{path.relative_to(checkpoint)} cannot be read: {error}"
    return None


def leftovers(folder: Path) -> list[Path]:
    """What a process that was killed has left: checkpoints that were being written or removed."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith((_SAVING, _DROPPING, ASIDE)))


def half_written(folder: Path) -> list[str]:
    """The names of the checkpoints that were being written when the process was killed."""
    return [path.name.removeprefix(_SAVING) for path in leftovers(folder) if path.name.startswith(_SAVING)]


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is out of the way and yet not lost. Returns its new path."""
    target = path.with_name(f"{_DAMAGED}{path.name}")
    remove_tree(target)
    os.replace(path, target)
    return target


def settle(folder: Path, *, keep: int, accuracies: Mapping[int, float] | None) -> None:
    """Drop all checkpoints but the newest `keep` and the best, and let `best` point to that.

    `accuracies` holds the held-out accuracy by step; of equals the later is the best. None: no best is kept.
    """
    saved = steps_saved(folder)
    measured = [step for step in saved if accuracies is not None and step in accuracies]
    best = max(measured, key=lambda step: ((accuracies or {})[step], step), default=None)
    _point_to(folder, saved[best] if best is not None else None)
    for step in list(saved)[:-keep]:
        if step != best:
            doomed = folder / f"{_DROPPING}{saved[step].name}"
            remove_tree(doomed)
            os.replace(saved[step], doomed)  # at once: what is half removed is no checkpoint
            remove_tree(doomed)


def _point_to(folder: Path, target: Path | None) -> None:
    link = folder / BEST
    if target is None:
        if link.is_symlink():
            link.unlink()
        return
    if link.is_symlink() and os.readlink(link) == target.name:
        return
    aside = folder / f"{ASIDE}{BEST}"
    remove_tree(aside)
    try:
        aside.symlink_to(target.name)
        os.replace(aside, link)
    except OSError:  # a file system without links: `best` is a convenience, nothing reads it
        remove_tree(aside)


def _write_progress(folder: Path, progress: Progress) -> None:
    state = dict(progress.state)
    if isinstance(state.get(_PENDING), list):
        lines = "".join(json.dumps(item) + "\n" for item in state.pop(_PENDING))
        write_atomically(folder / f"{_PENDING}.jsonl", lines.encode())
    write_atomically(folder / PROGRESS, (json.dumps({"step": progress.step, "state": state}) + "\n").encode())
