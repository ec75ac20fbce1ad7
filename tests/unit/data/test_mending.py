from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.data.findings import Kind
from dapo.data.mending import mend_text

BELOW_SPACE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
CHINESE_RULE = (
    "让我们一步一步地思考。请以“Answer: \\boxed{<final_answer>}”的格式输出最终答案。"
    "如果是选择题，请按顺序输出正确的选项，不带任何标点或空格。对于其他类型的问题，请只输出最终答案的数值。"
)


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("Give $\x0crac{m}{n}$.", "Give $\\frac{m}{n}$."),
        ("Give $\x0crac12$ and $\x0crac m n$.", "Give $\\frac12$ and $\\frac m n$."),
        ("Let $m^2=\x0c\\frac{p}{q}$.", "Let $m^2=\\frac{p}{q}$."),
        ("The angle is \x08eta.", "The angle is \\beta."),
        ("$2 \times 3^n$", "$2 \\times 3^n$"),
        ("area of $\triangle A B P$", "area of $\\triangle A B P$"),
        ("$T=\text{min}$", "$T=\\text{min}$"),
        ("$\theta$ and $\rho$ and $\nu$".replace("\nu", "\\nu"), "$\\theta$ and $\\rho$ and $\\nu$"),
        ("$\x07lpha$ and $\x0bec{v}$", "$\\alpha$ and $\\vec{v}$"),
        ("Let $a \neq b$ and $\nabla ABD$.", "Let $a \\neq b$ and $\\nabla ABD$."),
    ],
)
def test_an_eaten_backslash_is_put_back(damaged: str, mended: str) -> None:
    found = mend_text(damaged)
    assert found.text == mended
    assert {(note.kind, note.mended) for note in found.notes} == {(Kind.CONTROL_CHARACTER, True)}


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("The \x0cfirst of the fi\x0cve boys", "The first of the five boys"),
        ("fi\x0cnd the figure", "find the figure"),
        ("de\x0cne a set that satis\x0ces it; \x0cnd its size", "define a set that satisfies it; find its size"),
        ("a di\x0bfference of an in\x0cfinite sum", "a difference of an infinite sum"),
        ("a di\x0berence", "a difference"),
        ("$2 | \x0cx^2 - 9\x0c | \\le 9$", "$2 | x^2 - 9 | \\le 9$"),
        ("both \x0c\x0cand \x0c one", "both and  one"),
    ],
)
def test_the_code_of_a_ligature_becomes_its_letters_or_goes(damaged: str, mended: str) -> None:
    assert mend_text(damaged).text == mended


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("$x \\le\x14 2y$", "$x \\le 2y$"),
        ("$y \x14\\le 2x$", "$y \\le 2x$"),
        ("$\\star$ \x88 $x$", "$\\star$  $x$"),
        ("$A\\subseteq \x12\\{1, 2\\}$", "$A\\subseteq \\{1, 2\\}$"),
        ("It\x92s a \x93set\x94", "It’s a “set”"),
    ],
)
def test_the_code_of_a_sign_goes_where_the_sign_stands_beside_it(damaged: str, mended: str) -> None:
    assert mend_text(damaged).text == mended


@pytest.mark.parametrize("damaged", ["when a \x14 b holds", "the \x0cobble", "x\x00y"])
def test_a_sign_that_may_be_lost_is_not_guessed(damaged: str) -> None:
    found = mend_text(damaged)
    assert found.text == damaged
    assert [(note.kind, note.mended) for note in found.notes] == [(Kind.CONTROL_CHARACTER, False)]


def test_characters_that_are_lost_for_good_are_named() -> None:
    assert [note.detail for note in mend_text("a \ufffd b").notes] == ["1 characters are lost (U+FFFD)"]


def test_tabs_and_line_ends_become_plain() -> None:
    assert mend_text("a\tb\r\nc\rd\ufeff").text == "a b\nc\nd"
    assert mend_text("for(i)\tdraw(i);\tangle").text == "for(i) draw(i); angle", "a tab before an English word is a tab"


def test_a_newline_before_a_word_is_a_newline() -> None:
    text = "Let $x$ be\nnot zero\nuntil\neach is"
    assert mend_text(text).text == text


def test_doubled_backslashes_are_halved_outside_of_environments() -> None:
    assert mend_text("$\\\\ldots, \\\\cdot$").text == "$\\ldots, \\cdot$"
    array = "$\\begin{array}{c} 1 \\\\hline 2 \\\\cdot \\end{array}$"
    assert mend_text(array).text == array
    assert mend_text("one \\\\\\\\ two \\\\ x").text == "one \\\\\\\\ two \\\\ x"


def test_an_added_sentence_gets_its_space() -> None:
    found = mend_text("Find $x$.The answer is in the form $\\frac{m}{n}$. Please provide the value of m + n.")
    assert found.text.startswith("Find $x$. The answer is in the form")
    assert [(note.kind, note.mended) for note in found.notes] == [(Kind.GLUED_SENTENCE, True)]


@pytest.mark.parametrize(
    "rule",
    [
        "\n" + CHINESE_RULE,
        "\nPlease reason step by step, and put your final answer within \\boxed{}.",
        " Let's think step by step and output the final answer within \\boxed{}.",
        ' Let\'s think step by step and output the final answer after "####".',
        "\nPut your answer within \\boxed{}.",
        "\n请逐步推理，并把你的最终答案放到 \\boxed{} 中。",
    ],
)
def test_a_rule_for_the_answers_form_at_the_end_is_taken_off(rule: str) -> None:
    found = mend_text(f"What is 6 * 7?{rule}")
    assert found.text == "What is 6 * 7?"
    assert [(note.kind, note.mended) for note in found.notes] == [(Kind.CONFLICTING_INSTRUCTION, True)]


@pytest.mark.parametrize(
    "text",
    [
        "Write Answer: and the number, then explain.",
        "Give the sum within \\boxed{} and the product after it.",
        "Express the area as a common fraction. The answer is in the form m/n. Please provide the value of m + n.",
    ],
)
def test_another_rule_for_the_answers_form_is_only_named(text: str) -> None:
    found = mend_text(text)
    assert found.text == text
    assert [(note.kind, note.mended) for note in found.notes] == [(Kind.CONFLICTING_INSTRUCTION, False)]


@pytest.mark.parametrize("text", ["Let $\\boxed{N}$ mean the number of divisors of $N$.", "Find the answer: quickly."])
def test_a_box_that_is_part_of_the_problem_is_no_rule(text: str) -> None:
    assert mend_text(text).notes == ()


def test_a_text_that_is_nothing_but_a_rule_stays() -> None:
    assert mend_text("Put your answer within \\boxed{}.").text == "Put your answer within \\boxed{}."


DAMAGED = st.lists(
    st.sampled_from(
        [*"\a\b\t\n\v\f\r\x00\x14\x92\ufeff $\\{}(", "rac", "eta", "fi", "nd", "figure", "ext", "eq", "x", "\\le", "。"]
    )
).map("".join)


@given(st.text() | DAMAGED)
def test_mended_text_stays_as_it_is(text: str) -> None:
    once = mend_text(text)
    assert mend_text(once.text).text == once.text


@given(st.text() | DAMAGED)
def test_no_control_character_is_left_unless_it_is_named(text: str) -> None:
    found = mend_text(text)
    named = any(note.kind is Kind.CONTROL_CHARACTER and not note.mended for note in found.notes)
    assert named or not BELOW_SPACE.search(found.text)


@given(
    st.lists(st.sampled_from(["\\frac{a}{b}", "\\theta", "\\beta", "\\nu", "\\rho", "\\times", " ", "\n", "x", "$"]))
)
def test_every_backslash_is_kept(parts: list[str]) -> None:
    assert mend_text("".join(parts)).text == "".join(parts)
