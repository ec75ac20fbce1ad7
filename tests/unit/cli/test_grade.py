from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.running import Shell

ROWS: list[dict[str, Any]] = [
    {"id": 1, "response": r"so \boxed{60}", "gold": "60", "expected": True},
    {"id": 2, "response": "Answer: 60", "gold": 60, "expected": True},
    {"id": 3, "response": "Answer: 61", "gold": "60", "expected": True},
    {"id": 4, "response": "", "gold": "60", "expected": False},
]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write("rows.jsonl", ROWS)


def write(name: str, content: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return name


def test_totals_and_what_was_expected(shell: Shell, rows: str) -> None:
    done = shell("grade", rows)
    assert done.code == 0
    found = dict(line.split(None, 1) for line in done.out.replace("no answer found", "none").splitlines())
    assert (found["responses"], found["right"], found["wrong"], found["none"]) == ("4", "2 (50.0%)", "2 (50.0%)", "1")
    assert "false positives    0 of 1" in done.out
    assert "false negatives    1 of 3" in done.out


def test_as_json_the_rows_come_back_in_order_with_their_grades(shell: Shell, rows: str) -> None:
    found = [json.loads(line) for line in shell("grade", rows, "--json").out.splitlines()]
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    assert [row["correct"] for row in found] == [True, True, False, False]
    assert [row["extracted"] for row in found] == ["60", "60", "61", None]
    assert all(row["why"] for row in found)


def test_the_authors_rule_wants_its_own_words(shell: Shell, rows: str) -> None:
    found = [json.loads(line) for line in shell("grade", rows, "--verifier", "dapo", "--json").out.splitlines()]
    assert [row["correct"] for row in found] == [False, True, False, False]


def test_a_truncated_response_is_right_only_if_it_had_stated_its_answer(shell: Shell, rows: str) -> None:
    cut = [
        {"response": r"\boxed{60} and further", "gold": "60", "truncated": True},
        {"response": "20 + 40 is 60 and", "gold": "60", "truncated": True},
    ]
    found = [json.loads(line) for line in shell("grade", write("cut.jsonl", cut), "--json").out.splitlines()]
    assert [row["correct"] for row in found] == [True, False]


def test_standard_input_is_read_and_blank_lines_are_passed_over(
    shell: Shell, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(rows).read_bytes().replace(b"\n", b"\n\n")

    class Input:
        buffer = io.BytesIO(text)

    monkeypatch.setattr("sys.stdin", Input())
    assert "responses          4" in shell("grade").out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 of bad.jsonl is not JSON"),
        ("[1]", "line 2 of bad.jsonl has no text `response`"),
        ('{"response": 5, "gold": "5"}', "line 2 of bad.jsonl has no text `response`"),
        ('{"response": "5"}', "line 2 of bad.jsonl has no `gold`"),
        ('{"response": "5", "gold": true}', "line 2 of bad.jsonl has no `gold`"),
        ('{"response": "5", "gold": null}', "line 2 of bad.jsonl has no `gold`"),
    ],
)
def test_a_row_that_cannot_be_graded_is_named(shell: Shell, rows: str, line: str, words: str) -> None:
    Path("bad.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + line + "\n", encoding="utf-8")
    done = shell("grade", "bad.jsonl")
    assert (done.code, done.out) == (2, "") and words in done.err and "Traceback" not in done.err


def test_a_file_that_is_missing_is_told(shell: Shell, rows: str) -> None:
    done = shell("grade", "gone.jsonl")
    assert done.code == 2 and "gone.jsonl is not a file" in done.err
