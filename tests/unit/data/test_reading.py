"""Files of every kind give the same rows, and integers keep their digits."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapo.data.config import SourceConfig
from dapo.data.opening import open_rows, scan_records
from dapo.data.problems import open_problems
from dapo.data.records import Origin, Record, Unreadable, read_answer, read_messages
from dapo.data.rows import FloatText, IntegerText, open_file, open_path, plain
from dapo.errors import DataError
from dapo.types import Message
from tests.unit.data.helpers import QUESTION, plain_set, write_lines

BIG = 19999999999999999999999
SEPARATE = 105263157894736842  # a float makes ...848 of it


def records_of(path: Path | str, **settings: Any) -> list[Record]:
    records = list(scan_records(SourceConfig(path=str(path), **settings)))
    assert all(isinstance(record, Record) for record in records)
    return [record for record in records if isinstance(record, Record)]


def test_integers_of_json_keep_all_digits(tmp_path: Path) -> None:
    path = plain_set(tmp_path / "a.jsonl", [("one?", SEPARATE), ("two?", BIG), ("three?", "033")])
    answers = [record.answer for record in records_of(path)]
    assert [answer.text for answer in answers] == ["105263157894736842", "19999999999999999999999", "033"]
    assert [answer.origin for answer in answers] == [Origin.INTEGER, Origin.INTEGER, Origin.TEXT]


def test_an_integer_longer_than_python_prints_keeps_its_digits(tmp_path: Path) -> None:
    digits = "7" * 6000
    path = write_lines(tmp_path / "a.jsonl", [f'{{"prompt": "huge?", "answer": {digits}}}'])
    assert open_problems(SourceConfig(path=str(path)))[0].answer == digits


def test_floats_of_json_keep_their_text_and_are_marked(tmp_path: Path) -> None:
    lines = ['{"prompt": "a", "answer": 1.05263157894736842e17}', '{"prompt": "b", "answer": NaN}']
    answers = [record.answer for record in records_of(write_lines(tmp_path / "a.jsonl", lines))]
    assert [answer.text for answer in answers] == ["1.05263157894736842e17", "NaN"]
    assert {answer.origin for answer in answers} == {Origin.FLOAT}


@pytest.mark.parametrize(
    ("column", "texts", "origin"),
    [
        (pa.array([SEPARATE, -1]), ["105263157894736842", "-1"], Origin.INTEGER),
        (pa.array([2**64 - 1, 0], pa.uint64()), ["18446744073709551615", "0"], Origin.INTEGER),
        (pa.array([7, None], pa.int8()), ["7", ""], Origin.INTEGER),
        (pa.array([Decimal(BIG), Decimal(4)], pa.decimal128(38, 0)), [str(BIG), "4"], Origin.INTEGER),
        (pa.array([Decimal("5.00"), Decimal("6.00")], pa.decimal128(10, 2)), ["5", "6"], Origin.INTEGER),
        (pa.array([Decimal("5.25"), Decimal("6.50")], pa.decimal128(10, 2)), ["5.25", "6.50"], Origin.TEXT),
        (pa.array([str(BIG), "033"]), [str(BIG), "033"], Origin.TEXT),
        (pa.array([2e22, 5.0]), ["2e+22", "5.0"], Origin.FLOAT),
    ],
)
def test_answers_of_parquet_keep_all_digits_whatever_the_column(
    tmp_path: Path, column: pa.Array, texts: list[str], origin: Origin
) -> None:
    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": column}), tmp_path / "a.parquet")
    answers = [record.answer for record in records_of(tmp_path / "a.parquet")]
    assert [answer.text for answer in answers] == texts
    assert answers[0].origin is origin


@pytest.mark.parametrize(
    ("value", "text", "origin"),
    [
        (None, "", Origin.MISSING),
        ("  ", "", Origin.MISSING),
        (True, "True", Origin.OTHER),
        (["34"], "['34']", Origin.OTHER),
        (IntegerText("007"), "007", Origin.INTEGER),
        (FloatText("7.0"), "7.0", Origin.FLOAT),
        (math.inf, "inf", Origin.FLOAT),
        (Decimal("NaN"), "NaN", Origin.TEXT),
    ],
)
def test_an_answer_says_how_the_file_holds_it(value: Any, text: str, origin: Origin) -> None:
    answer = read_answer(value)
    assert (answer.text, answer.origin) == (text, origin)


def test_numbers_of_other_columns_are_pythons() -> None:
    assert plain({"a": [IntegerText("3"), FloatText("0.5")], "b": "3"}) == {"a": [3, 0.5], "b": "3"}


def test_messages_are_read_in_both_spellings() -> None:
    asked = (Message(role="system", content="Be short."), Message(role="user", content="6 * 7?"))
    assert read_messages([{"role": "system", "content": "Be short."}, {"role": "user", "content": "6 * 7?"}]) == asked
    assert read_messages([{"from": "system", "value": "Be short."}, {"from": "human", "value": "6 * 7?"}]) == asked
    assert read_messages("6 * 7?") == asked[1:]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no prompt"),
        (IntegerText("7"), "neither text nor a list"),
        ([], "nothing to reply to"),
        ([{"role": "assistant", "content": "42"}], "nothing to reply to"),
        ([{"role": "user", "content": None}], "no known role with a text"),
        ([{"role": "wizard", "content": "x"}], "no known role with a text"),
        (["x"], "not an object"),
    ],
)
def test_a_prompt_that_cannot_be_read_says_why(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_messages(value)


def test_broken_lines_are_rows_with_a_reason(tmp_path: Path) -> None:
    good = json.dumps({"prompt": "6 * 7?", "answer": 42})
    path = write_lines(tmp_path / "a.jsonl", ["\ufeff" + good, "", '{"prompt": ', "[1]", good])
    found = list(scan_records(SourceConfig(path=str(path))))
    assert [type(record) for record in found] == [Record, Unreadable, Unreadable, Record]
    assert [record.row for record in found] == [0, 1, 2, 3]
    assert [record.reason for record in found if isinstance(record, Unreadable)] == [
        "it is not JSON: Expecting value at character 13",
        "it is not a JSON object",
    ]


def test_a_json_array_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"prompt": [{"from": "user", "value": "6 * 7?"}], "final_answer": "42"}]))
    problems = open_problems(SourceConfig(path=str(path)))
    assert problems.loaded.layout == "conversations"
    assert (problems[0].messages[0].content, problems[0].answer) == ("6 * 7?", "42")


def test_a_json_file_may_hold_lines(tmp_path: Path) -> None:
    path = plain_set(tmp_path / "a.json", [("6 * 7?", 42), ("6 * 8?", 48)])
    assert [record.answer.text for record in records_of(path)] == ["42", "48"]


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    plain_set(tmp_path / "b.jsonl", [("third?", 3)])
    plain_set(tmp_path / "a.jsonl", [("first?", 1), ("second?", 2)])
    (tmp_path / "README.md").write_text("not data")
    problems = open_problems(SourceConfig(path=str(tmp_path)))
    assert [(problem.id, problem.answer) for problem in problems] == [("a-0", "1"), ("a-1", "2"), ("b-2", "3")]


def test_a_row_group_is_never_held_whole_and_rows_are_found_again(tmp_path: Path) -> None:
    rows = 3000
    table = pa.table({"prompt": [f"What is {n} + 1?" for n in range(rows)], "answer": list(range(1, rows + 1))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows)
    store = open_file(tmp_path / "a.parquet").store(np.array([0, 511, 512, 1999, 2999], dtype=np.int64))
    assert [row["answer"] for row in store] == [1, 512, 513, 2000, 3000]
    assert [row["answer"] for row in store[-2:]] == [2000, 3000]
    with pytest.raises(IndexError):
        store[5]


def test_the_copy_of_the_wanted_rows_has_no_name_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    pq.write_table(pa.table({"prompt": ["a?"], "answer": [1]}), tmp_path / "a.parquet")
    problems = open_problems(SourceConfig(path=str(tmp_path / "a.parquet")))
    assert list((tmp_path / "tmp").iterdir()) == []
    assert problems[0].answer == "1"


def test_a_file_that_changes_under_the_reader_is_an_error(tmp_path: Path) -> None:
    path = plain_set(tmp_path / "a.jsonl", [("a?", 1), ("b?", 2)])
    problems = open_problems(SourceConfig(path=str(path)))
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(DataError, match="has changed since it was opened"):
        problems[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"prompt,answer\n", "ends in .csv"),
        ("a.jsonl", b"\n\n", "no row that can be read"),
        ("a.json", b"[1", "cannot be read"),
        ("a.parquet", b"PAR1", "cannot be read as parquet"),
    ],
)
def test_a_file_that_cannot_serve_says_so(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_rows(SourceConfig(path=str(tmp_path / name)))


def test_a_parquet_file_with_damaged_pages_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt": ["What is 6 * 7? " * 50] * 100, "answer": list(range(100))}), path)
    content = bytearray(path.read_bytes())
    content[8:60] = b"\xff" * 52
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        open_rows(SourceConfig(path=str(path)))


def test_a_path_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist \(looked for /.*/none\.jsonl\)"):
        open_rows(SourceConfig(path=str(tmp_path / "none.jsonl")))
    with pytest.raises(DataError, match="folder without a file that ends in"):
        open_path(tmp_path)


def test_all_layouts_of_one_problem_agree(tmp_path: Path) -> None:
    lines = plain_set(tmp_path / "a.jsonl", [(QUESTION, 100)])
    pq.write_table(pa.table({"prompt": [QUESTION], "answer": [100]}), tmp_path / "a.parquet")
    first, second = (open_problems(SourceConfig(path=str(path)))[0] for path in (lines, tmp_path / "a.parquet"))
    assert first == second
