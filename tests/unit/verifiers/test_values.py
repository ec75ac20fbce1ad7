"""Reading values and comparing them without symbolic mathematics."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.verifiers import grade
from dapo.verifiers.cursor import NeedsLibrary, NotMathematics
from dapo.verifiers.grammar import parse
from dapo.verifiers.integers import DecimalNumber, read_number
from dapo.verifiers.nodes import Based, Listing, Matrix, Quantity, Relation, Words
from dapo.verifiers.quick import decide, read_gold, read_value
from dapo.verifiers.rational import rational
from dapo.verifiers.vocabulary import number_from_words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", DecimalNumber(False, "42", 0)),
        ("-0042", DecimalNumber(True, "42", 0)),
        ("1,234", DecimalNumber(False, "1234", 0)),
        ("1 000", DecimalNumber(False, "1", 3)),
        ("12,34,567", DecimalNumber(False, "1234567", 0)),
        ("1000.0", DecimalNumber(False, "1", 3)),
        (".5", DecimalNumber(False, "5", -1)),
        ("1.5e-3", DecimalNumber(False, "15", -4)),
        ("6.02 \\times 10^{23}", DecimalNumber(False, "602", 21)),
        ("1e400", DecimalNumber(False, "1", 400)),
        ("-0.0", DecimalNumber(False, "", 0)),
    ],
)
def test_numbers_in_digits_are_read_exactly(text: str, number: DecimalNumber) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["", "1,2,3", "3 4", "12,34", "1.2.3", "--3", "x", "1e", "0,123", "1,2345", "٣", "."])
def test_everything_else_is_no_number_in_digits(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\frac{68}{2}", Fraction(34)),
        ("\\frac13", Fraction(1, 3)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("3 1/2", Fraction(7, 2)),
        ("2^{-3}", Fraction(1, 8)),
        ("-2^2", Fraction(-4)),
        ("2^3^2", Fraction(512)),
        ("\\sqrt{\\frac{9}{4}}", Fraction(3, 2)),
        ("\\sqrt[3]{-27}", Fraction(-3)),
        ("5!", Fraction(120)),
        ("\\binom{10}{3}", Fraction(120)),
        ("{10 \\choose 3}", Fraction(120)),
        ("0.\\overline{3}", Fraction(1, 3)),
        ("0.1\\overline{6}", Fraction(1, 6)),
        ("28\\%", Fraction(7, 25)),
        ("5 \\text{ million}", Fraction(5_000_000)),
        ("\\lfloor 3.5 \\rfloor + |{-2}|", Fraction(5)),
        ("\\gcd(12, 18)", Fraction(6)),
        ("9^{9^{9}}", None),
        ("\\sqrt 2", None),
        ("1/0", None),
        ("0^0", None),
        ("3001!", None),
        ("x", None),
    ],
)
def test_rational_arithmetic_is_exact_and_bounded(text: str, value: Fraction | None) -> None:
    assert rational(parse(text)) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1,2,3", Listing),
        ("(3,4]", Listing),
        ("x = 5", Relation),
        ("2 < x \\le 3", Relation),
        ("3:2", Relation),
        ("12 cm^2", Quantity),
        ("204_5", Based),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", Matrix),
        ("\\text{Evelyn}", Words),
    ],
)
def test_answers_of_every_kind_are_read(text: str, kind: type) -> None:
    assert isinstance(parse(text), kind)


@pytest.mark.parametrize(
    "text",
    [
        "3 4",
        "5 4 0",
        "54 points 0",
        "540 (or maybe 541)",
        "34 squared",
        "at least 5",
        "5 more",
        "((",
        "\\frac{1}{",
        "^2",
        "1 is the",
        "()",
        "[1,2",
        "2 +",
        "\\foo",
        "\\begin{pmatrix}1&2\\\\3\\end{pmatrix}",
        "204_3",
        "1" * 5000,
    ],
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(NotMathematics):
        parse(text)


@pytest.mark.parametrize(
    "piece", ["(", "{", "\\sqrt", "\\frac1", "-(", "2^", "|", "\\log_", "f(", "1/", "!", "\\left("]
)
def test_deep_nesting_is_refused_before_the_stack_ends(piece: str) -> None:
    with pytest.raises(NotMathematics):
        parse(("1" if piece == "!" else "") + piece * 1000)


def test_sums_and_integrals_are_left_to_the_library() -> None:
    with pytest.raises(NeedsLibrary):
        parse("\\sum_{k=1}^{10} k")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("forty-two", 42),
        ("one hundred and eleven", 111),
        ("two thousand three hundred five", 2305),
        ("minus seven", -7),
        ("one million", 1_000_000),
        ("two three", None),
        ("apples", None),
        ("and", None),
    ],
)
def test_numbers_in_words(words: str, number: int | None) -> None:
    assert number_from_words(words) == number


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("34", "34", True),
        ("34", "4\\sqrt{2}", None),
        ("34", "x", False),
        ("34", "(3,4)", False),
        ("28\\%", "0.28", True),
        ("28\\%", "0.28\\%", False),
        ("\\text{(C)}", "C", True),
        ("x=5", "5", True),
        ("5", "x=5", True),
        ("x=5", "y=5", None),
        ("[0,1)", "0 \\le x < 1", True),
        ("[0,1)", "(0,1)", False),
        ("1,2", "2,1", True),
        ("(1,2)", "(2,1)", False),
        ("080 or 081", "81", True),
        ("12:00", "1:00", False),
        ("\\$4.50", "4.50\\text{ cents}", False),
    ],
)
def test_what_can_be_decided_at_once(gold: str, answer: str, verdict: bool | None) -> None:
    assert decide(read_gold(gold), read_value(answer)) is verdict


@pytest.mark.parametrize(
    "answer",
    [
        "34. I am sure the answer is right",
        "34. (Found by counting.)",
        "The largest n is 34.",
        "$m = 30$, $n = 4$, so $m + n = 34$",
        "34, since 30 + 4 is that",
        "not 33 but 34",
    ],
)
def test_the_value_is_cut_out_of_its_sentence(answer: str) -> None:
    assert read_value(answer).shown in {"34", "m + n = 34"}


def test_answers_are_shown_as_votes_can_count_them() -> None:
    assert [read_value(text).shown for text in ("042", "1,042.0", "$-\\,7$", "1e3", "\\frac{1}{2}")] == [
        *("42", "1042", "-\\,7", "1000", "\\frac{1}{2}")
    ]


NUMBERS = st.integers(min_value=-(10**30), max_value=10**30)
LAYOUTS = st.sampled_from(
    [
        "Answer: {}",
        "Answer: ${}$.",
        "**Answer:** {}",
        "\\boxed{{{}}}",
        "The answer is {}.",
        "<answer>{}</answer>",
        "#### {}",
        "Answer:\n{}",
        "Answer: $x = {}$",
        "**Final Answer:**\n\\[\n\\boxed{{{}}}\n\\]",
        "Answer: {}.0",
    ]
)


@given(NUMBERS, LAYOUTS)
@settings(max_examples=200, deadline=None)
def test_an_integer_in_any_layout_equals_itself_and_no_neighbour(number: int, layout: str) -> None:
    response = f"The working stands here.\n{layout.format(number)}"
    assert grade(response, str(number)).correct
    assert not grade(response, str(number + 1)).correct
    assert not grade(response, str(-number or 7)).correct


@given(NUMBERS.filter(lambda number: abs(number) > 999), LAYOUTS)
@settings(max_examples=100, deadline=None)
def test_separators_and_leading_zeros_do_not_change_an_integer(number: int, layout: str) -> None:
    assert grade(layout.format(f"{number:,}"), str(number)).correct
    assert grade(layout.format(f"{number:+040d}"), str(number)).correct


@given(st.lists(st.integers(0, 999), min_size=2, max_size=5, unique=True), st.data())
@settings(max_examples=100, deadline=None)
def test_a_list_is_not_one_of_its_numbers(numbers: list[int], data: st.DataObject) -> None:
    gold = str(data.draw(st.sampled_from(numbers)))
    joiner = data.draw(st.sampled_from([", ", " or ", " and ", "; ", " "]))
    assert not grade(f"Answer: {joiner.join(map(str, numbers))}", gold).correct


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["42", "x^2+1", "\\text{Tom}", "(1,2)"]))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reading(before: str, after: str, gold: str) -> None:
    value = read_value(after)
    assert decide(read_gold(gold), value) in {True, False, None}
    found = grade(f"{before}\nAnswer: {after}", gold, verifier="dapo")
    assert found.error is None
