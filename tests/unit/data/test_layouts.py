from __future__ import annotations

from typing import Any

import pytest

from dapo.data.config import SourceConfig
from dapo.data.layouts import LAYOUTS, choose_layout
from dapo.data.records import Origin, Record, Unreadable
from dapo.errors import DataError
from tests.unit.data.helpers import dapo_row

Q = "What is 6 * 7?"


def record_of(row: dict[str, Any], **settings: Any) -> Record:
    source = SourceConfig(path="made/up", **settings)
    record = choose_layout(row, source).record(row, 0, "row-0")
    assert isinstance(record, Record)
    return record


@pytest.mark.parametrize(
    ("row", "layout", "answer", "name"),
    [
        ({"prompt": Q, "answer": "42"}, "plain", "42", "row-0"),
        ({"question": Q, "label": 42, "id": 5}, "plain", "42", "5"),
        ({"problem": Q, "answer": 42, "url": "https://x.test/2024_AIME_I_Problems/Problem_1"}, "aime", "42", "row-0"),
        ({"ID": "2024-I-1", "Problem": Q, "Solution": "...", "Answer": 42}, "plain", "42", "2024-I-1"),
        ({"id": 60, "problem": Q, "question": Q, "answer": "042", "source": "AIME"}, "aime", "042", "60"),
        (
            {"problem": Q, "answer": "42", "subject": "Algebra", "level": 1, "unique_id": "test/1.json"},
            "math500",
            "42",
            "test/1.json",
        ),
        ({"question": Q, "answer": "6 * 7 = <<6*7=42>>42\n#### 42"}, "gsm8k", "42", "row-0"),
        ({"question": Q, "answer": "a lot\n#### 1,042"}, "gsm8k", "1042", "row-0"),
        (dapo_row(Q, "42", "9a9b6eb4"), "dapo_math_17k", "42", "9a9b6eb4"),
        ({"prompt": [{"from": "user", "value": Q}], "final_answer": "42"}, "conversations", "42", "row-0"),
    ],
)
def test_a_layout_is_told_from_the_columns(row: dict[str, Any], layout: str, answer: str, name: str) -> None:
    record = record_of(row)
    assert choose_layout(row, SourceConfig(path="made/up")).name == layout
    assert (record.messages[0].content, record.answer.text, record.id) == (Q, answer, name)


def test_a_path_that_speaks_of_aime_is_enough() -> None:
    assert choose_layout({"problem": Q, "answer": 42}, SourceConfig(path="sets/aime25.jsonl")).name == "aime"


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_layout_reads_its_own_columns(name: str) -> None:
    rows = {
        "dapo_math_17k": dapo_row(Q, "42"),
        "math500": {"problem": Q, "answer": "42", "unique_id": "a"},
        "gsm8k": {"question": Q, "answer": "#### 42"},
        "conversations": {"prompt": [{"from": "human", "value": Q}], "final_answer": "42"},
        "aime": {"Problem": Q, "Answer": 42},
        "plain": {"prompt": Q, "answer": 42},
    }
    assert record_of(rows[name], layout=name).answer.text == "42"


def test_named_columns_win_and_a_dot_leads_into_a_nested_one() -> None:
    row = {"text": Q, "gold": {"value": 42}, "a.b": "x"}
    record = record_of(row, prompt_column="text", answer_column="gold.value", id_column="a.b")
    assert (record.messages[0].content, record.answer.text, record.id) == (Q, "42", "x")
    assert record.info == {"gold": {"value": 42}, "a.b": "x"}


def test_one_named_column_is_enough_where_the_other_is_known() -> None:
    assert (
        record_of({"text": Q, "answer": 42, "label": 43}, prompt_column="text", answer_column="label").answer.text
        == "43"
    )
    assert record_of({"text": Q, "answer": 42}, prompt_column="text").answer.text == "42"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": Q, "answer": 42},
            "columns text, answer; none of them is known to hold the prompt. Name it with prompt_column",
        ),
        ({"prompt": Q, "gold": 42}, "known to hold the answer. Name it with answer_column"),
        ({"prompt": Q, "problem": "Another?", "answer": 42}, "prompt and problem may both be"),
    ],
)
def test_columns_that_cannot_be_told_are_listed(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        choose_layout(row, SourceConfig(path="made/up"))


def test_a_named_layout_that_does_not_fit_says_what_it_looks_for() -> None:
    with pytest.raises(DataError, match=r"'gsm8k' looks for 'question'.*columns prompt, answer.*prompt_column"):
        choose_layout({"prompt": Q, "answer": 42}, SourceConfig(path="made/up", layout="gsm8k"))


def test_a_gsm8k_answer_without_its_mark_is_missing() -> None:
    layout = LAYOUTS["gsm8k"]
    record = layout.record({"question": Q, "answer": "forty-two"}, 0, "row-0")
    assert isinstance(record, Record)
    assert record.answer.origin is Origin.MISSING


def test_a_row_without_a_prompt_is_unreadable_and_one_without_an_answer_is_not() -> None:
    layout = LAYOUTS["plain"]
    assert layout.record({"answer": 42}, 3, "row-3") == Unreadable(row=3, id="row-3", reason="it has no prompt")
    record = layout.record({"prompt": Q}, 3, "row-3")
    assert isinstance(record, Record)
    assert record.answer.origin is Origin.MISSING


def test_columns_that_a_layout_needs_are_top_level() -> None:
    assert LAYOUTS["dapo_math_17k"].columns == {"prompt", "reward_model", "extra_info"}
