"""Saving beside training: in order, one at a time, and never silently wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dapo.errors import RunError
from dapo.storage.checkpoint import Progress, checkpoints
from dapo.storage.saver import Saver, SaverPlan, tokenizer_files
from tests.fakes import FakeSnapshot, FakeTokenizer, FakeTrainer
from tests.unit.storage.saved import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(FakeSnapshot):
    """Is not written before it may be."""

    may: threading.Event
    begun: threading.Event

    def write(self, folder: Path) -> None:
        self.begun.set()
        assert self.may.wait(20)
        FakeSnapshot.write(self, folder)


class HeldTrainer(FakeTrainer):
    def __init__(self) -> None:
        super().__init__()
        self.may, self.begun = threading.Event(), threading.Event()
        self.num_bytes = 2
        self.error: Exception | None = None

    def snapshot(self) -> FakeSnapshot:
        if self.error is not None:
            return Broken(version=self.version, error=self.error)
        return Held(version=self.version, num_bytes=self.num_bytes, may=self.may, begun=self.begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(FakeSnapshot):
    error: Exception

    def write(self, folder: Path) -> None:
        raise self.error


class Scene:
    """A saver, its trainer, and the accuracies that are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.trainer = HeldTrainer()
        self.accuracies: dict[int, float] = {}
        plan = SaverPlan(folder=self.folder, keep=1, accuracies=lambda: self.accuracies)
        self.saver = Saver(plan, self.trainer, FakeTokenizer())

    def take(self, step: int) -> None:
        self.trainer.version = step
        self.saver.take(Progress(step=step, state={}))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.trainer.may.set()
    scene.saver.close()


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_change_it(scene: Scene) -> None:
    scene.take(3)
    assert checkpoints(scene.folder) == []  # not before the step's metrics are written
    scene.saver.write()
    assert scene.trainer.begun.wait(20)
    scene.trainer.version = 99  # training
    assert checkpoints(scene.folder) == []
    scene.saver.raise_early()
    scene.trainer.may.set()
    scene.saver.finish()
    (path,) = checkpoints(scene.folder)
    assert (path / "policy.txt").read_text() == "3\n"
    assert json.loads((path / "progress.json").read_text())["step"] == 3
    assert (path / "tokenizer.json").read_text() == "{}\n"
    assert scene.saver.seconds() > 0
    assert scene.saver.seconds() == 0  # told once


def test_the_next_waits_for_the_one_that_is_being_written(scene: Scene) -> None:
    scene.take(1)
    scene.saver.write()
    done = threading.Event()

    def next_one() -> None:
        scene.take(2)
        done.set()

    thread = threading.Thread(target=next_one)
    thread.start()
    assert not done.wait(0.1)
    scene.trainer.may.set()
    assert done.wait(20)
    thread.join()
    scene.saver.write()
    scene.saver.finish()
    assert names(scene.folder) == ["step-000002"]


def test_a_step_is_saved_once(scene: Scene) -> None:
    scene.trainer.may.set()
    for _ in range(2):
        scene.take(1)
        scene.saver.write()
    scene.saver.finish()
    scene.trainer.error = AssertionError("the step was saved already")
    scene.take(1)
    scene.saver.finish()


def test_what_went_wrong_beside_training_is_raised_at_the_next_chance(scene: Scene) -> None:
    scene.trainer.error = OSError(28, "No space left on device")
    scene.take(1)
    scene.saver.write()
    with pytest.raises(RunError, match="step-000001 could not be written: No space left on device"):
        scene.take(2)
    scene.saver.write()  # nothing was taken
    scene.saver.finish()
    scene.take(3)
    scene.saver.write()
    with pytest.raises(RunError, match="step-000003 could not be written"):
        scene.saver.finish()
    assert names(scene.folder) == []


def test_an_error_is_raised_without_waiting_once_it_is_there(scene: Scene) -> None:
    scene.trainer.error = OSError(5, "Input/output error")
    scene.take(1)
    scene.saver.write()
    scene.saver._threads.submit(lambda: None).result()  # the writing has ended
    with pytest.raises(RunError, match="Input/output error"):
        scene.saver.raise_early()


def test_an_error_that_nobody_waited_for_is_told_at_the_end(scene: Scene) -> None:
    scene.trainer.error = OSError(5, "Input/output error")
    scene.take(1)
    scene.saver.write()
    assert "Input/output error" in str(scene.saver.close())


def test_room_is_looked_for_before_anything_is_written(scene: Scene) -> None:
    scene.trainer.num_bytes = 10**18
    with pytest.raises(RunError) as failed:
        scene.take(1)
    message = str(failed.value)
    assert "The checkpoint " in message and "step-000001 could not be written" in message
    assert "It takes 1,000,000,000,000,000,003 bytes (1000000000.0 GB), and " in message
    assert "are free" in message and "Make room, then go on with --resume." in message
    assert names(scene.folder) == []


def test_the_best_is_known_at_the_end(scene: Scene) -> None:
    scene.trainer.may.set()
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7)):
        scene.take(step)
        scene.saver.write()
        scene.accuracies[step] = accuracy
    scene.saver.finish()
    assert names(scene.folder) == ["best", "step-000002", "step-000003"]


def test_a_tokenizer_is_read_once_with_files_in_folders(tmp_path: Path) -> None:
    class Nested:
        def save_pretrained(self, folder: str, /) -> None:
            (Path(folder) / "templates").mkdir()
            (Path(folder) / "templates" / "chat.jinja").write_text("a")

    assert tokenizer_files(Nested()) == {"templates/chat.jinja": b"a"}
