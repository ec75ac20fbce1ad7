"""A checkpoint's manifest: every file with its size and SHA-256, so that a damaged checkpoint is known and named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dapo.errors import RequestError
from dapo.files import write_atomically

FORMAT = 1
"""The layout of a checkpoint. A program reads the layouts up to its own, and refuses later ones."""

MANIFEST = "manifest.json"

PROGRESS = "progress.json"
"""What every checkpoint has, whatever trainer it is of."""

_READ = ("*.safetensors", "pending.jsonl", "trainer/*")
"""What is read at resume wherever it is there."""

_SHOWN_NAME = 80


def write_manifest(folder: Path, step: int) -> None:
    """Read every file of a checkpoint back from the disk, and write down its size and hash. The last file to be written."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _file_hash(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content: dict[str, Any] = {"format": FORMAT, "step": step, "files": files}
    content["sha256"] = _content_hash(content)
    write_atomically(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode())


def damage(folder: Path, step: int, *, hashes: bool) -> str | None:
    """What is wrong with the checkpoint of a step: the file, what was expected and what was found; None if it is whole.

    Without `hashes` sizes alone are compared, which takes no reading. Raises RequestError for a checkpoint of a later
    layout, which is not damaged but cannot be read.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return f"it has no {MANIFEST}, which is written last"
    try:
        content = json.loads(path.read_bytes())
        told, found = content.pop("sha256"), _content_hash(content)
        is_later = content["format"] > FORMAT
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        return f"{MANIFEST} is damaged: {type(error).__name__}: {error}"
    if told != found:
        return f"{MANIFEST} is damaged: its content has the SHA-256 {found}, and it says {told}"
    if is_later:
        raise RequestError(
            f"The checkpoint {folder} has the layout {content['format']}, and this program reads layouts up to {FORMAT}. "
            "Install the version of dapo that wrote it, or a later one."
        )
    if content.get("step") != step:
        return f"{MANIFEST} says that it is of step {content.get('step')}"
    if not isinstance(content.get("files"), dict):
        return f"{MANIFEST} is damaged: it holds no list of files"
    faults = (_file_damage(folder, name, mark, hashes=hashes) for name, mark in content["files"].items())
    return next((fault for fault in faults if fault is not None), None) or _unnamed(folder, content["files"])


def _file_damage(folder: Path, name: str, mark: Any, *, hashes: bool) -> str | None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        return f"{MANIFEST} names a file outside of the checkpoint, {name!r}"
    shown = repr(name[:_SHOWN_NAME])[1:-1] + ("…" if len(name) > _SHOWN_NAME else "")
    if not isinstance(mark, dict) or type(mark.get("bytes")) is not int or not isinstance(mark.get("sha256"), str):
        return f"{MANIFEST} does not say the size and the SHA-256 of {shown}"
    try:
        if any(place.is_symlink() for place in (folder / name, *(folder / name).parents) if folder in place.parents):
            return f"{shown} is a link, and a file was written"
        return _content_damage(folder / name, shown, mark, hashes=hashes)
    except (OSError, ValueError) as error:  # a name that no file can have, a disk that does not give the content
        return f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}"


def _content_damage(path: Path, shown: str, mark: Mapping[str, Any], *, hashes: bool) -> str | None:
    if not path.is_file():
        return f"{shown} is missing"
    size = path.stat().st_size
    if size != mark["bytes"]:
        return f"{shown} has {size:,} bytes, and {mark['bytes']:,} were written"
    if hashes and (found := _file_hash(path)) != mark["sha256"]:
        return f"{shown} has the SHA-256 {found}, and {mark['sha256']} was written"
    return None


def _unnamed(folder: Path, files: Mapping[str, Any]) -> str | None:
    """What would be read, and the manifest says nothing of."""
    read = {path.relative_to(folder).as_posix() for pattern in _READ for path in folder.glob(pattern)}
    unnamed = sorted(({PROGRESS} | read) - files.keys())
    return f"{MANIFEST} does not name {unnamed[0]}" if unnamed else None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content_hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
