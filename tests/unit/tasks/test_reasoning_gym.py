"""The tests use a stand-in for the package, which starts at once and misbehaves when told to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dapo.errors import ConfigError
from dapo.ports import Task
from dapo.tasks import reasoning_gym
from dapo.tasks.config import ReasoningGymConfig
from dapo.tasks.reasoning_gym_process import Worker
from dapo.types import Finish, Message, Score
from tests.unit.tasks.replies import reply, score

FACTORY = """
import os, time
from dataclasses import dataclass

@dataclass
class Config:
    seed: int = 0
    size: int = 10
    largest: int = 10**9
    fault: str = ""

class Doubles:
    def __init__(self, config):
        self.config = config

    def __getitem__(self, index):
        if self.config.fault == "hash":
            return {"question": " ".join({"a", "b", "c", "d", "e", "f"} | {str(index)}), "answer": "1"}
        if self.config.fault == "draw" and index == 3:
            raise ValueError("no such entry")
        number = (self.config.seed + index) % self.config.largest
        return {"question": f"What is 2 * {number}?", "answer": str(2 * number), "secret": {1, 2}}

    def score_answer(self, answer, entry):
        print("this must not get between the answers")
        match answer:
            case "hang":
                while True:
                    try:
                        time.sleep(60)
                    except Exception:
                        return 1.0
            case "hang for good":
                import signal
                signal.setitimer(signal.ITIMER_REAL, 0)
                time.sleep(60)
            case "raise":
                raise KeyError("answer")
            case "exit":
                os._exit(7)
            case "nan":
                return float("nan")
            case "half":
                return 0.5
            case "nearly":
                return 1 - 1e-12
        return 1 if answer == entry["answer"] else 0.01

DATASETS = {"doubles": (Doubles, Config), "doubts": (Doubles, Config)}
"""

INIT = """
from .factory import DATASETS

def create_dataset(name, **options):
    dataset_class, config_class = DATASETS[name]
    config = config_class(**options)
    assert config.largest > 0, "largest must be positive"
    return dataset_class(config)
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "reasoning_gym").mkdir()
    (folder / "reasoning_gym" / "__init__.py").write_text(INIT)
    (folder / "reasoning_gym" / "factory.py").write_text(FACTORY)
    yield folder


@pytest.fixture(scope="module", autouse=True)
def worker(stand_in: Path) -> Iterator[Worker]:
    """One worker for the tests of this file, which finds the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(stand_in))
        patch.syspath_prepend(str(stand_in))
        worker = Worker()
        patch.setattr(reasoning_gym, "shared_worker", lambda: worker)
        yield worker
        worker.close()


def make(**settings: Any) -> Task:
    return ReasoningGymConfig(**{"name": "doubles", "size": 20, "held_out": 5, "score_seconds": 0.2} | settings).build(
        1
    )


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        ReasoningGymConfig(**{"name": "doubles"} | settings).check()
    return str(refused.value)


def test_problems() -> None:
    task = make(system="Think.")
    assert isinstance(task, Task)
    problems = task.train_problems()
    assert [problem.id for problem in problems] == [f"doubles-train-{index}" for index in range(20)]
    assert [problem.id for problem in task.held_out_problems()] == [f"doubles-held-out-{i}" for i in range(5)]
    first = problems[0]
    number = int(first.answer) // 2
    assert first.messages == (
        Message(role="system", content="Think."),
        Message(role="user", content=f"What is 2 * {number}?"),
    )
    assert problems[1].answer == str(2 * number + 2)


def test_seeds() -> None:
    def ask(run: int, **settings: Any) -> list[str]:
        task = ReasoningGymConfig(name="doubles", size=3, held_out=3, **settings).build(run)
        return [problem.answer for problem in (*task.train_problems(), *task.held_out_problems())]

    assert ask(1) == ask(1)
    assert not set(ask(1)) & set(ask(2))
    assert ask(1, data_seed=5) == ask(2, data_seed=5) == ask(5)


def test_questions_are_unique_and_on_one_side() -> None:
    task = make(options={"largest": 30}, size=20, held_out=10)
    train = {problem.messages for problem in task.train_problems()}
    held_out = {problem.messages for problem in task.held_out_problems()}
    assert (len(train), len(held_out), len(train | held_out)) == (20, 10, 30)


def test_a_generator_with_too_few_problems() -> None:
    with pytest.raises(ConfigError) as refused:
        make(options={"largest": 30}, size=21, held_out=10)
    assert str(refused.value) == (
        "task.size = 21, but 184 draws of the generator 'doubles' gave only 20 different problems that are not "
        "held out; lower task.size or widen task.options"
    )
    with pytest.raises(ConfigError, match=r"held_out = 31, but 224 draws .* gave only 30 different problems; lower"):
        make(options={"largest": 30}, size=1, held_out=31)


def test_scores() -> None:
    task = make()
    problem = task.train_problems()[0]
    right = Score(correct=True, reward=1.0, extracted=problem.answer)
    assert score(task, problem, f" {problem.answer}\n") == right
    assert score(task, problem, "nearly").correct
    assert score(task, problem, "half") == Score(correct=False, reward=-1.0, extracted="half")
    assert score(task, problem, "") == Score(correct=False, reward=-1.0, extracted="")
    assert score(task, problem, problem.answer, Finish.LENGTH) == Score(correct=False, reward=-1.0)
    assert score(task, problem, "\ud800 \0 \u2028\n") == Score(correct=False, reward=-1.0, extracted="\ud800 \0")


def test_partial_credit() -> None:
    task = make(partial_credit=True)
    problem = task.train_problems()[0]
    assert score(task, problem, "half") == Score(correct=False, reward=0.0, extracted="half")
    assert score(task, problem, "wrong").reward == pytest.approx(-0.98)
    assert score(task, problem, "nearly") == Score(correct=True, reward=1.0, extracted="nearly")
    assert score(task, problem, problem.answer).reward == 1.0


def test_what_the_scorer_sees() -> None:
    for extract, text in [
        ("last_line", "Let me see.\n{}\n\n"),
        ("answer_tag", "<answer>5</answer> no: <answer>\n{} </answer>."),
        ("whole", "\n{} "),
    ]:
        task = make(extract=extract)
        problem = task.train_problems()[2]
        assert score(task, problem, text.format(problem.answer)).correct, extract
        assert not score(task, problem, text.format(problem.answer + "1")).correct, extract
    assert score(make(extract="answer_tag"), problem, "5") == Score(correct=False, reward=-1.0)


def test_a_scorer_that_hangs() -> None:
    task = make()
    problem = task.train_problems()[0]
    hung = Score(correct=False, reward=-1.0, extracted="hang", error="the scorer took more than 0.2 seconds")
    started = time.perf_counter()
    assert score(task, problem, "hang") == hung
    assert 0.2 <= time.perf_counter() - started < 5
    assert score(task, problem, problem.answer).correct


def test_a_scorer_that_cannot_be_stopped_from_within() -> None:
    task = make()
    problem = task.train_problems()[0]
    assert score(task, problem, "hang for good").error == "the scorer took more than 0.2 seconds"
    assert score(task, problem, problem.answer).correct


def test_a_scorer_that_raises_or_returns_nonsense() -> None:
    task = make()
    problem = task.train_problems()[0]
    assert score(task, problem, "raise").error == "the scorer failed: KeyError: 'answer'"
    assert score(task, problem, "nan") == Score(
        correct=False, reward=-1.0, extracted="nan", error="the scorer returned nan"
    )


def test_a_scorer_that_ends_its_process() -> None:
    task = make()
    problem = task.train_problems()[0]
    assert score(task, problem, "exit").error == "the scorer failed: the scoring process ended with code 7"
    assert score(task, problem, problem.answer).correct


def test_many_at_once_each_get_their_own_score() -> None:
    task = make()
    problems = [problem for problem in task.train_problems() for _ in range(5)]

    async def all_scores() -> list[Score]:
        replies = [problem.answer if place % 3 else "hm" for place, problem in enumerate(problems)]
        return await asyncio.gather(
            *(task.score(problem, reply(text)) for problem, text in zip(problems, replies, strict=True))
        )

    assert [given.correct for given in asyncio.run(all_scores())] == [bool(place % 3) for place in range(100)]


def test_a_generator_that_goes_through_sets_makes_the_same_problems_in_every_process(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, stand_in: Path
) -> None:
    def draw(source: Worker, index: int) -> str:
        dataset = {"name": "doubles", "options": {"fault": "hash"}, "seed": 1, "size": 9}
        answer = source.submit({"do": "draw", "dataset": dataset, "index": index}, 5).result()
        return str(answer["question"])

    monkeypatch.setenv("PYTHONHASHSEED", "4711")
    monkeypatch.setenv("PYTHONPATH", str(stand_in))
    other = Worker()
    assert [draw(other, index) for index in range(9)] == [draw(worker, index) for index in range(9)]
    other.close()


def test_an_entry_that_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="'doubles' could not make problem 3: ValueError: no such entry; change"):
        make(options={"fault": "draw"})


def test_an_unknown_generator() -> None:
    assert refusal(name="dubbles") == (
        "task.name = 'dubbles' is no generator of the installed reasoning-gym; "
        "did you mean 'doubles'? It knows doubles, doubts"
    )
    assert refusal(name="zzz").endswith("reasoning-gym; It knows doubles, doubts")


def test_an_unknown_option() -> None:
    assert refusal(options={"larges": 3}) == (
        "task.options has 'larges', which the generator 'doubles' does not take; "
        "did you mean 'largest'? It knows largest, fault"
    )


def test_an_option_that_the_generator_refuses() -> None:
    message = refusal(options={"largest": 0})
    assert "'doubles' cannot be made with the options {'largest': 0}: AssertionError: largest must be" in message
    assert message.endswith("; correct task.options")


def test_options_that_the_task_sets_itself() -> None:
    assert "task.options has 'seed', which the task sets itself; use task.data_seed" in refusal(options={"seed": 1})
    assert "task.options has 'size', which the task sets itself; use task.size" in refusal(options={"size": 1})


def test_the_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "find_spec", lambda name: None)
    message = refusal()
    assert "needs the package reasoning-gym, which is not installed" in message
    assert 'pip install "dapo-rl[reasoning-gym]"' in message


def test_a_package_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reasoning_gym.py").write_text("raise RuntimeError('built for another Python')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = Worker()
    monkeypatch.setattr(reasoning_gym, "shared_worker", lambda: worker)
    assert "RuntimeError: built for another Python" in refusal()
    worker.close()


@pytest.mark.parametrize(
    "settings", [{"size": 0}, {"held_out": -1}, {"score_seconds": 0}, {"extract": "first"}, {"nam": "a"}]
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReasoningGymConfig(**{"name": "doubles"} | settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>60</answer>", "60"),
        ("<answer>1</answer><answer> 2 </answer>", "2"),
        ("<answer>1</answer> then <answer>2", None),
        ("60", None),
        ("<answer></answer>", ""),
    ],
)
def test_answer_tag(text: str, expected: str | None) -> None:
    assert reasoning_gym.answer_tag(text) == expected


def test_last_line() -> None:
    assert reasoning_gym.last_line("a\n b \n\n") == "b"
    assert reasoning_gym.last_line(" ") == ""
