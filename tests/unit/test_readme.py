"""The README is true: its code runs, its numbers of lines are right, its table of packages is the real one."""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dapo.tasks.config import CustomConfig, JsonlConfig
from dapo.types import Finish, Rollout
from tests.unit.test_docs import PAGES, ROOT, code_blocks

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that holds every file which a code block of the README says it is."""
    names: list[str] = []
    for block in code_blocks(README, "python"):
        title = re.match(r"# (\w+)\.py\n", block)
        if title:
            (tmp_path / f"{title[1]}.py").write_text(block, encoding="utf-8")
            names.append(title[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in names:
        if name in sys.modules:
            del sys.modules[name]


def reply(text: str, finish: Finish = Finish.STOP) -> Rollout:
    return Rollout(token_ids=(1,), mask=(True,), logprobs=(-0.5,), text=text, finish=finish, policy_version=0)


def section_of(name: str) -> list[dict[str, object]]:
    """Every `[name]` table of the README's TOML blocks."""
    blocks = [tomllib.loads(block) for block in code_blocks(README, "toml")]
    return [block[name] for block in blocks if name in block]


def test_the_library_use_is_the_file_in_examples() -> None:
    first = code_blocks(README, "python")[0]
    assert first == (ROOT / "examples" / "library_use.py").read_text(encoding="utf-8")
    assert len([line for line in first.splitlines() if line]) <= 12


def test_the_formulas_are_lines_of_the_file_in_examples() -> None:
    last = code_blocks(README, "python")[-1]
    assert last in (ROOT / "examples" / "own_loop.py").read_text(encoding="utf-8")


def test_the_first_screen_comes_in_its_order() -> None:
    marks = ["# dapo\n", "docs/images/quickstart.svg", "make train", "make test", "dapo sample runs/quickstart"]
    marks += ["from pathlib import Path", "the only thing that comes back", "Read in this order", "## What DAPO is"]
    places = [TEXT.index(mark, 0) for mark in marks[:2]]
    places += [TEXT.index(mark, TEXT.index("```sh")) for mark in marks[2:]]
    assert places == sorted(places)


def test_line_counts_are_right_within_a_tenth() -> None:
    rows = re.findall(r"^\| \[[^\]]+\]\((src/[^)]+)\) \| (\d+) \|", TEXT, re.MULTILINE)
    assert [path for path, _ in rows] == [
        "src/dapo/loop.py",
        "src/dapo/types.py",
        "src/dapo/algorithms/value.py",
        "src/dapo/maths/losses.py",
    ]
    for path, said in rows:
        real = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        assert abs(int(said) - real) <= 0.1 * real, f"{path} has {real} lines, and the README says {said}"


def test_the_table_of_packages_is_that_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]]
    table = TEXT[TEXT.index("| package | for |") :].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == needed


def test_your_own_reward_scores(own_modules: Path) -> None:
    (own_modules / "problems.jsonl").write_text('{"prompt": "a?", "answer": "7"}\n{"prompt": "b?", "answer": "8"}\n')
    section = next(found for found in section_of("task") if "reward" in found)
    task = JsonlConfig.model_validate(section).build(seed=0)
    problem = next(found for found in (*task.train_problems(), *task.held_out_problems()) if found.answer == "7")
    short = asyncio.run(task.score(problem, reply("it is 7")))
    long = asyncio.run(task.score(problem, reply("7 " * 400)))
    wrong = asyncio.run(task.score(problem, reply("it is 8")))
    assert (short.correct, short.reward) == (True, 1.0 - 7 / 1000)
    assert (long.correct, long.reward) == (True, 0.5)
    assert (wrong.correct, wrong.reward) == (False, -1.0)


def test_your_own_task_asks_and_scores(own_modules: Path) -> None:
    section = next(found for found in section_of("task") if found["type"] == "custom")
    config = CustomConfig.model_validate(section)
    config.check()
    task = config.build(seed=0)
    assert [problem.id for problem in task.held_out_problems()] == ["strawberry"]
    assert [problem.id for problem in task.train_problems()] == ["raspberry", "blueberry"]
    held_out = task.held_out_problems()[0]
    assert held_out.messages[0].content == "How often does r occur in strawberry? Answer with a number."
    assert asyncio.run(task.score(held_out, reply(" 3."))).reward == 1.0
    assert asyncio.run(task.score(held_out, reply("2"))).reward == -1.0
    assert asyncio.run(task.score(held_out, reply("3", Finish.LENGTH))).correct is False


def test_the_jsonl_example_is_read(own_modules: Path) -> None:
    line = re.search(r'`(\{"prompt": .*?\})`', TEXT)
    assert line is not None
    (own_modules / "problems.jsonl").write_text(f'{line[1]}\n{{"prompt": "b?", "answer": "8"}}\n')
    section = next(found for found in section_of("task") if found["type"] == "jsonl" and "reward" not in found)
    task = JsonlConfig.model_validate(section).build(seed=0)
    problems = [*task.train_problems(), *task.held_out_problems()]
    assert sorted(problem.answer for problem in problems) == ["10001", "8"]


def test_no_placeholder_is_left() -> None:
    pages = [*PAGES, ROOT / "docs" / "images" / "quickstart.svg", *sorted((ROOT / "recipes").glob("*.toml"))]
    left = [page.name for page in pages if re.search(r"\{\{[A-Z_]+\}\}", page.read_text(encoding="utf-8"))]
    assert left == []
