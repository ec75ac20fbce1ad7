"""The DAPO authors' rule, gaps included: what it accepts, what it refuses although right, what it accepts although wrong."""

from __future__ import annotations

import pytest

from dapo.verifiers import grade
from dapo.verifiers.dapo_rule import normalize


def is_accepted(response: str, gold: str = "540") -> bool:
    return grade(response, gold, verifier="dapo").correct


@pytest.mark.parametrize(
    "response",
    [
        "Answer: 540",
        "Answer: $540$.",
        "Answer: \\boxed{540}",
        "Answer: 540 degrees",
        "Answer: $x=540$",
        "Final Answer: 540",
        "Answer:\n540",
        "Answer: 540\\text{ cm}^2",
        "answer: 540",
        "Answer :540",
        "Answer: 1\nAnswer: 540",
    ],
)
def test_it_accepts(response: str) -> None:
    assert is_accepted(response)


def test_it_accepts_thousands_separators() -> None:
    assert is_accepted("Answer: 1,234", "1234")


@pytest.mark.parametrize(
    "response",
    [
        "**Answer:** 540",
        "Answer: **540**",
        "**Answer: 540**",
        "Answer: 540.",
        "Answer: \\(540\\)",
        "Answer: \\[540\\]",
        "Answer: 0540",
        "Answer: 540.0",
        "Answer: \\frac{1080}{2}",
        "Answer: 540 apples",
        "Answer：540",
        "Answer: $\n540$",
        "Answer: 540 <|im_end|>",
        "Answer: 540\n" + "and so on " * 31,
        "The answer is \\boxed{540}",
    ],
)
def test_it_refuses_although_right(response: str) -> None:
    assert not is_accepted(response)
    assert grade(response, "540").correct  # the careful verifier does not


@pytest.mark.parametrize(("response", "gold"), [("Answer: 33", "033"), ("Answer: −5", "-5"), ("Answer: 033", "33")])
def test_it_refuses_other_ways_to_write_the_integer(response: str, gold: str) -> None:
    assert not is_accepted(response, gold)
    assert grade(response, gold).correct


@pytest.mark.parametrize(
    "response", ["Answer: $540$ and $7$", "Answer: 7 = 540", "Answer: 5 4 0", "Answer: 54 points 0"]
)
def test_it_accepts_although_doubtful(response: str) -> None:
    assert is_accepted(response)
    assert not grade(response, "540").correct


def test_only_the_last_300_characters_are_seen() -> None:
    assert is_accepted("Answer: 540\n" + "x" * 288)
    assert not is_accepted("Answer: 540\n" + "x" * 293)


def test_a_missing_answer_line_compares_as_the_text_invalid() -> None:
    assert grade("no answer", "[INVALID]", verifier="dapo").correct
    assert grade("no answer", "540", verifier="dapo").extracted is None


@pytest.mark.parametrize(
    ("answer", "normalized"),
    [
        ("x = y = 12", "12"),
        ("an apple", "apple"),
        ("$3$ or $4$", "3"),
        ("\\frac12", "\\frac{1}{2}"),
        ("\\sqrt2", "\\sqrt{2}"),
        ("\\textbf{7}", "7"),
        ("\\text{a}\\text{b}", "ab"),
        ("\\overline{AB}", "AB"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("12 square units", "12"),
        ("90^\\circ", "90"),
        ("1{,}000", "1000"),
        ("1,2,3", "123"),
        ("(1,2)", "(1,2)"),
        ("\\mbox{5 m}", "5m"),
        ("\\$12.50", "12.50"),
    ],
)
def test_the_rewriting(answer: str, normalized: str) -> None:
    assert normalize(answer) == normalized


def test_a_very_long_gold_takes_linear_time() -> None:
    assert not is_accepted("Answer: 7", "1" * 1_000_000)
    assert not is_accepted("Answer: 7", "\\text{ab}" * 100_000)
