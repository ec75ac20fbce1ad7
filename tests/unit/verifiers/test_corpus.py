"""Every labelled case: what the verifiers say about replies that people wrote to try them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dapo.verifiers import Grade, Reply, VerifierPool
from dapo.verifiers.quick import read_gold
from tests.shared_data import shared_file

CORPUS = Path(__file__).with_name("corpus.jsonl")
SECONDS = 2.0


def read_cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def graded(cases: list[dict[str, Any]]) -> tuple[list[Grade], float]:
    with VerifierPool("math", seconds=SECONDS) as pool:
        started = time.monotonic()
        grades = pool.grade_many(Reply(response=case["response"], gold=case["gold"]) for case in cases)
        return grades, time.monotonic() - started


def mistakes(cases: list[dict[str, Any]], grades: list[Grade], strength: str) -> list[str]:
    pairs = zip(cases, grades, strict=True)
    return [
        f"{case['id']} {case['response'][-80:]!r} against {case['gold'][:40]!r}: {grade}"
        for case, grade in pairs
        if case["strength"] == strength and grade.correct != case["expected"]
    ]


@pytest.fixture(scope="module")
def own() -> tuple[list[dict[str, Any]], list[Grade]]:
    cases = read_cases(CORPUS)
    return cases, graded(cases)[0]


def test_the_corpus_is_large_and_has_no_case_twice() -> None:
    cases = read_cases(CORPUS)
    assert len(cases) == 1567
    assert max(Counter((case["response"], case["gold"]) for case in cases).values()) == 1
    assert Counter(case["expected"] for case in cases) == {True: 790, False: 777}


def test_every_hard_case_of_the_corpus_is_right(own: tuple[list[dict[str, Any]], list[Grade]]) -> None:
    assert mistakes(*own, "hard") == []


def test_one_soft_case_of_the_corpus_is_known_to_be_wrong(own: tuple[list[dict[str, Any]], list[Grade]]) -> None:
    (mistake,) = mistakes(*own, "soft")
    assert mistake.startswith("c1238 ")  # metres over seconds, as a fraction of two words


def test_only_hang_risks_end_in_an_error(own: tuple[list[dict[str, Any]], list[Grade]]) -> None:
    cases, grades = own
    failed = [case for case, grade in zip(cases, grades, strict=True) if grade.error is not None]
    assert all(case["hang_risk"] and not case["expected"] for case in failed)
    assert len(failed) <= 2


def test_every_shared_case_is_right_and_bounded() -> None:
    cases = read_cases(shared_file("cases/grading_cases.jsonl"))
    grades, seconds = graded(cases)
    assert mistakes(cases, grades, "hard") == []
    assert mistakes(cases, grades, "soft") == []
    hanging = sum(case["hang_risk"] for case in cases)
    assert seconds < 30 + hanging * SECONDS


@pytest.mark.parametrize("layout", ["\\boxed{{{}}}", "Answer: {}", "Answer: ${}$", "**Answer:** ${}$.", "#### {}"])
def test_every_math500_gold_equals_itself(layout: str) -> None:
    golds = [row["answer"] for row in read_cases(shared_file("data/math500.jsonl"))]
    if layout.startswith("####"):
        golds = [gold for gold in golds if read_gold(gold).number is not None]
    with VerifierPool("math") as pool:
        grades = pool.grade_many(Reply(response="So\n" + layout.format(gold), gold=gold) for gold in golds)
    assert [gold for gold, grade in zip(golds, grades, strict=True) if not grade.correct] == []


def test_every_math500_solution_states_its_answer_and_no_other_problems_answer() -> None:
    rows = read_cases(shared_file("data/math500.jsonl"))
    others = rows[1:] + rows[:1]
    with VerifierPool("math") as pool:
        own = pool.grade_many(Reply(response=row["solution"], gold=row["answer"]) for row in rows)
        other = pool.grade_many(
            Reply(response=row["solution"], gold=next_row["answer"]) for row, next_row in zip(rows, others, strict=True)
        )
    assert [row["answer"] for row, grade in zip(rows, own, strict=True) if not grade.correct] == []
    accepted = {
        (row["answer"], next_row["answer"])
        for row, next_row, grade in zip(rows, others, other, strict=True)
        if grade.correct and row["answer"] != next_row["answer"]
    }
    assert accepted == {("5", "x=5")}


def test_every_gsm8k_solution_is_right_and_wrong_when_the_gold_is_one_more() -> None:
    solutions = [row["answer"] for row in read_cases(shared_file("data/gsm8k_test.jsonl"))]
    golds = [solution.rpartition("####")[2].strip() for solution in solutions]
    one_more = [str(int(gold.replace(",", "")) + 1) for gold in golds]
    with VerifierPool("math") as pool:
        right = pool.grade_many(Reply(response=s, gold=g) for s, g in zip(solutions, golds, strict=True))
        wrong = pool.grade_many(Reply(response=s, gold=g) for s, g in zip(solutions, one_more, strict=True))
    assert sum(grade.correct for grade in right) == len(solutions)
    assert sum(grade.correct for grade in wrong) == 0


def test_every_dapo_label_equals_itself_and_not_itself_plus_one() -> None:
    path = shared_file("data/dapo_math_17k_full.parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(path, columns=["reward_model"]).to_pylist()
    labels = [row["reward_model"]["ground_truth"] for row in rows]
    with VerifierPool("math") as pool:
        same = pool.grade_many(Reply(response=f"Answer: {label}", gold=label) for label in labels)
        one_more = pool.grade_many(Reply(response=f"Answer: {int(label) + 1}", gold=label) for label in labels)
        counts = pool.counts
    assert len(labels) == 17_917
    assert sum(grade.correct for grade in same) == len(labels)
    assert sum(grade.correct for grade in one_more) == 0
    assert counts.symbolic == 0
