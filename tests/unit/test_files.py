from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dapo.errors import RunError
from dapo.files import check_room, disk_errors_told, remove_tree, sync, sync_tree, write_atomically


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


def test_what_is_not_there_needs_no_sync_and_no_removal(tmp_path: Path) -> None:
    sync(tmp_path / "missing")
    remove_tree(tmp_path / "missing")


def test_of_a_link_the_link_alone_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("keep me")
    for name, target in (("folder", "mine"), ("file", "mine/a.txt"), ("nowhere", "gone")):
        (tmp_path / name).symlink_to(target)
        remove_tree(tmp_path / name)
    assert os.listdir(tmp_path) == ["mine"]
    assert (tmp_path / "mine" / "a.txt").read_text() == "keep me"
    remove_tree(tmp_path / "mine")
    assert os.listdir(tmp_path) == []


def test_a_name_is_on_the_disk_once_the_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    write_atomically(tmp_path / "config.json", b"one")
    assert synced == [(tmp_path / "config.json").stat().st_ino, tmp_path.stat().st_ino]


def test_a_disk_without_room_is_told_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_500)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    check_room(tmp_path, 1_500, what="The file")
    with pytest.raises(RunError) as failed:
        check_room(tmp_path, 2_000_000, what="The file")
    assert str(failed.value) == (
        f"The file could not be written: It takes 2,000,000 bytes (2 MB), and 1,500 bytes (1.5 kB) are free at {tmp_path}. "
        "What was written before is as it was. Make room, then go on with --resume."
    )


def test_errors_of_a_disk_name_the_need_and_others_pass(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "metrics.jsonl"
    with pytest.raises(RunError) as failed, disk_errors_told(path, lambda: 12):
        raise OSError(28, "No space left on device")
    message = str(failed.value)
    assert message.startswith(f"{path} could not be written: No space left on device. It takes 12 bytes (12 B), and ")
    assert f"are free at {tmp_path}. What was written before is as it was." in message
    with pytest.raises(ValueError, match="no disk"), disk_errors_told(path, lambda: 12):
        raise ValueError("no disk has a part in this")
