from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from dapo.errors import RequestError, RunError
from dapo.storage.checkpoint import (
    Progress,
    checkpoints,
    copy_checkpoint,
    half_written,
    leftovers,
    newest_whole,
    read_progress,
    set_aside,
    settle,
    write_checkpoint,
)
from dapo.storage.manifest import FORMAT, _content_hash, damage, write_manifest
from tests.fakes import FakeSnapshot, FakeTrainer
from tests.unit.storage.saved import DAMAGES, TOKENIZER, flip, names, save


def test_a_checkpoint_holds_policy_tokenizer_progress_and_a_manifest_of_them(tmp_path: Path) -> None:
    trainer = FakeTrainer()
    trainer.version = 6
    path = save(tmp_path / "checkpoints", 3, trainer=trainer)
    assert path == tmp_path / "checkpoints" / "step-000003"
    assert names(path) == ["manifest.json", "policy.txt", "progress.json", "tokenizer.json"]
    assert json.loads((path / "progress.json").read_text()) == {"step": 3, "state": {"stream": {"position": 30}}}
    assert read_progress(path) == Progress(step=3, state={"stream": {"position": 30}})
    restored = FakeTrainer()
    restored.restore(path)
    assert restored.version == 6
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"]) == (FORMAT, 3)
    assert list(manifest["files"]) == ["policy.txt", "progress.json", "tokenizer.json"]
    assert manifest["files"]["policy.txt"] == {
        "bytes": 2,
        "sha256": "06e9d52c1720fca412803e3b07c4b228ff113e303f4c7ab94665319d832bbfb7",  # of "6\n"
    }
    assert {path.stat().st_mode & 0o777 for path in path.iterdir()} == {0o644}


def test_groups_that_wait_go_to_a_file_of_their_own_and_come_back_as_they_were(tmp_path: Path) -> None:
    pending = [{"prompt": "lone \ud800 surrogate", "logprobs": [-0.1, -1e-300, 5e-324]}, {"prompt": "b"}]
    state = {"stream": {"position": 1}, "pending": pending, "counters": {"tokens": 2**60 + 1}}
    path = save(tmp_path, 1, state=state)
    assert json.loads((path / "progress.json").read_text())["state"].keys() == {"stream", "counters"}
    assert len((path / "pending.jsonl").read_text().splitlines()) == 2
    assert read_progress(path).state == state
    assert read_progress(save(tmp_path, 2, state={"pending": []})).state == {"pending": []}


@given(st.floats(allow_nan=False))
def test_a_float_of_the_state_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    path = save(tmp_path_factory.mktemp("state"), 1, state={"pending": [{"a": value}], "b": [value]})
    assert read_progress(path).state == {"pending": [{"a": value}], "b": [value]}


def test_a_step_that_was_saved_is_not_saved_twice(tmp_path: Path) -> None:
    path = save(tmp_path, 4)
    other = FakeTrainer()
    other.version = 9
    assert save(tmp_path, 4, trainer=other) == path
    assert (path / "policy.txt").read_text() == "0\n"


# Which stay


def test_only_the_newest_stay_by_number_and_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 999_999, 1_000_000):
        save(tmp_path, step)
    settle(tmp_path, keep=2, accuracies=None)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-999999", "step-1000000"]
    assert names(tmp_path) == ["step-1000000", "step-999999"]


def test_the_best_stays_and_is_pointed_to(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    settle(tmp_path, keep=1, accuracies={0: 0.9, 1: 0.2, 2: 0.5, 3: 0.3})  # step 0 has no checkpoint
    assert names(tmp_path) == ["best", "step-000002", "step-000004"]
    assert os.readlink(tmp_path / "best") == "step-000002"
    save(tmp_path, 5)
    settle(tmp_path, keep=1, accuracies={2: 0.5, 4: 0.5, 5: 0.4})  # of equals the later
    assert names(tmp_path) == ["best", "step-000004", "step-000005"]
    assert (tmp_path / "best" / "policy.txt").is_file()
    settle(tmp_path, keep=1, accuracies=None)
    assert names(tmp_path) == ["step-000005"]


def test_where_links_are_not_possible_the_best_stays_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    for step in (1, 2, 3):
        save(tmp_path, step)
    settle(tmp_path, keep=1, accuracies={1: 0.5, 2: 0.1})
    assert names(tmp_path) == ["step-000001", "step-000003"]


def test_nothing_that_the_pointer_says_is_followed(tmp_path: Path) -> None:
    """A link that somebody has turned elsewhere is turned back; what it pointed to is left alone."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("keep me")
    folder = tmp_path / "checkpoints"
    save(folder, 1)
    (folder / "best").symlink_to(outside)
    (folder / "step-000000").symlink_to(outside)
    assert [path.name for path in checkpoints(folder)] == ["step-000001"]
    settle(folder, keep=1, accuracies={1: 0.5})
    assert os.readlink(folder / "best") == "step-000001"
    assert names(folder) == ["best", "step-000001"]
    assert (outside / "mine.txt").read_text() == "keep me"


# Full disks


class Full(FakeTrainer):
    """Its snapshot writes a part and finds the disk full."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def snapshot(self) -> FakeSnapshot:
        error = self._error

        class Failing(FakeSnapshot):
            def write(self, folder: Path) -> None:
                super().write(folder)
                raise error

        return Failing(version=0, num_bytes=1_234_567)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        # what safetensors raises where the system says the same to it
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_told_in_words_and_leaves_older_checkpoints_and_nothing_half_written(
    tmp_path: Path, error: Exception
) -> None:
    save(tmp_path, 1)
    with pytest.raises(RunError) as failed:
        save(tmp_path, 2, trainer=Full(error))
    message = str(failed.value)
    assert f"The checkpoint {tmp_path / 'step-000002'} could not be written" in message
    assert "No space left on device" in message
    assert "It takes 1,234,567 bytes (1.23 MB), and " in message and f"are free at {tmp_path}" in message
    assert "Older checkpoints are as they were" in message and "--resume" in message
    assert failed.value.exit_code == 1
    assert names(tmp_path) == ["step-000001"]
    assert newest_whole(tmp_path) is not None
    assert save(tmp_path, 2).name == "step-000002"


class Interrupted(FakeTrainer):
    def snapshot(self) -> FakeSnapshot:
        class Ending(FakeSnapshot):
            def write(self, folder: Path) -> None:
                super().write(folder)
                raise KeyboardInterrupt

        return Ending(version=0)


def test_what_a_killed_save_left_is_no_checkpoint_is_named_and_does_not_hinder_the_next(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, trainer=Interrupted())
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001"]
    assert half_written(tmp_path) == ["step-000002"]
    assert [path.name for path in leftovers(tmp_path)] == [".saving-step-000002"]
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000001", "step-000002"]
    assert leftovers(tmp_path) == leftovers(tmp_path / "missing") == []


def test_what_must_be_on_the_disk_before_a_checkpoint_counts_is_brought_there(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    progress = Progress(step=1, state={})
    write_checkpoint(
        tmp_path, progress, FakeSnapshot(version=0), TOKENIZER, before_it_counts=lambda: seen.append(names(tmp_path))
    )
    assert seen == [[".saving-step-000001"]]


# Damage


def test_a_folder_of_another_name_or_without_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    whole = save(tmp_path, 1)
    (tmp_path / "step-000002").mkdir()
    shutil.copytree(whole, tmp_path / "step-000003-copy")
    shutil.copytree(whole, tmp_path / ".saving-step-000004")
    shutil.copytree(whole, tmp_path / "step-٠٠٠٠٠٥")  # digits, and not ours
    shutil.copytree(whole, tmp_path / "step-000006")  # a copy under another step's name
    assert checkpoints(tmp_path) == [whole]
    assert checkpoints(tmp_path / "missing") == []


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path: Path, kind: str) -> None:
    before, after = save(tmp_path, 1), save(tmp_path, 2)
    DAMAGES[kind](after)
    found = newest_whole(tmp_path)
    assert found is not None
    assert (found.checkpoint, found.step, list(found.damaged)) == (before, 1, [after])
    fault = found.damaged[after]
    assert (
        fault
        == {
            "flipped": "policy.txt has the SHA-256 "
            "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865, and "
            "9a271f2a916b0b6ee6cecb2426f0b3206ef074578be55d9bc94f6f3fe3ab86aa was written",
            "cut": "policy.txt has 1 bytes, and 2 were written",
            "gone": "policy.txt is missing",
            "progress": fault if fault.startswith("progress.json has the SHA-256 ") else None,
            "manifest cut": fault if fault.startswith("manifest.json is damaged: ") else None,
            "manifest gone": "it has no manifest.json, which is written last",
            "empty": "it has no manifest.json, which is written last",
        }[kind]
    )


def test_every_flipped_bit_of_every_file_is_seen(tmp_path: Path) -> None:
    """A flip in the manifest's blanks changes nothing that it says: then the checkpoint is as whole as it was."""
    path = save(tmp_path, 1)
    seen = unseen = 0
    for file in path.iterdir():
        for place in range(file.stat().st_size):
            flip(file, place)
            is_seen = damage(path, 1, hashes=True) is not None
            flip(file, place)
            seen, unseen = seen + is_seen, unseen + (not is_seen)
            assert is_seen or file.name == "manifest.json"
    assert seen > 300
    assert unseen == 0  # a blank with a bit turned is an exclamation mark, a line end is no blank either
    assert damage(path, 1, hashes=True) is None


def test_where_none_is_whole_the_run_does_not_begin_anew_in_silence(tmp_path: Path) -> None:
    assert newest_whole(tmp_path) is None
    for step in (1, 2):
        flip(save(tmp_path, step) / "policy.txt", 0)
    with pytest.raises(RequestError) as refused:
        newest_whole(tmp_path)
    message = str(refused.value)
    assert "No checkpoint" in message and "is whole" in message
    for step in (1, 2):
        assert f"{tmp_path / f'step-00000{step}'}: policy.txt has the SHA-256" in message
    assert "Restore one of them from a copy, or begin a new run" in message


def rewrite(path: Path, **changes: object) -> None:
    """Write a manifest that agrees with itself."""
    content = json.loads((path / "manifest.json").read_text()) | changes
    del content["sha256"]
    content["sha256"] = _content_hash(content)
    (path / "manifest.json").write_text(json.dumps(content))


def test_a_checkpoint_of_a_later_layout_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1)
    rewrite(save(tmp_path, 2), format=FORMAT + 1)
    with pytest.raises(
        RequestError, match=f"has the layout {FORMAT + 1}, and this program reads layouts up to {FORMAT}"
    ):
        newest_whole(tmp_path)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "a/../../secret.txt", ""])
def test_a_manifest_that_names_files_outside_is_damaged_and_nothing_outside_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("0\n")
    path = save(tmp_path / "checkpoints", 1)
    mark = json.loads((path / "manifest.json").read_text())["files"]["policy.txt"]
    rewrite(path, files={name: mark})
    assert damage(path, 1, hashes=True) == f"manifest.json names a file outside of the checkpoint, {name!r}"


@pytest.mark.parametrize(
    "content", ["[]", "{}", "null", "3", '{"sha256": 1}', '{"sha256": "a", "format": "b"}', "\x00"]
)
def test_whatever_stands_in_a_manifest_it_is_damage_and_no_crash(tmp_path: Path, content: str) -> None:
    path = save(tmp_path, 1)
    (path / "manifest.json").write_text(content)
    assert str(damage(path, 1, hashes=True)).startswith("manifest.json is damaged: ")


def test_a_damaged_one_is_put_aside_and_not_lost(tmp_path: Path) -> None:
    for _ in range(2):  # also where one was put aside before
        assert set_aside(save(tmp_path, 3)) == tmp_path / "damaged-step-000003"
    assert names(tmp_path) == ["damaged-step-000003"]
    assert checkpoints(tmp_path) == []


def test_a_copy_in_another_run_stays_when_the_first_is_removed(tmp_path: Path) -> None:
    source = save(tmp_path / "a", 3)
    path = copy_checkpoint(source, tmp_path / "b")
    assert path == tmp_path / "b" / "step-000003" and names(tmp_path / "b") == ["step-000003"]
    assert (path / "policy.txt").stat().st_ino == (source / "policy.txt").stat().st_ino  # no room is taken twice
    shutil.rmtree(source)
    assert newest_whole(tmp_path / "b") is not None


def test_a_copy_is_made_where_links_between_files_are_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    copy_checkpoint(save(tmp_path / "a", 3), tmp_path / "b")
    assert newest_whole(tmp_path / "b") is not None


def remake_manifest(path: Path, step: int) -> None:
    (path / "manifest.json").unlink()
    write_manifest(path, step)


# Manifests and contents that agree with themselves and say nothing that could be used

LONG = "n" * 5000


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"policy.txt": {}}, "manifest.json does not say the size and the SHA-256 of policy.txt"),
        ({"policy.txt": "x"}, "manifest.json does not say the size and the SHA-256 of policy.txt"),
        ({"policy.txt": None}, "manifest.json does not say the size and the SHA-256 of policy.txt"),
        ({"policy.txt": {"bytes": "2", "sha256": "a"}}, "manifest.json does not say the size and the SHA-256 of"),
        ({"policy.txt": {"bytes": 2}}, "manifest.json does not say the size and the SHA-256 of policy.txt"),
        ({LONG: {"bytes": 2, "sha256": "a"}}, f"{LONG[:80]}… cannot be read: File name too long"),
        ({"a\0b": {"bytes": 2, "sha256": "a"}}, "a\\x00b is missing"),
        ({"\ud800": {"bytes": 2, "sha256": "a"}}, "\\ud800 is missing"),
        ({}, "manifest.json does not name progress.json"),
        ([], "manifest.json is damaged: it holds no list of files"),
        (None, "manifest.json is damaged: it holds no list of files"),
    ],
)
def test_a_manifest_that_says_nothing_useful_is_damage_like_any_other(
    tmp_path: Path, files: object, words: str
) -> None:
    before, after = save(tmp_path, 1), save(tmp_path, 2)
    rewrite(after, files=files)
    found = newest_whole(tmp_path)
    assert found is not None and found.checkpoint == before
    assert found.damaged[after].startswith(words)
    assert checkpoints(tmp_path) == [before]
    assert set_aside(after).name == "damaged-step-000002"


def test_a_manifest_of_brackets_without_end_is_damage(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "manifest.json").write_text("[" * 200_000)
    assert str(damage(path, 1, hashes=True)).startswith("manifest.json is damaged: RecursionError")


@pytest.mark.parametrize("name", ["pending.jsonl", "model.safetensors", "trainer/optimizer.safetensors"])
def test_a_file_that_would_be_read_and_that_the_manifest_does_not_name_is_damage(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1)
    (path / name).parent.mkdir(exist_ok=True)
    (path / "README.md").write_text("mine")  # nobody reads that
    assert damage(path, 1, hashes=True) is None
    (path / name).write_text("")
    assert damage(path, 1, hashes=True) == f"manifest.json does not name {name}"


@pytest.mark.parametrize("name", ["policy.txt", "trainer"])
def test_a_link_in_a_checkpoint_is_damage(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / "checkpoints", 1)
    (path / "trainer").mkdir()
    (path / "trainer" / "counts.json").write_text("{}")
    remake_manifest(path, 1)
    assert damage(path, 1, hashes=True) is None
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    shown = "policy.txt" if name == "policy.txt" else "trainer/counts.json"
    assert damage(path, 1, hashes=True) == f"{shown} is a link, and a file was written"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("progress.json", "{", "it cannot be read: {path} is not JSON ("),
        ("progress.json", "[" * 200_000, "it cannot be read: {path} is not JSON ("),
        ("progress.json", "[]", "it cannot be read: {path} holds no step with a state"),
        ("progress.json", '{"step": "2", "state": {}}', "it cannot be read: {path} holds no step with a state"),
        ("progress.json", '{"step": 2}', "it cannot be read: {path} holds no step with a state"),
        ("progress.json", '{"step": 7, "state": {}}', "progress.json says that it is of step 7"),
        ("pending.jsonl", "no JSON\n", "it cannot be read: line 1 of {path} is not JSON"),
        ("model.safetensors", "no tensors", "model.safetensors cannot be read: "),
        ("trainer/optimizer.safetensors", "", "trainer/optimizer.safetensors cannot be read: "),
    ],
)
def test_what_was_written_and_cannot_be_read_is_damage_like_any_other(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    before, after = save(tmp_path, 1), save(tmp_path, 2)
    (after / name).parent.mkdir(exist_ok=True)
    (after / name).write_text(content)
    remake_manifest(after, 2)
    assert damage(after, 2, hashes=True) is None
    found = newest_whole(tmp_path)
    assert found is not None and found.checkpoint == before
    assert found.damaged[after].startswith(words.replace("{path}", str(after / name)))
