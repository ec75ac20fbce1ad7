"""The public sets themselves: what a check finds in them is at least what is known to be wrong."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from dapo.data.check import Inspection, inspect, run_check
from dapo.data.clean import run_clean
from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.findings import Kind, Report
from dapo.data.opening import open_rows
from dapo.data.problems import open_problems
from tests.shared_data import shared_file

KINDS_OF_HAZARD = {
    "same problem text, conflicting answers": {Kind.CONFLICTING_ANSWERS, Kind.KNOWN_KEY, Kind.NEAR_DUPLICATE},
    "duplicate problem text, same answer": {Kind.EXACT_DUPLICATE, Kind.NEAR_DUPLICATE, Kind.HAS_DUPLICATES},
    "problem refers to an image or link": {Kind.MISSING_FIGURE},
    "answer above 2**53 or very long: must not go through float": {Kind.BIG_ANSWER},
    "very long prompt (prompt-length filter)": {Kind.LONG_PROMPT},
    "very short or empty-looking problem": {Kind.SHORT_PROMPT, Kind.EXACT_DUPLICATE},
    "label -1": {Kind.SENTINEL_ANSWER, Kind.EXACT_DUPLICATE},
    "Chinese problem text inside the set": {Kind.OTHER_SCRIPT},
    "multiple-choice options left in the problem": {Kind.MULTIPLE_CHOICE, Kind.POSSIBLE_CHOICE},
    "AIME key disagrees with the label": {Kind.KNOWN_KEY},
    "float-damaged big-integer label": {Kind.DAMAGED_BY_FLOAT},
    "form feed in the text: backslash-f of \\frac was read as an escape": {Kind.CONTROL_CHARACTER},
    "control character in the text": {Kind.CONTROL_CHARACTER},
    "contradictory answer-format instruction inside the problem": {Kind.CONFLICTING_INSTRUCTION},
}


@pytest.fixture(scope="module")
def dapo_math() -> Inspection:
    path = shared_file("data/dapo_math_17k_full.parquet")
    return inspect(open_rows(SourceConfig(path=str(path))), CheckConfig(examples=100_000))


def hazards() -> list[dict[str, Any]]:
    text = shared_file("data/dapo_math_17k_hazards.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def kinds_by_row(report: Report) -> dict[int, set[Kind]]:
    found: dict[int, set[Kind]] = defaultdict(set)
    for finding in report.findings:
        found[finding.row].add(finding.kind)
    return found


def test_every_known_hazard_of_dapo_math_is_found_under_its_kind(dapo_math: Inspection) -> None:
    found = kinds_by_row(dapo_math.report)
    missed = []
    for hazard in hazards():
        kinds = next(kinds for name, kinds in KINDS_OF_HAZARD.items() if hazard["hazard"].startswith(name))
        if not found[hazard["row"]] & kinds:
            missed.append((hazard["row"], hazard["hazard"]))
    assert missed == []


def test_what_is_found_in_dapo_math(dapo_math: Inspection) -> None:
    report = dapo_math.report
    assert (report.layout, report.rows, report.unique) == ("dapo_math_17k", 17917, 16305)
    assert {finding.row for finding in report.of(Kind.DAMAGED_BY_FLOAT)} == {1000, 3224, 5195, 8136, 12110}
    assert report.counts[Kind.EXACT_DUPLICATE] == 616
    assert report.counts[Kind.CONFLICTING_ANSWERS] == 45
    assert report.counts[Kind.MISSING_FIGURE] == 29
    assert report.kept + report.dropped == report.rows
    assert 15_000 < report.kept < 15_600
    assert not {Kind.UNREADABLE_ROW, Kind.MISSING_ANSWER, Kind.NOT_AN_INTEGER} & set(report.counts)


def test_known_keys_in_dapo_math_are_put_right(dapo_math: Inspection) -> None:
    details = {finding.row: finding.detail for finding in dapo_math.report.of(Kind.KNOWN_KEY)}
    truth = {hazard["row"]: hazard["true_answer"] for hazard in hazards() if hazard["hazard"].startswith("AIME key")}
    assert set(details) == {*truth, 6344}
    assert all(f" is {answer}, not " in details[row] for row, answer in truth.items())
    assert details[6344] == "the official key of AIME 2022 II 8 accepts 80 and 81"


@pytest.mark.slow
def test_dapo_math_is_clean_after_cleaning(tmp_path: Path) -> None:
    source = shared_file("data/dapo_math_17k_full.parquet")
    out = tmp_path / "clean.parquet"
    summary = run_clean(source, out)
    problems = open_problems(SourceConfig(path=str(out), conflicts="error", unusable="error"))
    assert (len(problems), problems.loaded.duplicates) == (summary.kept, 0)
    texts = [problem.messages[0].content for problem in problems]
    assert not [text for text in texts if any(ord(character) < 32 and character != "\n" for character in text)]
    assert sum("\\frac{m}{n}" in text for text in texts) > 500
    again = run_check(out)
    assert (again.dropped, again.mended) == (0, 0)


@pytest.mark.parametrize(
    ("name", "layout", "rows", "problems"),
    [
        ("aime24.jsonl", "aime", 30, 30),
        ("aime25.jsonl", "aime", 30, 30),
        ("aime24_dapo_960.jsonl", "dapo_math_17k", 960, 30),
        ("qwen_aime24_leading_zeros.jsonl", "aime", 30, 30),
        ("orz_aime24_one_wrong_key.json", "conversations", 30, 30),
        ("math500.jsonl", "math500", 500, 500),
        ("gsm8k_test.jsonl", "gsm8k", 1319, 1319),
        ("dapo_math_17k_full.parquet", "dapo_math_17k", 17917, 16281),
        ("dapo_math_17k_hazards.jsonl", "plain", 246, 163),
    ],
)
def test_every_set_opens_without_being_told_its_layout(name: str, layout: str, rows: int, problems: int) -> None:
    opened = open_problems(SourceConfig(path=str(shared_file(f"data/{name}"))))
    assert (opened.loaded.layout, opened.loaded.rows, len(opened)) == (layout, rows, problems)
    assert all(opened[place].answer for place in range(0, len(opened), max(1, len(opened) // 50)))


def test_gsm8k_answers_are_the_finals() -> None:
    problems = open_problems(SourceConfig(path=str(shared_file("data/gsm8k_test.jsonl"))))
    assert [problem.answer for problem in problems] == [problem.info["final"].replace(",", "") for problem in problems]


def test_the_aime_file_gives_each_problem_once_and_bare(tmp_path: Path) -> None:
    path = str(shared_file("data/aime24_dapo_960.jsonl"))
    problems = open_problems(SourceConfig(path=path, template="bare"))
    assert {problem.messages[0].content for problem in problems} == {
        problem.info["extra_info"]["raw_problem"].strip() for problem in problems
    }
    assert len(open_problems(SourceConfig(path=path, unique=False))) == 960


def test_a_wrong_key_in_an_evaluation_file_is_named() -> None:
    report = run_check(shared_file("data/orz_aime24_one_wrong_key.json"))
    (found,) = report.of(Kind.KNOWN_KEY)
    assert (found.row, found.detail) == (22, "the official key of AIME 2024 I 8 is 197, not '480'")
    assert report.contests == {"AIME 2024": 30}


@pytest.mark.slow
def test_dapo_math_holds_problems_of_math_500_and_none_of_aime() -> None:
    evaluation = tuple(
        SourceConfig(path=str(shared_file(f"data/{name}")))
        for name in ("aime24.jsonl", "aime25.jsonl", "math500.jsonl")
    )
    source = shared_file("data/dapo_math_17k_full.parquet")
    report = run_check(source, CheckConfig(evaluation=evaluation, similarity=None))
    found = report.of(Kind.CONTAMINATED)
    assert len(found) == 33
    assert all("evaluation problem test/" in finding.detail for finding in found), "only ids of MATH-500 begin so"
    assert Counter(finding.detail.split("%")[0] for finding in found)["100"] == 10
