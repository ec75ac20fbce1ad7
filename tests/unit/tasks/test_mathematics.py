from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dapo.algorithms.config import DAPOConfig
from dapo.collect import CollectPlan, collect
from dapo.data.config import SourceConfig
from dapo.engines.fake import FakeEngine
from dapo.errors import DataError
from dapo.prompts import PromptStream
from dapo.tasks.config import MathConfig
from dapo.tasks.mathematics import Mathematics, build
from dapo.types import Finish, Message, Problem, Sampling
from dapo.verifiers import VerifierConfig, VerifierPool
from tests.fakes import render
from tests.unit.tasks.replies import score

PROBLEM = Problem(id="m0", messages=(Message(role="user", content="What is 500 + 40?"),), answer="540")


@pytest.fixture
def task() -> Iterator[Mathematics]:
    with VerifierPool("math") as pool:
        yield Mathematics(train=[PROBLEM], held_out=(), pool=pool)


@pytest.fixture
def watched() -> Iterator[Mathematics]:
    """Graded by `math`, and watched by the authors' rule, which wants `Answer:`."""
    with VerifierPool("math", watch="dapo") as pool:
        yield Mathematics(train=[PROBLEM], held_out=(), pool=pool)


def test_a_right_answer_gives_1_and_any_other_minus_1(task: Mathematics) -> None:
    right = score(task, PROBLEM, r"so it is \boxed{540}")
    assert (right.correct, right.reward, right.extracted, right.error, right.disagrees) == (
        True,
        1.0,
        "540",
        None,
        None,
    )
    wrong = score(task, PROBLEM, r"so it is \boxed{541}")
    assert (wrong.correct, wrong.reward, wrong.extracted) == (False, -1.0, "541")
    none = score(task, PROBLEM, "")
    assert (none.correct, none.reward, none.extracted) == (False, -1.0, None)


def test_a_symbolic_answer_goes_through_a_worker_of_the_pool(task: Mathematics) -> None:
    half = Problem(id="m1", messages=PROBLEM.messages, answer=r"\frac{\sqrt{2}}{2}")
    assert score(task, half, r"\boxed{\frac{1}{\sqrt{2}}}").correct
    assert not score(task, half, r"\boxed{\frac{2}{\sqrt{2}}}").correct
    assert task.pool.counts.symbolic >= 1


def test_a_truncated_reply_is_right_only_if_it_had_stated_its_answer(task: Mathematics) -> None:
    assert not score(task, PROBLEM, "500 + 40 is 540 and then", Finish.LENGTH).correct
    assert score(task, PROBLEM, r"\boxed{540} which we may check by", Finish.LENGTH).correct


def test_a_reply_that_the_engine_did_not_finish_is_an_error_and_is_not_read(task: Mathematics) -> None:
    found = score(task, PROBLEM, r"\boxed{540}", Finish.ERROR)
    assert (found.correct, found.reward) == (False, -1.0)
    assert found.error is not None and "engine" in found.error
    assert task.pool.counts.graded == 0


def test_a_watching_verifier_decides_nothing_and_says_where_it_disagrees(watched: Mathematics) -> None:
    boxed = score(watched, PROBLEM, r"\boxed{540}")
    assert (boxed.correct, boxed.reward, boxed.disagrees) == (True, 1.0, True)
    assert score(watched, PROBLEM, "Answer: 540").disagrees is False
    assert score(watched, PROBLEM, "I do not know").disagrees is False


def test_disagreement_is_a_metric_of_the_step_and_without_a_watcher_it_is_none(
    task: Mathematics, watched: Mathematics
) -> None:
    replies = [r"\boxed{540}", "Answer: 540", "Answer: 1", "no"]  # the first alone is judged otherwise

    def stats(one: Mathematics) -> dict[str, float]:
        stream = PromptStream(one.train_problems(), render, seed=0, max_prompt_tokens=None, epochs=None)
        plan = CollectPlan(
            groups=1, group_size=4, sampling=Sampling(max_tokens=99), seed=0, max_rounds=1, oversample=1.0
        )
        engine = FakeEngine(lambda prompt, index: replies[index])
        algorithm = DAPOConfig().build(99)
        found = asyncio.run(collect(1, plan, stream, engine, one, algorithm))
        return {name: stat.value for name, stat in found.stats.items()}

    found = stats(watched)
    assert (found["reward/disagreement"], found["reward/accuracy_all"]) == (0.25, 0.5)
    assert "reward/disagreement" not in stats(task)


def write(path: Path, *rows: tuple[str, object]) -> SourceConfig:
    text = "".join(json.dumps({"problem": problem, "answer": answer}) + "\n" for problem, answer in rows)
    path.write_text(text, encoding="utf-8")
    return SourceConfig(path=str(path))


def test_problems_come_from_the_files_with_the_system_message_before_them(tmp_path: Path) -> None:
    config = MathConfig(
        data=write(tmp_path / "a.jsonl", ("What is 1 + 1?", 2), ("What is 1 + 2?", 3)),
        held_out=write(tmp_path / "b.jsonl", ("What is 2 + 2?", "4")),
        system="Be brief.",
        verifier=VerifierConfig(watch="dapo"),
    )
    task = build(config)
    assert [problem.answer for problem in task.train_problems()] == ["2", "3"]
    (held_out,) = task.held_out_problems()
    assert [(message.role, message.content) for message in held_out.messages] == [
        ("system", "Be brief."),
        ("user", "What is 2 + 2?"),
    ]
    assert [problem.answer for problem in task.train_problems()[1:]] == ["3"]
    assert (task.pool.verifier, task.pool.watch) == ("math", "dapo")


def test_without_a_held_out_file_nothing_is_held_out(tmp_path: Path) -> None:
    task = build(MathConfig(data=write(tmp_path / "a.jsonl", ("What is 1 + 1?", 2))))
    assert len(task.held_out_problems()) == 0


def test_a_file_that_is_missing_is_refused_without_opening_anything(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl is not there"):
        MathConfig(data=SourceConfig(path=str(tmp_path / "gone.jsonl"))).check()
