"""Runs what docs/tasks.md shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from dapo.tasks.config import ArithmeticConfig, CustomConfig, JsonlConfig, TaskConfig
from dapo.tasks.integers import final_integer
from dapo.types import Score
from tests.unit.tasks.replies import score

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the page shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for block in blocks("python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block)
    (tmp_path / "problems.jsonl").write_text(blocks("json")[0])
    return tmp_path


def test_every_table_is_a_task() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(TaskConfig)
    configs = [adapter.validate_python(tomllib.loads(block)["task"]) for block in blocks("toml")]
    assert [config.type for config in configs] == ["arithmetic", "math", "jsonl", "jsonl", "reasoning_gym", "custom"]
    assert configs[0] == ArithmeticConfig()


def test_the_shares_that_the_page_states() -> None:
    for seed in range(5):
        products = sum(problem.id.startswith("mul") for problem in ArithmeticConfig().build(seed).train_problems())
        assert 160 <= products <= 180
        equal = [problem.id[:3] for problem in ArithmeticConfig(train=450).build(seed).train_problems()]
        assert {name: equal.count(name) for name in equal} == {"add": 150, "sub": 150, "mul": 150}


def test_the_rows_and_the_reward(folder: Path) -> None:
    rows = [json.loads(line) for line in blocks("json")[0].splitlines()]
    task = JsonlConfig(path=Path("problems.jsonl"), held_out=0).build(0)
    first, second = task.train_problems()
    assert (first.id, first.answer) == ("first", rows[0]["answer"])
    assert (second.id, second.answer) == ("row-2", str(rows[1]["answer"]))
    task = JsonlConfig(path=Path("problems.jsonl"), held_out=0, reward="my_rewards:close").build(0)
    assert score(task, first, "word " * 57) == Score(correct=True, reward=0.75)


def test_the_task_and_the_way_to_try_it(folder: Path) -> None:
    task = CustomConfig(path="letters:Letters", options={"held_out_words": 3}).build(1)
    problem = task.train_problems()[0]
    assert score(task, problem, problem.answer) == Score(correct=True, reward=1.0, extracted=problem.answer)
    done = subprocess.run([sys.executable, "-c", blocks("python")[-1]], capture_output=True, text=True, cwd=folder)
    assert done.stderr == ""
    assert re.match(r"How often does the letter \w occur in \w+\? .* Score\(correct=True, reward=1.0", done.stdout)


def test_the_table_of_integers() -> None:
    assert [final_integer(text) for text in ("60 km", "060", "60.0", "1{,}234", "1.234,5", "x = - 5")] == [
        "60",
        "60",
        "60",
        "1234",
        None,
        "-5",
    ]
