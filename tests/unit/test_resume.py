from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dapo.config import parse_config, remarks
from dapo.errors import ConfigError, RequestError
from dapo.resume import MAY_CHANGE, check_fork, differences, refuse_another_run, refuse_nested
from dapo.storage.manifest import write_manifest
from dapo.storage.run_folder import RunFolder

RECIPE: dict[str, Any] = {
    "steps": 10,
    "model": {"path": "some/model"},
    "task": {"type": "arithmetic"},
    "batch": {"groups_per_step": 4, "group_size": 4, "updates_per_step": 2, "max_tokens": 8, "max_prompt_tokens": 16},
}


def resolved(**changes: Any) -> dict[str, Any]:
    content = {**RECIPE, **changes}
    return parse_config(content, what="test").model_dump(mode="json")


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 20},
        {"evaluation": {"samples": 4, "every": 5}},
        {"checkpoint": {"every": 2, "keep": 7, "keep_best": False}},
        {"report": {"console": False}},
    ],
    ids=MAY_CHANGE,
)
def test_what_is_seen_of_a_run_and_how_long_it_is_may_change(changes: dict[str, Any]) -> None:
    assert differences(resolved(), resolved(**changes)) == {}
    refuse_another_run(resolved(), resolved(**changes), Path("runs/a"))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"model": {"path": "other/model"}}, "model.path"),
        ({"algorithm": {"type": "dapo", "clip_high": 0.3}}, "algorithm.clip_high"),
        ({"batch": RECIPE["batch"] | {"group_size": 8}}, "batch.group_size"),
        ({"trainer": {"learning_rate": 0.5}}, "trainer.learning_rate"),
        ({"engine": {"type": "hf"}}, "engine.type"),
        ({"task": {"type": "arithmetic", "max_left": 7}}, "task.max_left"),
    ],
)
def test_what_would_be_another_run_is_named_with_both_values(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_another_run(resolved(), resolved(**changes), Path("runs/a"))
    old, new = differences(resolved(), resolved(**changes))[name]
    message = str(refused.value)
    assert f"  - {name}: {old!r} there, {new!r} now" in message
    assert "--fork runs/a with a new folder as --run" in message


def test_what_stands_beside_the_recipe_makes_no_difference() -> None:
    beside = {"versions": {"torch": "1"}, "forked_from": {"step": 3, "difference": {"seed": {"there": 0, "here": 1}}}}
    assert differences(resolved() | beside, resolved()) == {}


def test_a_fork_needs_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no run with a checkpoint"):
        check_fork(RunFolder(tmp_path))
    folder = RunFolder(tmp_path / "run")
    folder.start(resolved())
    with pytest.raises(RequestError, match="holds no run with a checkpoint"):
        check_fork(folder)
    checkpoint = folder.checkpoints / "step-000005"
    checkpoint.mkdir(parents=True)
    (checkpoint / "progress.json").write_text("{}")
    write_manifest(checkpoint, 5)
    check_fork(folder)


def test_evaluations_that_fall_between_checkpoints_are_remarked_on() -> None:
    def said(**changes: Any) -> list[str]:
        return [
            text for text in remarks(parse_config({**RECIPE, **changes}, what="test")) if "evaluation.every" in text
        ]

    assert said() == said(evaluation={"every": 10}) == []
    assert said(evaluation={"every": 7}) == [
        "evaluation.every = 7 is no multiple of checkpoint.every = 5: some steps are evaluated and not saved, so the best of "
        "them may not stay."
    ]
    assert said(evaluation={"every": 7}, checkpoint={"keep_best": False}) == []
    assert said(evaluation={"every": 7, "enabled": False}) == []


@pytest.mark.parametrize(
    ("source", "folder"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "link/b"), ("a", "x/../a")]
)
def test_a_fork_lies_beside_the_run_that_it_is_forked_from(tmp_path: Path, source: str, folder: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(RequestError, match="one of them lies in the other"):
        refuse_nested(tmp_path / source, tmp_path / folder)
    refuse_nested(tmp_path / "a", tmp_path / "ab")
    refuse_nested(tmp_path / "a" / "b", tmp_path / "a" / "c")
