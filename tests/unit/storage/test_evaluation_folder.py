from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dapo.errors import DataError, RequestError
from dapo.storage.evaluation_folder import (
    EvaluationFolder,
    evaluation_settings,
    problem_mark,
    reply_line,
    settings_digest,
)
from dapo.storage.run_folder import RunFolder
from dapo.types import Finish, Message, Problem, RolloutGroup, Sampling, Score
from tests.fakes import problem, problems, render, rollout


def settings(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model": "some/model",
        "data": {"path": "rows.jsonl", "template": "keep"},
        "problems": problems(3),
        "samples": 2,
        "sampling": Sampling(max_tokens=8),
        "seed": 0,
        "verifier": "math",
    }
    return evaluation_settings(**given | changes)


def line(number: int, name: str = "p0") -> dict[str, Any]:
    group = RolloutGroup(prompt=render(problem(name)), rollouts=(rollout("yes"), rollout("no", finish=Finish.LENGTH)))
    scores = (Score(correct=True, reward=1.0, extracted="yes"), Score(correct=False, reward=-1.0, error="too slow"))
    return reply_line(number, group, scores)


def test_a_line_holds_the_problem_and_every_reply_with_its_marks() -> None:
    assert line(4) == {
        "number": 4,
        "id": "p0",
        "mark": problem_mark(problem("p0")),
        "prompt": "?",
        "gold": "yes",
        "replies": [
            {"text": "yes", "finish": "stop", "length": 3, "correct": True, "extracted": "yes"},
            {"text": "no", "finish": "length", "length": 2, "correct": False, "extracted": None, "error": "too slow"},
        ],
    }


def test_settings_name_problems_by_marks_and_not_by_texts(tmp_path: Path) -> None:
    secret = Problem(id="p", messages=(Message(role="user", content="a text of its maker"),), answer="77777")
    folder = EvaluationFolder(tmp_path / "new")
    folder.start(settings(problems=[secret]))
    text = folder.settings_file.read_text()
    assert "a text of its maker" not in text and "77777" not in text
    content = json.loads(text)
    assert content["data"]["problems"] == 1
    assert content["digest"] == settings_digest(settings(problems=[secret]))
    assert {"python", "torch"} <= content["versions"].keys()


def test_a_mark_changes_with_the_question_and_with_the_answer_alone() -> None:
    asked = problem("p0")
    assert problem_mark(asked) == problem_mark(problem("another name"))
    assert problem_mark(problem("p0", "??")) != problem_mark(asked)
    other = Problem(id="p0", messages=asked.messages, answer="no")
    assert problem_mark(other) != problem_mark(asked)


def test_the_same_settings_go_on_and_others_are_refused_with_the_difference(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path / "mine")
    assert not folder.exists
    folder.start(settings())
    folder.add(line(0))
    folder.start(settings())
    assert folder.lines() == [line(0)]
    with pytest.raises(RequestError) as refused:
        folder.start(settings(sampling=Sampling(max_tokens=8, temperature=0.5), verifier="dapo"))
    assert "- sampling.temperature: 1.0 there, 0.5 now" in str(refused.value)
    assert "- scorer.verifier: 'math' there, 'dapo' now" in str(refused.value)
    assert "samples" not in str(refused.value).split("Its replies")[0]
    with pytest.raises(RequestError, match=r"data\.mark"):
        folder.start(settings(problems=[*problems(2), problem("p2", "another question")]))


def test_lines_are_in_the_order_of_the_problems_and_a_half_written_one_is_left_out(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path)
    folder.start(settings())
    for number in (2, 0):
        folder.add(line(number, f"p{number}"))
    whole = folder.replies().read_bytes()
    folder.replies().write_bytes(whole + json.dumps(line(1, "p1")).encode()[:50])
    assert [found["id"] for found in folder.lines()] == ["p0", "p2"]
    folder.add(line(1, "p1"))
    assert folder.replies().read_bytes().startswith(whole)
    assert [found["id"] for found in folder.lines()] == ["p0", "p1", "p2"]


def test_what_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no evaluation"):
        EvaluationFolder(tmp_path / "none").settings()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="something else"):
        EvaluationFolder(tmp_path).start(settings())
    for content in ("{", "[1]"):
        (tmp_path / "settings.json").write_text(content)
        with pytest.raises(RequestError, match=r"settings\.json"):
            EvaluationFolder(tmp_path).settings()


def test_a_line_that_holds_no_replies_is_named(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path)
    folder.start(settings())
    folder.add(line(0))
    folder.add({"number": 1})
    with pytest.raises(DataError, match="line 2"):
        folder.lines()


def test_marks_of_another_verifier_lie_beside_the_first(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path)
    folder.start(settings())
    folder.write([line(0)], {"avg": 0.5})
    folder.write([line(0), line(1)], {"avg": 0.25}, verifier="dapo")
    assert (len(folder.lines()), len(folder.lines("dapo"))) == (1, 2)
    assert json.loads(folder.summary().read_text()) == {"avg": 0.5}
    assert json.loads(folder.summary("dapo").read_text()) == {"avg": 0.25}


def test_an_evaluation_may_take_the_place_of_another_and_of_nothing_else(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path / "step")
    folder.replace(settings(), [line(0)], {"avg": 0.5})
    folder.write([line(0)], {"avg": 1.0}, verifier="dapo")
    folder.replace(settings(samples=3), [line(1)], {"avg": 0.75})
    assert folder.settings()["samples"] == 3 and folder.lines() == [line(1)]
    assert not folder.replies("dapo").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="something else"):
        EvaluationFolder(tmp_path / "other").replace(settings(), [], {})


def test_a_run_that_goes_back_forgets_the_evaluations_of_later_steps(tmp_path: Path) -> None:
    for step in (0, 5, 10):
        EvaluationFolder(tmp_path / "evaluations" / f"step-{step:06d}").replace(settings(), [line(0)], {"avg": 0.5})
    RunFolder(tmp_path).forget_after(5)
    assert sorted(path.name for path in (tmp_path / "evaluations").iterdir()) == ["step-000000", "step-000005"]
