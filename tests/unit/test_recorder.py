"""The order in which a run's results reach the disk: whatever says that something is done comes after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dapo.config import parse_config
from dapo.errors import RunError
from dapo.recorder import FolderRecorder
from dapo.storage.checkpoint import checkpoints
from dapo.storage.evaluation_folder import EvaluationFolder
from dapo.storage.run_folder import RunFolder
from dapo.types import Sampling
from tests.fakes import FakeTokenizer, FakeTrainer

RECIPE: dict[str, Any] = {
    "steps": 10,
    "model": {"path": "some/model"},
    "task": {"type": "arithmetic"},
    "report": {"console": False},
}


class Scene:
    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.trainer = FakeTrainer()
        renderer: Any = SimpleNamespace(tokenizer=FakeTokenizer())
        self.recorder = FolderRecorder(parse_config(RECIPE, what="test"), self.folder, self.trainer, renderer)

    @property
    def saved(self) -> list[str]:
        self.recorder.finish()
        return [path.name for path in checkpoints(self.folder.checkpoints)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.recorder.close()


def test_a_checkpoint_waits_for_the_metrics_of_its_step(scene: Scene) -> None:
    scene.recorder.save(1, {"stream": {}})
    scene.trainer.version = 7
    assert scene.saved == []
    scene.recorder.metrics(1, {})
    assert scene.saved == ["step-000001"]
    assert (scene.folder.checkpoints / "step-000001" / "policy.txt").read_text() == "0\n"


def test_a_checkpoint_of_a_step_whose_metrics_are_there_does_not_wait(scene: Scene) -> None:
    scene.recorder.metrics(1, {})
    scene.recorder.save(1, {"stream": {}})
    assert scene.saved == ["step-000001"]


def test_the_share_of_time_that_saving_takes_is_in_the_metrics(scene: Scene) -> None:
    scene.recorder.save(1, {})
    scene.recorder.metrics(1, {"time/save": 0.5, "time/step": 2.0})
    scene.recorder.finish()
    scene.recorder.metrics(2, {"time/save": 0.5})
    scene.recorder.metrics(3, {"time/save": 0.5, "time/step": 1.0})
    first, second, third = (json.loads(line) for line in scene.folder.metrics.read_text().splitlines())
    assert (first["time/save_share"], first["time/save_background"]) == (0.25, 0.0)
    assert second["time/save_share"] == 0.0 and second["time/save_background"] > 0
    assert (third["time/save_share"], third["time/save_background"]) == (0.5, 0.0)


def test_an_evaluation_counts_only_once_its_replies_are_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"step": 2, "avg": 0.5, "ci_low": 0.4, "ci_high": 0.6, "problems": 1, "samples": 1}
    result: Any = SimpleNamespace(summary=lambda step, data: line, results=(), sampling=Sampling(max_tokens=1))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with (
        monkeypatch.context() as patched,
        pytest.raises(RunError, match="evaluations/step-000002 could not be written"),
    ):
        patched.setattr(EvaluationFolder, "replace", full)
        scene.recorder.evaluation(2, result)
    assert scene.recorder.evaluations == []
    scene.recorder.evaluation(2, result)
    assert scene.recorder.evaluations == [line]


def test_what_goes_wrong_is_told_also_where_no_screen_is_wanted(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.recorder.note("nothing of note")
    scene.recorder.warn("a checkpoint is damaged")
    assert caplog.messages == ["a checkpoint is damaged"]
