"""Checkpoints made in a moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dapo.storage.checkpoint import Progress, write_checkpoint
from tests.fakes import FakeTrainer

TOKENIZER = {"tokenizer.json": b"{}\n"}


def save(
    folder: Path, step: int, *, trainer: FakeTrainer | None = None, state: Mapping[str, Any] | None = None
) -> Path:
    """A checkpoint of a fake trainer."""
    progress = Progress(step=step, state={"stream": {"position": 10 * step}} if state is None else state)
    return write_checkpoint(folder, progress, (trainer or FakeTrainer()).snapshot(), TOKENIZER)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, place: int) -> None:
    """Turn one bit of a file, as a failing disk does: the size stays."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": lambda folder: flip(folder / "policy.txt", 0),
    "cut": lambda folder: cut(folder / "policy.txt"),
    "gone": lambda folder: (folder / "policy.txt").unlink(),
    "progress": lambda folder: flip(folder / "progress.json", 3),
    "manifest cut": lambda folder: cut(folder / "manifest.json"),
    "manifest gone": lambda folder: (folder / "manifest.json").unlink(),
    "empty": lambda folder: empty(folder),
}
"""Ways in which a checkpoint can be damaged."""
