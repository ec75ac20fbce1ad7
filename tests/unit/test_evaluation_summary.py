"""Samples to numbers, and two evaluations compared."""

from __future__ import annotations

import pytest

from dapo.evaluation import ProblemSamples, Sample, compare, problem_table, summarise
from dapo.maths.statistics import mean_over_problems, mean_over_samples, paired_difference


def samples_of(name: str, pattern: str) -> ProblemSamples:
    """`+` is a right reply, `-` a wrong one, `.` one without an answer that the limit cut off."""
    answers = {"+": "7", "-": "8", ".": None}
    return ProblemSamples(
        id=name,
        gold="7",
        samples=tuple(
            Sample(correct=sign == "+", extracted=answers[sign], truncated=sign == ".", length=10 * (place + 1))
            for place, sign in enumerate(pattern)
        ),
    )


def all_of(*patterns: str) -> list[ProblemSamples]:
    return [samples_of(f"p{number}", pattern) for number, pattern in enumerate(patterns)]


def test_every_number_by_hand() -> None:
    found = summarise(all_of("++--", "+...", "----"))
    over_problems = mean_over_problems([0.5, 0.25, 0.0])
    over_samples = mean_over_samples([[True, True, False, False], [True, False, False, False], [False] * 4])
    assert found == {
        "problems": 3,
        "samples": 4,
        "avg": 0.25,
        "ci_low": over_problems.low,
        "ci_high": over_problems.high,
        "samples_low": over_samples.low,
        "samples_high": over_samples.high,
        "pass_at": {"1": pytest.approx(0.25), "2": pytest.approx((5 / 6 + 1 / 2 + 0) / 3), "4": pytest.approx(2 / 3)},
        "maj": 0.5,  # a tie, a sole vote that is right, and none
        "truncated": 0.25,
        "length_mean": 25.0,
        "errors": 0,
    }


def test_more_samples_narrow_the_interval_over_samples_and_not_the_one_over_problems() -> None:
    few = summarise(all_of(*["+++-", "+---"] * 15))
    many = summarise(all_of(*["+++-" * 8, "+---" * 8] * 15))
    width = {name: line["ci_high"] - line["ci_low"] for name, line in (("few", few), ("many", many))}
    again = {name: line["samples_high"] - line["samples_low"] for name, line in (("few", few), ("many", many))}
    assert width["few"] == width["many"]
    assert again["many"] < again["few"] / 2.5


def test_problems_of_unequal_numbers_of_samples_are_no_evaluation() -> None:
    with pytest.raises(ValueError, match="equally many"):
        summarise(all_of("++", "+"))
    with pytest.raises(ValueError, match="equally many"):
        summarise(all_of(""))


def test_the_table_has_a_row_a_problem_and_shows_ties() -> None:
    assert problem_table(all_of("++-", "+-", ".")) == [
        {"id": "p0", "right": 2, "of": 3, "majority": ["7"], "gold": "7"},
        {"id": "p1", "right": 1, "of": 2, "majority": ["7", "8"], "gold": "7"},
        {"id": "p2", "right": 0, "of": 1, "majority": [], "gold": "7"},
    ]


def test_a_comparison_pairs_problems_and_names_what_changed_most_first() -> None:
    before = all_of(*["--"] * 10, "++", "+-")
    after = all_of(*["--"] * 9, "+-", "--", "+-")
    found = compare(before, after)
    assert (found.problems, found.before, found.after) == (12, 0.125, pytest.approx(1 / 12))
    assert found.difference == paired_difference([0.0] * 10 + [1.0, 0.5], [0.0] * 9 + [0.5, 0.0, 0.5])
    assert [(change.id, change.before, change.after) for change in found.changed] == [
        ("p10", 1.0, 0.0),
        ("p9", 0.0, 0.5),
    ]
    assert found.is_more_than_noise is False
    said = found.sentence("A", "B")
    assert said.startswith("A is 4.2 points ahead of B (95% interval of the difference ")
    assert said.endswith("): no more than noise would give on 12 problems.")


def test_a_difference_on_every_problem_is_more_than_noise() -> None:
    found = compare(all_of(*["+---"] * 20), all_of(*["++--", "+++-"] * 10))
    assert found.is_more_than_noise is True
    assert found.difference.mean == pytest.approx(0.375)
    assert found.sentence("old", "new").startswith("new is 37.5 points ahead of old")
    assert found.sentence("old", "new").endswith(": more than noise.")


def test_equal_evaluations_are_level_and_that_is_no_proof_of_equality() -> None:
    found = compare(all_of(*["+-"] * 30), all_of(*["-+"] * 30))
    assert found.changed == () and found.is_more_than_noise is False
    assert found.sentence("A", "B").startswith("B and A are level (95% interval of the difference -11.4 to +11.4)")


@pytest.mark.parametrize(("problems", "words"), [(1, "1 problem is too few"), (9, "9 problems are too few")])
def test_a_handful_of_problems_gets_no_verdict(problems: int, words: str) -> None:
    found = compare(all_of(*["-"] * problems), all_of(*["+"] * problems))
    assert found.is_more_than_noise is None
    assert f"{words} to tell from noise" in found.sentence("A", "B")


def test_other_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same problems"):
        compare(all_of("+", "-"), all_of("+"))
    with pytest.raises(ValueError, match="same problems"):
        compare(all_of("+", "-"), all_of("+", "-")[::-1])
