from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapo.data.check import run_check
from dapo.data.config import CheckConfig
from dapo.data.findings import POLICY, Action, Kind
from dapo.data.templates import TEMPLATES
from dapo.errors import ConfigError, DataError
from dapo.types import Problem
from tests.unit.data.helpers import QUESTION, check_pairs, dapo_row, plain_set, the_only, write_lines

OTHER = "A cook slices 30 onions into 6 rings each and drops 11 of the rings. How many rings are left for the soup?"


def test_every_kind_has_a_policy_and_a_meaning() -> None:
    assert list(POLICY) == [kind for kind in POLICY if isinstance(kind, Kind)]
    assert set(POLICY) == set(Kind)
    assert all(policy.meaning and policy.otherwise is not Action.MEND for policy in POLICY.values())


def test_a_sound_set_has_nothing(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100), (OTHER, 169)])
    assert (report.rows, report.unique, report.kept, report.dropped, report.mended) == (2, 2, 2, 0, 0)
    assert report.counts == {}
    assert report.to_text().endswith("nothing found")


@pytest.mark.parametrize(
    ("prompt", "answer", "kind", "action"),
    [
        (7, 1, Kind.UNREADABLE_ROW, Action.DROP),
        ("  ", 1, Kind.EMPTY_PROMPT, Action.DROP),
        (f"{QUESTION} Give $\x0crac{{m}}{{n}}$.", 100, Kind.CONTROL_CHARACTER, Action.MEND),
        (f"{QUESTION} When a \x14 b.", 100, Kind.CONTROL_CHARACTER, Action.DROP),
        (f"{QUESTION} $\\\\cdot$", 100, Kind.DOUBLED_BACKSLASH, Action.MEND),
        (f"{QUESTION}Please give it.", 100, Kind.GLUED_SENTENCE, Action.MEND),
        (f"{QUESTION} Put your answer within \\boxed{{}}.", 100, Kind.CONFLICTING_INSTRUCTION, Action.MEND),
        (f"{QUESTION} Write Answer: first, then why.", 100, Kind.CONFLICTING_INSTRUCTION, Action.REPORT),
        ("What is 6 * 7?", 42, Kind.SHORT_PROMPT, Action.REPORT),
        (QUESTION + " Think." * 400, 100, Kind.LONG_PROMPT, Action.REPORT),
        (f"{QUESTION} ![](a.png)", 100, Kind.MISSING_FIGURE, Action.REPORT),
        (f"{QUESTION} (A) 1 (B) 2 (C) 3", 100, Kind.MULTIPLE_CHOICE, Action.REPORT),
        (f"{QUESTION} Let $P(A)$ be one.", 100, Kind.POSSIBLE_CHOICE, Action.REPORT),
        (f"{QUESTION} 求值", 100, Kind.OTHER_SCRIPT, Action.REPORT),
        (QUESTION, None, Kind.MISSING_ANSWER, Action.DROP),
        (QUESTION, "1,000", Kind.ANSWER_FORM, Action.MEND),
        (QUESTION, "one half", Kind.NOT_AN_INTEGER, Action.DROP),
        (QUESTION, "080 or 081", Kind.SEVERAL_ANSWERS, Action.DROP),
        (QUESTION, 100.0, Kind.STORED_AS_FLOAT, Action.MEND),
        (QUESTION, 2e22, Kind.STORED_AS_FLOAT, Action.DROP),
        (QUESTION, "20000000000000000000000", Kind.DAMAGED_BY_FLOAT, Action.DROP),
        (QUESTION, "19999999999999999999999", Kind.BIG_ANSWER, Action.REPORT),
        (QUESTION, -1, Kind.SENTINEL_ANSWER, Action.REPORT),
    ],
)
def test_what_is_wrong_with_one_row(tmp_path: Path, prompt: Any, answer: Any, kind: Kind, action: Action) -> None:
    report = check_pairs(tmp_path, [(OTHER, 169), (prompt, answer)])
    found = the_only(report, kind)
    assert (found.row, found.id, found.action, found.mendable) == (1, "set-1", action, action is Action.MEND)
    assert report.dropped == (action is Action.DROP)
    assert report.mended == (action is Action.MEND)
    assert not set(report.counts) - {kind, Kind.BIG_ANSWER}


def test_the_same_row_again_is_an_exact_duplicate(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100), (OTHER, 169), (QUESTION, 100), (QUESTION, 100)])
    assert [(found.row, found.related) for found in report.of(Kind.EXACT_DUPLICATE)] == [(2, (0,)), (3, (0,))]
    first = the_only(report, Kind.HAS_DUPLICATES)
    assert (first.row, first.related, first.detail) == (0, (2, 3), "repeated by row 2, 3")
    assert (report.rows, report.unique, report.dropped) == (4, 2, 2)


def test_the_same_problem_in_other_typesetting_is_a_near_duplicate(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100), (QUESTION.replace("12", "$12$ "), "0100")])
    found = the_only(report, Kind.NEAR_DUPLICATE)
    assert (found.row, found.action, found.related) == (1, Action.DROP, (0,))


def test_nearly_the_same_words_with_the_same_numbers_are_a_near_duplicate(tmp_path: Path) -> None:
    reworded = QUESTION.replace("How many rolls does the baker sell?", "Find how many rolls does the baker sell.")
    report = check_pairs(tmp_path, [(QUESTION, 100), (reworded, 100)])
    assert the_only(report, Kind.NEAR_DUPLICATE).detail == "the same numbers and 88% of the word pairs as row 0"
    assert check_pairs(tmp_path, [(QUESTION, 100), (reworded, 100)], similarity=None).counts == {}


def test_nearly_the_same_words_with_another_answer_are_only_reported(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100), (QUESTION.replace("How many", "Find how many"), 108)])
    assert [(found.row, found.action) for found in report.of(Kind.SIMILAR_CONFLICT)] == [
        (0, Action.REPORT),
        (1, Action.REPORT),
    ]
    assert report.dropped == 0


def test_a_chain_of_near_duplicates_keeps_its_first(tmp_path: Path) -> None:
    texts = [QUESTION, QUESTION.replace("How many", "Find how many"), QUESTION.replace("How many", "Say how many")]
    report = check_pairs(tmp_path, [(text, 100) for text in texts])
    assert [(found.row, found.related) for found in report.of(Kind.NEAR_DUPLICATE)] == [(1, (0,)), (2, (0,))]


def test_all_rows_of_a_conflict_leave(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100), (OTHER, 169), (QUESTION.replace(" ", "  "), 108), (QUESTION, 100)])
    conflict = report.of(Kind.CONFLICTING_ANSWERS)
    assert [(found.row, found.action, found.related) for found in conflict] == [
        (0, Action.DROP, (2,)),
        (2, Action.DROP, (0,)),
    ]
    assert conflict[0].detail == "answers 100 (row 0), 108 (row 2)"
    assert (report.kept, report.dropped) == (1, 3), "the copy of row 0 leaves with it"


def test_a_row_that_leaves_anyway_is_no_party_to_a_conflict(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, "20000000000000000000000"), (QUESTION, "19999999999999999999999")])
    assert Kind.CONFLICTING_ANSWERS not in report.counts
    assert report.kept == 1


def test_a_limit_is_measured_as_the_caller_says(tmp_path: Path) -> None:
    seen: list[str] = []

    def count_words(problem: Problem) -> int:
        seen.append(problem.messages[0].content)
        return len(problem.messages[0].content.split())

    texts = [" ".join(f"w{n}{size}" for n in range(size)) for size in (31, 32, 33)]
    path = plain_set(tmp_path / "set.jsonl", [(text, 1) for text in texts])
    options = CheckConfig(max_prompt_tokens=32)
    found = the_only(run_check(path, options, count_tokens=count_words), Kind.PROMPT_OVER_LIMIT)
    assert (found.row, found.detail, found.action) == (2, "33 tokens, the limit is 32", Action.DROP)
    assert seen == texts
    with pytest.raises(ConfigError, match="max_prompt_tokens = 32 needs a tokenizer"):
        run_check(path, options)


def test_the_limit_counts_the_template(tmp_path: Path) -> None:
    path = plain_set(tmp_path / "set.jsonl", [(QUESTION, 100)])
    report = run_check(
        {"path": str(path), "template": "dapo"},  # type: ignore[arg-type]
        CheckConfig(max_prompt_tokens=1),
        count_tokens=lambda problem: len(problem.messages[0].content),
    )
    expected = len(TEMPLATES["dapo"].replace("{problem}", QUESTION))
    assert the_only(report, Kind.PROMPT_OVER_LIMIT).detail == f"{expected} tokens, the limit is 1"


def test_problems_of_an_evaluation_set_are_named(tmp_path: Path) -> None:
    held_out = write_lines(tmp_path / "eval.jsonl", [{"problem": QUESTION, "answer": 100, "id": "e1"}])
    path = plain_set(tmp_path / "set.jsonl", [(OTHER, 169), (f"{QUESTION} Give the last digit.", 0)])
    report = run_check(path, CheckConfig.model_validate({"evaluation": [str(held_out)]}))
    found = the_only(report, Kind.CONTAMINATED)
    assert (found.row, found.detail, found.action) == (1, "100% of the evaluation problem e1", Action.DROP)


def test_the_wrapper_is_no_part_of_the_problem(tmp_path: Path) -> None:
    rows = [
        dapo_row(TEMPLATES["dapo"].replace("{problem}", text), "100", n) for n, text in enumerate([QUESTION, OTHER])
    ]
    report = run_check(write_lines(tmp_path / "a.jsonl", [*rows, dapo_row(QUESTION, "100", 2)]))
    assert Kind.CONFLICTING_INSTRUCTION not in report.counts
    assert the_only(report, Kind.NEAR_DUPLICATE).row == 2


def test_a_float_column_is_reported_row_by_row(tmp_path: Path) -> None:
    answers = pa.array([100.0, 105263157894736842.0])
    pq.write_table(pa.table({"prompt": [QUESTION, OTHER], "answer": answers}), tmp_path / "a.parquet")
    report = run_check(tmp_path / "a.parquet")
    assert [(found.row, found.action) for found in report.of(Kind.STORED_AS_FLOAT)] == [
        (0, Action.MEND),
        (1, Action.DROP),
    ]


def test_options_decide_over_policies(tmp_path: Path) -> None:
    pairs = [(QUESTION, 100), (QUESTION, 100), ("What is 6 * 7?", 42)]
    report = check_pairs(tmp_path, pairs, keep={Kind.EXACT_DUPLICATE}, drop={Kind.SHORT_PROMPT})
    assert (report.kept, report.dropped) == (2, 1)
    assert the_only(report, Kind.EXACT_DUPLICATE).action is Action.REPORT
    assert the_only(report, Kind.SHORT_PROMPT).action is Action.DROP


def test_answers_may_be_anything_where_the_options_say_so(tmp_path: Path) -> None:
    pairs = [(QUESTION, "\\frac{1}{2}"), (OTHER, "x")]
    assert check_pairs(tmp_path, pairs).counts == {Kind.NOT_AN_INTEGER: 2}
    assert check_pairs(tmp_path, pairs, answers="any").counts == {}


def test_a_report_holds_so_many_examples_and_counts_all(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [(QUESTION, 100)] * 9 + [(f"What is {n} + 1?", n + 1) for n in range(9)], examples=2)
    assert report.counts[Kind.EXACT_DUPLICATE] == 8
    assert report.counts[Kind.SHORT_PROMPT] == 9
    assert [found.row for found in report.of(Kind.EXACT_DUPLICATE)] == [1, 2]
    assert [found.row for found in report.of(Kind.SHORT_PROMPT)] == [9, 10]


def test_a_report_is_json_and_text(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [("What is 6 * 7?", "42.0")])
    said = json.loads(report.to_json())
    assert said["counts"] == {"short_prompt": 1, "answer_form": 1}
    assert said["findings"][0] == {
        "row": 0,
        "id": "set-0",
        "kind": "answer_form",
        "detail": "'42.0' is 42",
        "action": "mend",
        "related": [],
        "mendable": True,
    }
    assert "        1  answer_form [mend]: an integer in another dress" in report.to_text()
    assert "row 0 (set-0): '42.0' is 42" in report.to_text()


def test_a_set_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        run_check(tmp_path / "none.jsonl")
