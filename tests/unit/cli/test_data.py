from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import Shell

QUESTION = "A train leaves at {} o'clock and drives for two hours. At what hour does it arrive?"


@pytest.fixture
def dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six rows: three sound ones, a copy, and two answers to one problem."""
    monkeypatch.chdir(tmp_path)
    answers = [(1, "3"), (2, "4"), (2, "4"), (3, "5"), (4, "6"), (4, "7")]
    rows = [{"problem": QUESTION.format(hour), "answer": answer} for hour, answer in answers]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return "rows.jsonl"


def test_check_says_what_is_wrong_and_changes_nothing(shell: Shell, dirty: str) -> None:
    before = Path(dirty).read_bytes()
    done = shell("data", "check", dirty)
    assert done.code == 0 and "6 rows" in done.out
    assert Path(dirty).read_bytes() == before
    assert [path.name for path in Path().iterdir()] == [dirty]
    content = json.loads(shell("data", "check", dirty, "--json").out)
    assert content["rows"] == 6


def test_clean_writes_the_sound_problems_and_a_second_time_needs_leave(shell: Shell, dirty: str) -> None:
    done = shell("data", "clean", dirty, "-o", "clean.jsonl")
    assert done.code == 0
    answers = [json.loads(line)["answer"] for line in Path("clean.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [str(answer) for answer in answers] == ["3", "4", "5"]
    again = shell("data", "clean", dirty, "-o", "clean.jsonl")
    assert again.code == 2 and "clean.jsonl" in again.err
    assert shell("data", "clean", dirty, "-o", "clean.jsonl", "--overwrite").code == 0


def test_problems_of_an_evaluation_file_are_named(shell: Shell, dirty: str) -> None:
    Path("test.jsonl").write_text(json.dumps({"problem": QUESTION.format(1), "answer": "3"}) + "\n", encoding="utf-8")
    assert "contaminated" in shell("data", "check", dirty, "--evaluation", "test.jsonl").out


def test_tokens_are_those_of_a_model_that_must_be_named(shell: Shell, dirty: str) -> None:
    done = shell("data", "check", dirty, "--max-prompt-tokens", "9")
    assert done.code == 2 and "--model" in done.err


@pytest.mark.parametrize("words", [["check", "gone.jsonl"], ["clean", "gone.jsonl", "-o", "out.jsonl"]])
def test_a_file_that_is_missing_is_told(shell: Shell, dirty: str, words: list[str]) -> None:
    done = shell("data", *words)
    assert done.code == 2 and "gone.jsonl" in done.err and "Traceback" not in done.err
    assert not Path("out.jsonl").exists()
