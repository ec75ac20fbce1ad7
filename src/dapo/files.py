"""Files that are whole or not there: written aside, synced, renamed into place. And what a full disk is called."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dapo.errors import RunError

ASIDE = ".writing-"
"""How a file's name begins while it is written aside. A killed process may leave such files; they mean nothing."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part, also after a loss of power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f"{ASIDE}{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Ask the system to bring a file's content, or a folder's list of names, to the disk. A missing one is passed over."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Ask the system to bring every file below `folder` to the disk."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, or a file. Of a link the link alone goes. A missing one is passed over."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path)


def check_room(folder: Path, needed: int, *, what: str) -> None:
    """Refuse to begin a write of `needed` bytes into a disk that has less. Raises RunError with both numbers."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(f"{what} could not be written: {_room(needed, free, folder)} {_ADVICE}")


@contextmanager
def disk_errors_told(path: Path, needed: Callable[[], int]) -> Iterator[None]:
    """Turn what the system says of a disk that is full or gone into a RunError that names the need.

    `needed` counts the bytes, and is asked only then. What was at `path` before stays as it was, but for a half-written
    line at its end, which readers pass over.
    """
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} could not be written: {disk_words(error, path, needed())} {_ADVICE}") from error


def disk_words(error: Exception, path: Path, needed: int) -> str:
    """What went wrong, what was needed and what is free, in a sentence or two."""
    place = next(place for place in (path, *path.parents) if place.is_dir())
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{reason}. {_room(needed, shutil.disk_usage(place).free, place)}"


_ADVICE = "What was written before is as it was. Make room, then go on with --resume."


def _room(needed: int, free: int, folder: Path) -> str:
    return f"It takes {needed:,} bytes ({_short(needed)}), and {free:,} bytes ({_short(free)}) are free at {folder}."


def _short(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
