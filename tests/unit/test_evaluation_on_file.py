"""Evaluations on a file, with scripted replies: what is asked, kept, gone on with, graded again and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.data.config import SourceConfig
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError, RequestError
from dapo.inference import (
    EvaluationPlan,
    EvaluationRequest,
    Measured,
    compare_evaluations,
    newest_evaluation,
    plan_evaluation,
    regrade,
    run_evaluation,
)
from dapo.storage.manifest import write_manifest
from dapo.types import Prompt, Sampling
from dapo.verifiers import VerifierConfig
from tests.fakes import render
from tests.shared_data import shared_file

Script = Callable[[Prompt, int], str]


class FakeRenderer:
    prompt = staticmethod(render)


class FakePolicy:
    def __init__(self, script: Script) -> None:
        self.renderer = FakeRenderer()
        self.engine = FakeEngine(script)


class Opener:
    """Stands for opening a model; remembers the policies that were opened."""

    def __init__(self) -> None:
        self.script: Script = lambda prompt, index: rf"\boxed{{{prompt.problem.answer}}}"
        self.opened: list[FakePolicy] = []

    def __call__(self, model: str) -> FakePolicy:
        self.opened.append(FakePolicy(self.script))
        return self.opened[-1]

    @property
    def asked(self) -> list[str]:
        """Ids of the problems that the newest policy was asked."""
        return [prompt.problem.id for prompt, _, _, _ in self.opened[-1].engine.calls]


@pytest.fixture
def opener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opener:
    """A working directory with two models and a file of twelve problems."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(name).mkdir()
        (Path(name) / "config.json").write_text(json.dumps({"name": name}))
    write_rows("rows.jsonl", rows(12))
    opener = Opener()
    monkeypatch.setattr("dapo.inference.on_file.open_policy", opener)
    return opener


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"q{number}", "problem": f"What is {number} + 100?", "answer": number + 100} for number in range(count)
    ]


def write_rows(name: str, content: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in content))


def plan(out: str | None = None, **changes: Any) -> EvaluationPlan:
    request: dict[str, Any] = {
        "model": "one",
        "data": SourceConfig(path="rows.jsonl"),
        "sampling": Sampling(max_tokens=40),
    }
    return plan_evaluation(EvaluationRequest(**request | changes), Path(out) if out else None)


def run(out: str | None = None, **changes: Any) -> Measured:
    return run_evaluation(plan(out, **changes))


def test_replies_are_kept_and_give_the_numbers_and_the_table(opener: Opener) -> None:
    opener.script = lambda prompt, index: rf"\boxed{{{prompt.problem.answer if index else 5}}}"
    found = run(samples=4)
    assert (found.summary["avg"], found.summary["problems"], found.summary["samples"]) == (0.75, 12, 4)
    assert (found.summary["maj"], found.summary["copies"], found.summary["verifier"]) == (1.0, 1, "math")
    assert found.table[3] == {"id": "q3", "right": 3, "of": 4, "majority": ["103"], "gold": "103"}
    assert found.folder.parent == Path("evaluations") and found.folder.name.startswith("one-rows-")
    lines = [json.loads(line) for line in (found.folder / "replies.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [f"q{number}" for number in range(12)]
    assert [reply["correct"] for reply in lines[0]["replies"]] == [False, True, True, True]
    assert lines[0]["prompt"] == "What is 0 + 100?"
    assert json.loads((found.folder / "summary.json").read_text()) == found.summary


def test_the_same_request_again_opens_no_model(opener: Opener) -> None:
    first, second = run(), run()
    assert len(opener.opened) == 1
    assert (first.folder, first.summary, first.table) == (second.folder, second.summary, second.table)


def test_an_interrupted_evaluation_goes_on_with_what_is_missing(opener: Opener) -> None:
    whole = run("whole", samples=2)

    def breaks(prompt: Prompt, index: int) -> str:
        if prompt.problem.id == "q5":
            raise EngineError("out of memory")
        return rf"\boxed{{{prompt.problem.answer}}}"

    opener.script = breaks
    with pytest.raises(EngineError):
        run("mine", samples=2)
    replies = Path("mine/replies.jsonl")
    kept = replies.read_bytes()
    assert 0 < kept.count(b"\n") < 12 and not Path("mine/summary.json").exists()
    replies.write_bytes(kept + b'{"number": 5, "id": "q5", "replies": [{"te')  # as a crash would leave it
    before = {json.loads(line)["id"] for line in kept.splitlines()}
    opener.script = lambda prompt, index: rf"\boxed{{{prompt.problem.answer}}}"
    seen: list[tuple[int, int]] = []
    found = run_evaluation(plan("mine", samples=2), lambda done, of: seen.append((done, of)))
    assert set(opener.asked) == {f"q{number}" for number in range(12)} - before
    assert seen == [(done, 12) for done in range(len(before) + 1, 13)]
    assert (found.summary, found.table) == (whole.summary, whole.table)


def test_a_problem_s_replies_do_not_depend_on_where_the_evaluation_was_stopped(opener: Opener) -> None:
    run("whole")
    seeds = {prompt.problem.id: seed for prompt, _, _, seed in opener.opened[-1].engine.calls}
    run("part", problems=6)
    assert {prompt.problem.id: seed for prompt, _, _, seed in opener.opened[-1].engine.calls}.items() <= seeds.items()


def test_other_settings_in_the_same_folder_are_refused(opener: Opener) -> None:
    run("mine")
    with pytest.raises(RequestError, match=r"samples: 1 there, 3 now"):
        run("mine", samples=3)
    with pytest.raises(RequestError, match=r"model\.path: 'one' there, 'two' now"):
        run("mine", model="two")
    with pytest.raises(RequestError, match="--regrade"):
        run("mine", verifier=VerifierConfig(name="dapo"))
    Path("one/config.json").write_text('{"name": "trained on"}')
    with pytest.raises(RequestError, match=r"model\.mark"):
        run("mine")
    assert len(opener.opened) == 1


def test_a_file_that_holds_every_problem_four_times_gives_avg_at_4(opener: Opener) -> None:
    write_rows("copies.jsonl", [row for _ in range(4) for row in rows(10)])
    found = run(data=SourceConfig(path="copies.jsonl"))
    assert (found.summary["problems"], found.summary["samples"], found.summary["copies"]) == (10, 4, 4)
    asked = run(data=SourceConfig(path="copies.jsonl"), samples=1)
    assert (asked.summary["problems"], asked.summary["samples"], asked.summary["copies"]) == (10, 1, 4)
    write_rows("uneven.jsonl", rows(10) + rows(3))
    assert run(data=SourceConfig(path="uneven.jsonl")).summary["samples"] == 1


def test_the_authors_aime_file_gives_avg_at_32(opener: Opener) -> None:
    found = plan(data=SourceConfig(path=str(shared_file("data/aime24_dapo_960.jsonl"))))
    assert (len(found.problems), found.samples, found.copies) == (30, 32, 32)
    assert list(found.key_differences) == []


def test_wrong_keys_of_known_problems_are_named_by_row(opener: Opener) -> None:
    found = run(data=SourceConfig(path=str(shared_file("data/orz_aime24_one_wrong_key.json"))))
    assert len(found.key_differences) == 1
    (difference,) = found.key_differences
    assert (difference.row, difference.answer, difference.keys) == (22, "480", ("197",))
    assert difference.problem == "AIME 2024 I 8"


def test_the_template_and_the_limit_reach_the_engine(opener: Opener) -> None:
    run(data=SourceConfig(path="rows.jsonl", template="Q: {problem}"), problems=2, sampling=Sampling(max_tokens=7))
    calls = opener.opened[-1].engine.calls
    assert [(prompt.text, n, sampling.max_tokens) for prompt, n, sampling, _ in calls] == [
        ("Q: What is 0 + 100?", 1, 7),
        ("Q: What is 1 + 100?", 1, 7),
    ]


def test_saved_replies_are_graded_again_without_a_model(opener: Opener) -> None:
    """A boxed answer alone is right for `math` and no answer for the authors' rule."""
    endings = [r"\boxed{%s}", "Answer: %s", "so: %s, I think"]
    opener.script = lambda prompt, index: endings[index] % prompt.problem.answer
    first = run("mine", samples=3)
    marks = Path("mine/replies.jsonl").read_bytes()
    again = regrade(Path("mine"), "dapo")
    assert len(opener.opened) == 1
    assert again.summary["verifier"] == "dapo" and again.summary["avg"] == pytest.approx(1 / 3)
    assert first.summary["avg"] > again.summary["avg"]
    assert json.loads(Path("mine/summary-dapo.json").read_text()) == again.summary
    line = json.loads(Path("mine/replies-dapo.jsonl").read_text().splitlines()[0])
    assert [reply["correct"] for reply in line["replies"]] == [False, True, False]
    assert [reply["text"] for reply in line["replies"]] == [r"\boxed{100}", "Answer: 100", "so: 100, I think"]
    assert Path("mine/replies.jsonl").read_bytes() == marks
    assert regrade(Path("mine"), "math").summary == first.summary


def test_a_truncated_reply_stays_truncated_when_it_is_graded_again(opener: Opener) -> None:
    opener.script = lambda prompt, index: "x" * 100
    run("mine")
    assert regrade(Path("mine"), "dapo").summary["truncated"] == 1.0


def test_two_evaluations_are_compared_by_their_problems(opener: Opener) -> None:
    run("a")
    opener.script = lambda prompt, index: rf"\boxed{{{prompt.problem.answer if prompt.problem.id < 'q5' else 1}}}"
    run("b", model="two", samples=2)
    found = compare_evaluations(Path("a"), Path("b"))
    worse = [f"q{number}" for number in range(5, 10)]  # as text, q10 and q11 come before q5
    assert (found.before, found.after) == (1.0, pytest.approx(7 / 12))
    assert [change.id for change in found.changed] == worse
    assert found.is_more_than_noise is True


def test_comparisons_that_would_mislead_are_refused(opener: Opener) -> None:
    run("a")
    run("six", problems=6)
    with pytest.raises(RequestError, match=r"q6: only in a\n(.*\n)*  and 1 more"):
        compare_evaluations(Path("a"), Path("six"))
    write_rows("rows.jsonl", [*rows(11), {"id": "q11", "problem": "What is 11 + 100?", "answer": 5}])
    run("gold")
    with pytest.raises(RequestError, match="q11: another question or gold"):
        compare_evaluations(Path("a"), Path("gold"))
    write_rows("rows.jsonl", rows(12))
    run("rule", verifier=VerifierConfig(name="dapo"))
    with pytest.raises(RequestError, match="the verifier math and rule by the verifier dapo"):
        compare_evaluations(Path("a"), Path("rule"))
    with pytest.raises(RequestError, match="--regrade a --verifier dapo"):
        compare_evaluations(Path("a"), Path("rule"), "dapo")
    regrade(Path("a"), "dapo")
    assert compare_evaluations(Path("a"), Path("rule"), "dapo").difference.mean == 0


def test_an_evaluation_that_is_not_complete_is_not_graded_again_or_compared(opener: Opener) -> None:
    run("a")
    lines = Path("a/replies.jsonl").read_text().splitlines(keepends=True)
    Path("a/replies.jsonl").write_text("".join(lines[:7]))
    for use in (lambda: regrade(Path("a"), "dapo"), lambda: compare_evaluations(Path("a"), Path("a"))):
        with pytest.raises(RequestError, match="7 of 12 problems"):
            use()


def test_a_run_means_its_newest_evaluation(opener: Opener) -> None:
    assert newest_evaluation(Path("runs/x")) is None
    for step in (0, 20, 5):
        folder = Path(f"runs/x/evaluations/step-{step:06d}")
        run(str(folder))
    assert newest_evaluation(Path("runs/x")) == Path("runs/x/evaluations/step-000020")
    assert newest_evaluation(Path("runs/x/evaluations/step-000005")) == Path("runs/x/evaluations/step-000005")


def test_a_checkpoint_s_evaluation_is_named_by_run_and_step(opener: Opener) -> None:
    checkpoint = Path("runs/mine/checkpoints/step-000020")
    checkpoint.mkdir(parents=True)
    for name in ("config.json", "progress.json"):
        (checkpoint / name).write_text("{}")
    write_manifest(checkpoint, 20)
    found = plan(model="runs/mine")
    assert found.settings["model"]["path"] == str(checkpoint)
    assert found.folder.path.name.startswith("mine-step-000020-rows-")


def test_a_model_that_cannot_be_there_is_refused_before_anything_is_written(opener: Opener) -> None:
    with pytest.raises(RequestError, match="is not a folder"):
        plan(model="./gone")
    assert not Path("evaluations").exists()
