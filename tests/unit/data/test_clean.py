from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapo.data.check import run_check
from dapo.data.clean import run_clean
from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.findings import Kind
from dapo.data.problems import open_problems
from dapo.data.templates import TEMPLATES
from dapo.errors import ConfigError, DataError
from tests.unit.data.helpers import QUESTION, dapo_row, plain_set, write_lines

OTHER = "A cook slices 30 onions into 6 rings each and drops 11 of the rings. How many rings are left for the soup?"
DAMAGED = "Two dice are thrown. How likely is a sum of 7?The answer is in the form \x0crac{m}{n}. Please provide m + n."
MENDED = "Two dice are thrown. How likely is a sum of 7? The answer is in the form \\frac{m}{n}. Please provide m + n."


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_set_is_mended_and_every_touched_row_has_its_reason(tmp_path: Path) -> None:
    rows = [
        {"prompt": QUESTION, "answer": "100", "tag": "kept"},
        {"prompt": DAMAGED, "answer": "7", "tag": "mended"},
        {"prompt": QUESTION, "answer": "100", "tag": "copy"},
        {"prompt": OTHER, "answer": "", "tag": "no answer"},
    ]
    out = tmp_path / "out.jsonl"
    summary = run_clean(write_lines(tmp_path / "set.jsonl", rows), out)
    assert lines_of(out) == [rows[0], {**rows[1], "prompt": MENDED}]
    report = lines_of(tmp_path / "out.jsonl.report.jsonl")
    assert [(line["row"], line["fate"], [reason["kind"] for reason in line["reasons"]]) for line in report] == [
        (0, "kept", ["has_duplicates"]),
        (1, "mended", ["control_character", "glued_sentence"]),
        (2, "dropped", ["exact_duplicate"]),
        (3, "dropped", ["missing_answer"]),
    ]
    assert report[1]["changes"] == [{"field": "prompt", "before": DAMAGED, "after": MENDED}]
    assert report[1]["reasons"][0]["detail"] == "a form feed before 'rac' is \\frac (1 times)"
    assert (summary.rows, summary.kept, summary.dropped, summary.mended) == (4, 2, 2, 1)
    assert summary.dropped_by == {"missing_answer": 1, "exact_duplicate": 1}
    assert summary.mended_by == {"control_character": 1, "glued_sentence": 1}
    assert json.loads((tmp_path / "out.jsonl.summary.json").read_text()) == json.loads(summary.to_json())
    assert "4 rows, 2 written to" in summary.to_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.jsonl",
        "out.jsonl.report.jsonl",
        "out.jsonl.summary.json",
        "set.jsonl",
    ]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_clean_set_has_nothing_left_to_clean(tmp_path: Path, ending: str) -> None:
    pairs = [
        (QUESTION, "100"),
        (QUESTION, "100"),
        (DAMAGED, "1,007"),
        (OTHER, "169.0"),
        (OTHER.replace(" ", "  "), "169"),
    ]
    first, second = tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"
    run_clean(plain_set(tmp_path / "set.jsonl", pairs), first)
    summary = run_clean(first, second)
    assert (summary.rows, summary.dropped, summary.mended) == (3, 0, 0)
    problems = open_problems(SourceConfig(path=str(second), unusable="error", conflicts="error"))
    assert [problem.answer for problem in problems] == ["100", "1007", "169"]


def test_an_unchanged_line_is_written_byte_for_byte(tmp_path: Path) -> None:
    line = '{"answer":  19999999999999999999999, "x": 1.10e3, "prompt": "' + QUESTION + '"}'
    out = tmp_path / "out.jsonl"
    run_clean(write_lines(tmp_path / "set.jsonl", [line]), out)
    assert out.read_text() == line + "\n"


def test_the_columns_and_the_wrapper_of_the_source_stay(tmp_path: Path) -> None:
    row = dapo_row(TEMPLATES["dapo"].replace("{problem}", DAMAGED), "7", "some-id")
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "set.parquet")
    run_clean(tmp_path / "set.parquet", tmp_path / "out.parquet")
    assert pq.read_schema(tmp_path / "out.parquet").equals(pq.read_schema(tmp_path / "set.parquet"))
    (written,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert written == {
        **row,
        "prompt": [{"content": TEMPLATES["dapo"].replace("{problem}", MENDED), "role": "user"}],
    }


def test_a_nested_answer_is_mended_in_its_place(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([dapo_row(QUESTION, "1,000")]), tmp_path / "set.parquet")
    run_clean(tmp_path / "set.parquet", tmp_path / "out.jsonl")
    assert lines_of(tmp_path / "out.jsonl") == [dapo_row(QUESTION, "1000")]


def test_a_float_column_becomes_text_in_parquet_and_integers_in_json(tmp_path: Path) -> None:
    table = pa.table({"prompt": [QUESTION, OTHER], "answer": pa.array([100.0, 2e22])})
    pq.write_table(table, tmp_path / "set.parquet")
    run_clean(tmp_path / "set.parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [{"prompt": QUESTION, "answer": "100"}]
    run_clean(tmp_path / "set.parquet", tmp_path / "out.jsonl")
    assert lines_of(tmp_path / "out.jsonl") == [{"prompt": QUESTION, "answer": 100}]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([105263157894736842]),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([Decimal(10**30 + 1)], pa.decimal128(38, 0)),
    ],
)
def test_integer_columns_keep_type_and_digits(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"prompt": [DAMAGED], "answer": column}), tmp_path / "set.parquet")
    run_clean(tmp_path / "set.parquet", tmp_path / "out.parquet")
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column("answer").type == column.type
    assert written.to_pylist() == [{"prompt": MENDED, "answer": column[0].as_py()}]


def test_lines_become_parquet_with_every_digit(tmp_path: Path) -> None:
    rows = [
        {"prompt": QUESTION, "answer": 19999999999999999999999, "level": 3},
        {"prompt": [{"role": "system", "content": "Be short."}, {"role": "user", "content": OTHER}], "answer": "169"},
    ]
    run_clean(write_lines(tmp_path / "set.jsonl", rows), tmp_path / "out.parquet")
    problems = open_problems(SourceConfig(path=str(tmp_path / "out.parquet")))
    assert [problem.answer for problem in problems] == ["19999999999999999999999", "169"]
    assert [len(problem.messages) for problem in problems] == [1, 2]
    assert json.loads(problems[0].info["info"]) == {"level": 3}


def test_a_gsm8k_solution_stays_around_its_mended_answer(tmp_path: Path) -> None:
    row = {"question": DAMAGED, "answer": "A long way.\n#### 1,007"}
    run_clean(write_lines(tmp_path / "set.jsonl", [row]), tmp_path / "out.jsonl")
    assert lines_of(tmp_path / "out.jsonl") == [{"question": MENDED, "answer": "A long way.\n#### 1,007"}]


def test_conflicts_leave_and_are_never_picked(tmp_path: Path) -> None:
    pairs = [(QUESTION, "100"), (OTHER, "169"), (QUESTION.replace(" ", "  "), "-1"), (QUESTION, "100")]
    summary = run_clean(plain_set(tmp_path / "set.jsonl", pairs), tmp_path / "out.jsonl")
    assert [row["answer"] for row in lines_of(tmp_path / "out.jsonl")] == ["169"]
    assert summary.dropped_by == {"exact_duplicate": 1, "conflicting_answers": 2}


def test_kinds_can_be_kept_or_dropped(tmp_path: Path) -> None:
    path = plain_set(tmp_path / "set.jsonl", [(DAMAGED, "7"), (DAMAGED, "7"), ("What is 6 * 7?", "42")])
    options = CheckConfig(keep=frozenset({Kind.EXACT_DUPLICATE}), drop=frozenset({Kind.SHORT_PROMPT}))
    summary = run_clean(path, tmp_path / "out.jsonl", options)
    assert [row["prompt"] for row in lines_of(tmp_path / "out.jsonl")] == [MENDED, MENDED]
    assert (summary.kept, summary.mended, summary.dropped) == (2, 2, 1)
    unmended = CheckConfig(keep=frozenset({Kind.CONTROL_CHARACTER, Kind.GLUED_SENTENCE}))
    run_clean(path, tmp_path / "raw.jsonl", unmended)
    assert lines_of(tmp_path / "raw.jsonl")[0] == {"prompt": DAMAGED, "answer": "7"}
    run_clean(path, tmp_path / "half.jsonl", CheckConfig(keep=frozenset({Kind.GLUED_SENTENCE})))
    assert lines_of(tmp_path / "half.jsonl")[0] == {"prompt": MENDED.replace("? The", "?The"), "answer": "7"}


def test_rows_that_only_leave_text_behind_are_valid_json(tmp_path: Path) -> None:
    line = '{"prompt": "' + DAMAGED.replace("\x0c", "\\f") + ' \\ud800", "answer": 7, "score": NaN}'
    run_clean(write_lines(tmp_path / "set.jsonl", [line]), tmp_path / "out.jsonl")
    (row,) = lines_of(tmp_path / "out.jsonl")
    assert row == {"prompt": f"{MENDED} \ud800", "answer": 7, "score": None}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("set.jsonl", "is the set that is cleaned"),
        ("there.jsonl", "exists"),
        ("out.csv", "written as .jsonl or .parquet"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path, name: str, message: str) -> None:
    source = plain_set(tmp_path / "set.jsonl", [(QUESTION, 100)])
    (tmp_path / "there.jsonl").write_text("mine\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(DataError, match=message):
        run_clean(source, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there.jsonl").read_text() == "mine\n"


def test_a_target_may_be_overwritten_where_that_is_said(tmp_path: Path) -> None:
    source = plain_set(tmp_path / "set.jsonl", [(QUESTION, 100)])
    (tmp_path / "out.jsonl").write_text("old\n")
    run_clean(source, tmp_path / "out.jsonl", overwrite=True)
    assert lines_of(tmp_path / "out.jsonl") == [{"prompt": QUESTION, "answer": 100}]


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plain_set(tmp_path / "set.jsonl", [(QUESTION, 100)])
    monkeypatch.setattr("dapo.data.writing.JsonLinesWriter.write", _fail)
    with pytest.raises(OSError, match="disk full"):
        run_clean(source, tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["set.jsonl"]


def _fail(*_: object) -> None:
    raise OSError("disk full")


def test_a_limit_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    source = plain_set(tmp_path / "set.jsonl", [(QUESTION, 100)])
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        run_clean(source, tmp_path / "out.jsonl", CheckConfig(max_prompt_tokens=5))
    run_clean(source, tmp_path / "out.jsonl", CheckConfig(max_prompt_tokens=5), count_tokens=lambda _: 5)
    assert run_check(tmp_path / "out.jsonl").rows == 1
