from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.data.templates import TEMPLATES, apply_template, is_template, split_wrapper, strip_wrapper

WRAPPED = TEMPLATES["dapo"].replace("{problem}", "What is 6 * 7?")


def test_the_dapo_wrapper_is_word_for_word_that_of_the_set() -> None:
    assert WRAPPED == (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 6 * 7?\n\n"
        'Remember to put your answer on its own line after "Answer:".'
    )


def test_the_wrapper_is_taken_off_and_put_on() -> None:
    assert strip_wrapper(WRAPPED) == "What is 6 * 7?"
    assert apply_template("What is 6 * 7?", "dapo") == WRAPPED
    assert apply_template(WRAPPED, "bare") == "What is 6 * 7?"
    assert apply_template(WRAPPED, "keep") == WRAPPED


def test_nothing_is_wrapped_twice() -> None:
    assert apply_template(WRAPPED, "dapo") == WRAPPED
    assert apply_template(WRAPPED, "boxed").count("What is 6 * 7?") == 1
    assert "Answer:" not in apply_template(WRAPPED, "boxed")


def test_white_space_in_the_wrapper_does_not_matter() -> None:
    assert (
        strip_wrapper("  " + WRAPPED.replace("\n\n", "\n").replace(" step by", "  step\nby") + "\n") == "What is 6 * 7?"
    )


def test_braces_of_a_formula_are_left_alone() -> None:
    assert apply_template("Find $\\frac{1}{2}$ of {0} {problem}.", "Q: {problem} A:") == (
        "Q: Find $\\frac{1}{2}$ of {0} {problem}. A:"
    )


@given(st.text())
def test_the_parts_give_the_text_again(text: str) -> None:
    for whole in (text, TEMPLATES["dapo"].replace("{problem}", text)):
        parts = split_wrapper(whole)
        assert parts.prefix + parts.body + parts.suffix == whole


@pytest.mark.parametrize(
    ("name", "known"),
    [("keep", True), ("bare", True), ("dapo", True), ("Q: {problem}", True), ("strip", False), ("", False)],
)
def test_a_template_is_a_name_or_has_a_place_for_the_problem(name: str, known: bool) -> None:
    assert is_template(name) is known
