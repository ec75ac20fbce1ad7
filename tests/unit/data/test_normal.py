from __future__ import annotations

import hashlib

import pytest

from dapo.data.normal import (
    figure_digits,
    fingerprint,
    normal_form,
    numbers_of,
    runs,
    text_key,
    tokens,
    without_figures,
)
from dapo.data.templates import TEMPLATES


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("$AB = 11$ and $CD=19$.", "$AB=11$  and\n$CD = 19$"),
        ("Find $\\dfrac{1}{2}$.", "Find \\(\\frac12\\)"),
        ("Find $\\left( x \\right)$", "find $(x)$"),
        ("1,000 men", "$1000$ men"),
        ("The ﬁgure", "the figure"),
        ("Let \\textit{good} be", "Let good be"),
        ("Give $\x0crac{m}{n}$", "Give $\\frac{m}{n}$"),
        (TEMPLATES["dapo"].replace("{problem}", "What is 6 * 7?"), "What is 6 * 7?"),
    ],
)
def test_typesetting_does_not_make_another_problem(one: str, two: str) -> None:
    assert normal_form(one) == normal_form(two)
    assert text_key(one) == text_key(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Find 1.5 x", "Find 15 x"),
        ("Find 5!", "Find 5"),
        ("Find $a+b$", "Find $a-b$"),
        ("Find $2(x+1)$", "Find $2x+1$"),
        ("Find $x < 3$", "Find $x > 3$"),
        ("How many are odd?", "How many are even?"),
        ("Area? [asy]draw((0,0)--(1,1));[/asy]", "Area? [asy]draw((0,0)--(2,1));[/asy]"),
    ],
)
def test_words_numbers_operators_and_figures_do(one: str, two: str) -> None:
    assert text_key(one) != text_key(two)


def test_a_fingerprint_is_a_sha256_without_figures() -> None:
    expected = hashlib.sha256(b"findthearea").hexdigest()
    assert fingerprint("Find the area. [asy]draw((0,0)--(1,1));[/asy]") == expected
    assert fingerprint("Find the $area$") == expected


def test_figures_in_all_their_marks_are_left_out() -> None:
    assert without_figures("a [asy]x[/asy] b <asy>y</asy> c \\begin{asy}z\\end{asy} d [asy] cut off").split() == list(
        "abcd"
    )
    assert figure_digits("1 [asy]draw((3,2));[/asy] 4 <asy>10</asy>") == "0123"


def test_tokens_are_words_numbers_signs_and_single_chinese_characters() -> None:
    assert tokens("Find $\\frac{12}{x+1}$，求值 [asy]9[/asy]") == ["find", "frac", "12", "x", "+", "1", "求", "值"]
    assert numbers_of(tokens("3 men, 12 dogs and x1")) == ["3", "12", "1"]


def test_runs_are_one_a_place() -> None:
    assert len(runs(list("abcd"), 2)) == 3
    assert len(runs(list("abab"), 2)) == 2
    assert len(runs(["a"], 8)) == 1
    assert runs(list("abcd"), 2) != runs(list("dcba"), 2)


def test_lone_surrogates_are_no_obstacle() -> None:
    assert text_key("\ud800 a") != text_key("a")
    assert len(fingerprint("\ud800")) == 64
    assert runs(["\ud800", "a"], 2)
