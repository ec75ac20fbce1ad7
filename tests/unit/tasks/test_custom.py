from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from dapo.errors import ConfigError, DataError, RewardError
from dapo.loading import load_object
from dapo.ports import Task
from dapo.tasks.config import CustomConfig
from dapo.tasks.custom import CustomReward, load_reward
from dapo.types import Finish, Message, Problem, Score
from tests.unit.tasks.replies import reply, score

PROBLEM = Problem(id="p-1", messages=(Message(role="user", content="?"),), answer="1")

HEADER = "from dapo.types import Message, Problem, Score\nP = Problem(id='p-1', messages=(), answer='1')\n"
TASK = (
    HEADER
    + """
class Mine:
    def __init__(self, *, seed: int, size: int = 2) -> None:
        self.seed, self.size = seed, size

    def train_problems(self):
        return [P] * self.size

    def held_out_problems(self):
        return []

    async def score(self, problem, rollout):
        return Score(correct=rollout.text == problem.answer, reward=0.5)
"""
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Writes the text of a module into the working directory and returns its name, a new one for each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    name = f"written_by_{abs(hash(request.node.nodeid))}"

    def write(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    sys.modules.pop(name, None)


def refusal(path: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        CustomConfig(path=path, options=options).check()
    assert refused.value.exit_code == 2
    return str(refused.value)


def build_refusal(path: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        CustomConfig(path=path, options=options).build(0)
    return str(refused.value)


def test_an_object_is_found_by_its_name() -> None:
    assert load_object("math:sqrt") is math.sqrt
    assert load_object("pathlib:Path.home") == Path.home


@pytest.mark.parametrize("path", ["mine", "mine.score", ":score", "mine:", "", "a/b.py:score", "a..b:c", "my module:x"])
def test_a_path_that_names_no_object(path: str) -> None:
    assert f"{path!r} does not name an object; write it as my.module:name" in refusal(path)


def test_a_module_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal("no_such_module:score")
    assert "there is no module 'no_such_module'" in message
    assert f"working directory {tmp_path}" in message
    assert "there is no module 'json.none'" in refusal("json.none:score")
    assert "there is no module 'no_such_module'" in refusal("no_such_module.sub:score")


def test_a_module_that_needs_what_is_not_installed(module: Any) -> None:
    name = module("import no_such_package\n")
    assert f"importing {name} failed because it needs the module 'no_such_package', which is not" in refusal(
        f"{name}:x"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0\n", "raised ZeroDivisionError: division by zero"),
        ("def broken(:\n", "raised SyntaxError"),
        ("from math import no_such_name\n", "raised ImportError: cannot import name 'no_such_name'"),
        ("raise SystemExit(3)\n", "raised SystemExit: 3"),
    ],
)
def test_a_module_that_fails_while_it_is_imported(module: Any, text: str, words: str) -> None:
    name = module(text)
    message = refusal(f"{name}:x")
    assert f"importing {name} {words}" in message
    assert f"`python -c 'import {name}'` shows where" in message


def test_a_name_that_the_module_does_not_have(module: Any) -> None:
    name = module("def score(problem, reply):\n    return True\nvalue = 3\n")
    assert "it has no 'scores'; did you mean 'score'?" in refusal(f"{name}:scores")
    assert "it has no 'zzzzzz'; correct the name after the colon" in refusal(f"{name}:zzzzzz")
    assert f"'{name}:value' is a int and cannot be called; name a function or a class" in refusal(f"{name}:value")


def test_the_working_directory_is_searched_first_and_stays_last(module: Any, tmp_path: Path) -> None:
    name = module("import sys\nfirst = sys.path[0]\ndef score(problem, reply):\n    return first\n")
    found = load_object(f"{name}:score")
    assert found(None, None) == str(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1
    load_object(f"{name}:score")
    assert sys.path.count(str(tmp_path)) == 1


def test_a_task_is_made_with_the_options_and_the_seed_of_the_run(module: Any) -> None:
    path = f"{module(TASK)}:Mine"
    task = CustomConfig(path=path, options={"size": 5}).build(7)
    assert isinstance(task, Task)
    assert task.task.seed == 7  # type: ignore[attr-defined]
    assert len(task.train_problems()) == 5
    assert task.held_out_problems() == []
    assert score(task, task.train_problems()[0], "1") == Score(correct=True, reward=0.5)
    assert CustomConfig(path=path, options={"seed": 3}).build(7).task.seed == 3  # type: ignore[attr-defined]
    CustomConfig(path=path).check()


def test_options_that_the_task_does_not_take(module: Any) -> None:
    path = f"{module(TASK)}:Mine"
    message = refusal(path, sise=5)
    assert f"task.options has 'sise', which '{path}' does not take; did you mean 'size'?" in message
    assert "size: int = 2" in message


def test_options_that_the_task_needs(module: Any) -> None:
    name = module("class Mine:\n    def __init__(self, folder): ...\n")
    assert "cannot be made from task.options = {}: missing a required argument: 'folder'" in refusal(f"{name}:Mine")


def test_any_option_goes_where_any_is_taken(module: Any) -> None:
    name = module(TASK + "\ndef make(**options):\n    return Mine(seed=1, size=options['anything'])\n")
    assert len(CustomConfig(path=f"{name}:make", options={"anything": 4}).build(0).train_problems()) == 4


def test_a_task_that_fails_while_it_is_made(module: Any) -> None:
    name = module("def broken():\n    raise KeyError('x')\n")
    assert "raised KeyError: 'x'; correct the task or its options" in build_refusal(f"{name}:broken")


def test_an_error_of_ours_from_a_task_stays_as_it_is(module: Any) -> None:
    name = module("from dapo.errors import DataError\ndef make():\n    raise DataError('row 3 is bad')\n")
    with pytest.raises(DataError, match=r"^row 3 is bad$"):
        CustomConfig(path=f"{name}:make").build(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("def train_problems", "def problems"), "made a Mine, which is no task: it has no method 'train_problems'"),
        (("def held_out_problems(self)", "def held_out_problems(self, n)"), "held_out_problems must be callable as"),
        (("async def score", "def score"), "score must be written as `async def score(self, problem, rollout)`"),
        (
            ("score(self, problem, rollout)", "score(self, problem)"),
            "score must be callable as score(problem, rollout)",
        ),
    ],
)
def test_what_is_no_task(module: Any, change: tuple[str, str], words: str) -> None:
    assert words in build_refusal(f"{module(TASK.replace(*change))}:Mine")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("None", "returned None (NoneType); return a sequence of dapo.types.Problem"),
        ("iter([P])", "return a sequence of dapo.types.Problem"),
        ("'abc'", "returned 'abc' (str); return a sequence"),
        ("[{'id': 'a'}]", "[0] is {'id': 'a'} (dict); it must be a dapo.types.Problem"),
        ("[]", "train_problems() is empty, so there is nothing to train on"),
    ],
)
def test_problems_that_are_none(module: Any, returned: str, words: str) -> None:
    task = CustomConfig(path=f"{module(TASK.replace('[P] * self.size', returned))}:Mine").build(0)
    with pytest.raises(ConfigError) as refused:
        task.train_problems()
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("broken", "words"),
    [("1 / 0", "raised ZeroDivisionError: division by zero"), ("raise SystemExit(0)", "raised SystemExit: 0")],
)
def test_problems_that_cannot_be_made(module: Any, broken: str, words: str) -> None:
    name = module(TASK.replace("return [P] * self.size", broken) + f"\ndef make():\n    {broken}\n")
    with pytest.raises(ConfigError) as refused:
        CustomConfig(path=f"{name}:Mine").build(0).train_problems()
    assert f"{name}:Mine.train_problems() {words}; correct the task" in str(refused.value)
    assert f"with the options {{}} {words}" in build_refusal(f"{name}:make")


def test_a_task_that_returns_no_score(module: Any) -> None:
    name = module(TASK.replace("Score(correct=rollout.text == problem.answer, reward=0.5)", "1.0"))
    task = CustomConfig(path=f"{name}:Mine").build(0)
    with pytest.raises(
        RewardError, match=r"Mine.score returned 1.0 \(float\) for problem 'p-1'; a task returns a dapo"
    ):
        score(task, PROBLEM, "1")


def test_a_task_that_raises(module: Any) -> None:
    name = module(TASK.replace("rollout.text ==", "rollout.nothing =="))
    task = CustomConfig(path=f"{name}:Mine").build(0)
    with pytest.raises(RewardError, match=r"Mine.score raised AttributeError for problem 'p-1'") as raised:
        score(task, PROBLEM, "1")
    assert isinstance(raised.value.__cause__, AttributeError)


def give(value: object) -> Score:
    reward = CustomReward(name="my.module:reward", function=lambda problem, text: value)
    return asyncio.run(reward.score(PROBLEM, reply("text")))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, Score(correct=True, reward=1.0)),
        (False, Score(correct=False, reward=-1.0)),
        (0.25, Score(correct=True, reward=0.25)),
        (0.0, Score(correct=False, reward=0.0)),
        (-2, Score(correct=False, reward=-2.0)),
        (Score(correct=True, reward=1), Score(correct=True, reward=1.0)),
        (numpy.float32(0.5), Score(correct=True, reward=0.5)),
        (Score(correct=False, reward=3.0, extracted="x"), Score(correct=False, reward=3.0, extracted="x")),
    ],
)
def test_what_a_reward_may_return(value: object, expected: Score) -> None:
    given = give(value)
    assert given == expected
    assert type(given.reward) is float


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None (NoneType)"),
        ("1", "'1' (str)"),
        (math.nan, "nan (float)"),
        (math.inf, "inf (float)"),
        (-math.inf, "-inf (float)"),
        ([1.0], "[1.0] (list)"),
        (1j, "1j (complex)"),
        (10**400, "1" + "0" * 199 + "... (int)"),
        (Score(correct=True, reward=math.nan), "Score(correct=True, reward=nan"),
        (Score(correct=1, reward=1.0), "Score(correct=1, reward=1.0"),  # type: ignore[arg-type]
        (Score(correct=True, reward="1"), "Score(correct=True, reward='1'"),  # type: ignore[arg-type]
        ("x" * 1000, "'" + "x" * 199 + "... (str)"),
    ],
)
def test_what_a_reward_may_not_return(value: object, shown: str) -> None:
    with pytest.raises(RewardError) as raised:
        give(value)
    message = str(raised.value)
    assert message.startswith(f"my.module:reward returned {shown}")
    assert "for problem 'p-1'" in message
    assert message.endswith(
        "allowed are True or False (the reward is +1 or -1), a finite number (the reward itself; right if above 0) "
        "or a dapo.types.Score"
    )
    assert raised.value.exit_code == 1


def test_a_reward_may_be_async() -> None:
    async def reward(problem: Problem, text: str) -> bool:
        await asyncio.sleep(0)
        return text == problem.answer

    right = CustomReward(name="a:b", function=reward)
    assert asyncio.run(right.score(PROBLEM, reply("1"))) == Score(correct=True, reward=1.0)
    assert asyncio.run(right.score(PROBLEM, reply("2"))) == Score(correct=False, reward=-1.0)


def test_a_reward_that_raises() -> None:
    def reward(problem: Problem, text: str) -> float:
        return 1 / len(text)

    with pytest.raises(RewardError) as raised:
        asyncio.run(CustomReward(name="a:b", function=reward).score(PROBLEM, reply("")))
    assert str(raised.value) == (
        "a:b raised ZeroDivisionError for problem 'p-1': division by zero; "
        "return a score for every reply, also for an empty or a strange one"
    )
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_reward_judges_truncated_replies_but_not_failed_ones() -> None:
    reward = CustomReward(name="a:b", function=lambda problem, text: True)
    assert asyncio.run(reward.score(PROBLEM, reply("1", Finish.LENGTH))) == Score(correct=True, reward=1.0)
    failed = asyncio.run(reward.score(PROBLEM, reply("1", Finish.ERROR)))
    assert (failed.correct, failed.reward) == (False, -1.0)
    assert failed.error == "the engine failed before the reply was complete"


def test_a_reward_takes_a_problem_and_a_reply(module: Any) -> None:
    name = module("def one(text):\n    return True\n\ndef two(problem, reply, extra=None):\n    return True\n")
    with pytest.raises(ConfigError, match=r"cannot be called as reward\(problem, reply\): its parameters are \(text\)"):
        load_reward(f"{name}:one")
    assert load_reward(f"{name}:two").name == f"{name}:two"
