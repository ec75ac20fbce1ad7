from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors import SafetensorError

from dapo.errors import RunError
from dapo.storage.checkpoint import Progress, checkpoints, read_progress, save_checkpoint
from tests.fakes import FakeTokenizer, FakeTrainer


def save(folder: Path, step: int, *, keep: int = 2, trainer: FakeTrainer | None = None) -> Path:
    trainer = trainer or FakeTrainer()
    return save_checkpoint(
        folder,
        Progress(step=step, stream_position=10 * step),
        trainer,
        FakeTokenizer(),  # type: ignore[arg-type]
        keep=keep,
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_holds_policy_tokenizer_and_progress(tmp_path: Path) -> None:
    trainer = FakeTrainer()
    trainer.version = 6
    path = save(tmp_path / "checkpoints", 3, trainer=trainer)
    assert path == tmp_path / "checkpoints" / "step-000003"
    assert names(path) == ["policy.txt", "progress.json", "tokenizer.json"]
    assert json.loads((path / "progress.json").read_text()) == {"step": 3, "stream_position": 30}
    assert read_progress(path) == Progress(step=3, stream_position=30)
    restored = FakeTrainer()
    restored.restore(path)
    assert restored.version == 6


def test_only_the_newest_stay_by_number_and_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 999_999, 1_000_000):
        save(tmp_path, step)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-999999", "step-1000000"]
    assert names(tmp_path) == ["step-1000000", "step-999999"]
    save(tmp_path, 1_000_001, keep=1)
    assert names(tmp_path) == ["step-1000001"]


class Untouchable(FakeTrainer):
    def save(self, folder: Path) -> None:
        raise AssertionError("the step was saved already")


def test_a_step_that_was_saved_is_not_saved_twice(tmp_path: Path) -> None:
    path = save(tmp_path, 4)
    assert save(tmp_path, 4, trainer=Untouchable()) == path


class Full(FakeTrainer):
    """Writes a part and finds the disk full."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def save(self, folder: Path) -> None:
        super().save(folder)
        raise self._error


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
    assert "Older checkpoints are as they were" in message and "GB are free" in message and "--resume" in message
    assert failed.value.exit_code == 1
    assert names(tmp_path) == ["step-000001"]
    assert save(tmp_path, 2).name == "step-000002"


class Interrupted(FakeTrainer):
    def save(self, folder: Path) -> None:
        super().save(folder)
        raise KeyboardInterrupt


def test_what_a_killed_save_left_is_no_checkpoint_and_does_not_hinder_the_next(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, trainer=Interrupted())
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001"]
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000001", "step-000002"]


def test_a_folder_without_progress_or_of_another_name_is_no_checkpoint(tmp_path: Path) -> None:
    whole = save(tmp_path, 1)
    (tmp_path / "step-000002").mkdir()
    shutil.copytree(whole, tmp_path / "step-000003-copy")
    shutil.copytree(whole, tmp_path / ".saving-step-000004")
    assert checkpoints(tmp_path) == [whole]
    assert checkpoints(tmp_path / "missing") == []
