from __future__ import annotations

import json
from collections import Counter

import pytest

from dapo.data.config import SourceConfig
from dapo.data.known_keys import check_keys, known_problems, recognise, sample_of, short_fingerprint
from dapo.data.opening import scan_records
from dapo.data.records import Record
from tests.shared_data import shared_file

KEYS_2024 = {
    "I": [204, 25, 809, 116, 104, 294, 540, 197, 480, 113, 371, 385, 110, 104, 721],
    "II": [73, 236, 45, 33, 80, 55, 699, 127, 902, 468, 601, 23, 321, 211, 315],
}
KEYS_2025 = {
    "I": [70, 588, 16, 117, 279, 504, 821, 77, 62, 81, 259, 510, 204, 60, 735],
    "II": [468, 49, 82, 106, 336, 293, 237, 610, 149, 907, 113, 19, 248, 104, 240],
}


def records(name: str) -> list[Record]:
    source = SourceConfig(path=str(shared_file(f"data/{name}")))
    return [record for record in scan_records(source) if isinstance(record, Record)]


@pytest.mark.parametrize(("year", "keys"), [(2024, KEYS_2024), (2025, KEYS_2025)])
def test_the_keys_are_those_of_the_contests(year: int, keys: dict[str, list[int]]) -> None:
    by_name = {problem.name: problem.keys for problem in known_problems()}
    for paper, answers in keys.items():
        for number, answer in enumerate(answers, start=1):
            assert by_name[f"AIME {year} {paper} {number}"] == (str(answer),)


def test_the_table_has_one_entry_a_problem_and_one_problem_a_mark() -> None:
    problems = known_problems()
    assert Counter(problem.contest for problem in problems)["AIME 2024"] == 30
    assert Counter(problem.contest for problem in problems)["AIME 2025"] == 30
    assert len({problem.name for problem in problems}) == len(problems) == 67
    marks = [mark for problem in problems for mark in problem.fingerprints]
    assert len(set(marks)) == len(marks)
    assert all(len(mark) == 16 for mark in marks)


def test_a_key_with_two_answers_has_both() -> None:
    assert next(problem.keys for problem in known_problems() if problem.name == "AIME 2022 II 8") == ("80", "81")


@pytest.mark.parametrize("name", ["aime24.jsonl", "aime25.jsonl", "qwen_aime24_leading_zeros.jsonl"])
def test_a_right_file_has_no_differences(name: str) -> None:
    rows = records(name)
    found = [recognise(record.text) for record in rows]
    assert len({one.problem.name for one in found if one is not None}) == 30
    assert check_keys(rows) == []


def test_the_one_wrong_key_is_named() -> None:
    differences = check_keys(records("orz_aime24_one_wrong_key.json"))
    assert [(one.row, one.problem, one.answer, one.keys, one.certain) for one in differences] == [
        (22, "AIME 2024 I 8", "480", ("197",), True)
    ]


def test_every_changed_key_is_named_row_by_row() -> None:
    rows = records("aime24.jsonl")
    changed = [
        Record(
            row=record.row,
            id=record.id,
            messages=record.messages,
            answer=type(record.answer)(text=str(int(record.answer.text) + 1), origin=record.answer.origin),
            values={},
            used=frozenset(),
        )
        for record in rows
    ]
    assert [one.row for one in check_keys(changed)] == list(range(30))


def test_wrapped_copies_are_recognised() -> None:
    rows = records("aime24_dapo_960.jsonl")
    names = Counter(found.problem.name for record in rows if (found := recognise(record.text)) is not None)
    assert len(rows) == 960
    assert set(names.values()) == {32}
    assert len(names) == 30
    assert check_keys(rows) == []


def test_the_table_is_what_the_file_gives() -> None:
    by_name = {problem.name: problem for problem in known_problems()}
    for line in shared_file("data/aime24.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        paper, number = row["url"].removesuffix("/").split("_AIME_")[1].split("_Problems/Problem_")
        problem = by_name[f"AIME 2024 {paper} {number}"]
        assert problem.fingerprints[0] == short_fingerprint(row["problem"])
        assert problem.sample == sample_of(row["problem"])


def test_a_changed_wording_is_recognised_but_not_for_certain() -> None:
    text = next(record.text for record in records("aime24.jsonl"))
    found = recognise(f"Answer this. {text} Think well.")
    assert found is not None
    assert (found.problem.name, found.certain) == ("AIME 2024 I 1", False)


@pytest.mark.slow
def test_no_training_problem_is_taken_for_one_of_2024_or_2025() -> None:
    rows = records("dapo_math_17k_full.parquet")
    names = {found.problem.name for record in rows if (found := recognise(record.text)) is not None}
    assert names == {
        "AIME 1997 15",
        "AIME 2002 I 11",
        "AIME 2003 II 13",
        "AIME 2004 II 10",
        "AIME 2009 I 4",
        "AIME 2021 I 11",
        "AIME 2022 II 8",
    }


def test_nothing_is_recognised_in_an_ordinary_problem() -> None:
    assert recognise("What is 6 * 7?") is None
    assert recognise("") is None
