from __future__ import annotations

import os
from pathlib import Path

import pytest

from dapo.files import sync_tree, write_atomically


def test_a_file_is_written_with_its_folders_and_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["config.json"]


def test_where_writing_fails_the_old_content_stays_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    write_atomically(path, b"one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["config.json"]


def test_where_writing_is_interrupted_nothing_is_left_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "config.json", b"one")
    assert os.listdir(tmp_path) == []


def test_a_tree_is_synced_with_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_tree(tmp_path)
    paths = [tmp_path, tmp_path / "b", tmp_path / "inner", tmp_path / "inner" / "a"]
    assert sorted(synced) == sorted(path.stat().st_ino for path in paths)
