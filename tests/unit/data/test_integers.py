from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.data.integers import (
    exact_integer_of_float,
    float_damage,
    is_above_exact,
    mended_integer,
    names_several,
    plain_integer,
    same_answer,
)


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("33", "33"),
        ("033", "33"),
        (" -7 ", "-7"),
        ("+5", "5"),
        ("-0", "0"),
        ("000", "0"),
        ("105263157894736842", "105263157894736842"),
        ("19999999999999999999999", "19999999999999999999999"),
        ("3.0", None),
        ("1,234", None),
        ("1_000", None),
        ("٣", None),
        ("", None),
        ("-", None),
    ],
)
def test_only_text_that_is_an_integer_is_plain(text: str, digits: str | None) -> None:
    assert plain_integer(text) == digits


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("1,234", "1234"),
        ("1{,}234", "1234"),
        ("12,34", None),
        ("5.0", "5"),
        ("5.", "5"),
        ("5.5", None),
        ("$42$", "42"),
        ("\\boxed{42}", "42"),
        ("$\\boxed{1,000}$", "1000"),
        ("−5", "-5"),
        ("４２", "42"),
        ("105263157894736842.0", "105263157894736842"),
        ("080 or 081", None),
        ("3/4", None),
        ("forty-two", None),
        ("2e22", None),
    ],
)
def test_an_integer_in_a_usual_dress_is_read_and_nothing_else(text: str, digits: str | None) -> None:
    assert mended_integer(text) == digits


@given(st.integers())
def test_every_integer_is_itself(number: int) -> None:
    assert plain_integer(str(number)) == str(number)
    assert mended_integer(f"{number:,}") == str(number)


@pytest.mark.parametrize("text", ["080 or 081", "080 or 081 (both were accepted)", "3, 5", "1 and 2", "$4;5$"])
def test_a_key_with_two_answers_names_several(text: str) -> None:
    assert names_several(text)


@pytest.mark.parametrize("text", ["80", "1,234", "3/4", "12 or so", "x"])
def test_one_answer_is_not_several(text: str) -> None:
    assert not names_several(text)


def test_integers_are_compared_by_value_and_other_text_by_its_characters() -> None:
    assert same_answer("033", "33")
    assert same_answer("1,000", "1000")
    assert not same_answer("105263157894736842", "105263157894736848"), "equal as floats"
    assert same_answer(" \\frac{1}{2}", "\\frac{1}{2}")
    assert not same_answer("\\frac{1}{2}", "\\frac{1}{3}")


@pytest.mark.parametrize(
    ("literal", "digits"),
    [
        ("5.0", "5"),
        ("1e3", "1000"),
        ("-2.0", "-2"),
        ("9007199254740992.0", "9007199254740992"),
        ("9007199254740994.0", None),
        ("2.5", None),
        ("nan", None),
        ("Infinity", None),
        ("five", None),
    ],
)
def test_a_float_is_an_integer_only_where_no_digit_can_be_lost(literal: str, digits: str | None) -> None:
    assert exact_integer_of_float(literal) == digits


@pytest.mark.parametrize(
    ("damaged", "one_in"),
    [("105263157894736848", 16), ("20000000000000000000000", 2**22), ("22099999999999998951424", 2**22)],
)
def test_an_integer_that_a_float_has_rounded_is_known_by_its_zero_bits(damaged: str, one_in: int) -> None:
    found = float_damage(damaged)
    assert found is not None
    assert found.one_in == one_in


@pytest.mark.parametrize(
    "right", ["105263157894736842", "19999999999999999999999", "9007199254740992", "9007199254740993", "-1", "9" * 5000]
)
def test_an_integer_with_all_its_digits_is_not_damaged(right: str) -> None:
    assert float_damage(right) is None


@given(st.integers(min_value=2**53 + 1, max_value=2**900))
def test_whatever_a_float_returns_is_named(number: int) -> None:
    assert float_damage(str(int(float(number)))) is not None or int(float(number)) == 2**53


def test_sizes_are_compared_by_digits() -> None:
    assert not is_above_exact("9007199254740992")
    assert is_above_exact("9007199254740993")
    assert is_above_exact("-9007199254740993")
    assert is_above_exact("1" + "0" * 5000)
