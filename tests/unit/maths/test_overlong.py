from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.overlong import soft_overlong_punishment
from tests import restatement


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1.0), (101, -1.0), (110, -1.0), (10**6, -1.0)],
)
def test_the_slope_ends_at_the_longest_length_and_does_not_begin_there(length: int, expected: float) -> None:
    assert soft_overlong_punishment(length, 100, 20) == pytest.approx(expected, abs=1e-12)


def test_the_values_of_the_paper() -> None:
    assert soft_overlong_punishment(16384, 20480, 4096) == 0.0
    assert soft_overlong_punishment(16384 + 2048, 20480, 4096) == -0.5
    assert soft_overlong_punishment(20480, 20480, 4096) == -1.0


def test_no_punishment_is_plain_zero_and_the_factor_scales_the_rest() -> None:
    assert str(soft_overlong_punishment(80, 100, 20, 3.0)) == "0.0"
    assert soft_overlong_punishment(90, 100, 20, 3.0) == -1.5
    assert soft_overlong_punishment(200, 100, 20, 3.0) == -3.0


@settings(deadline=None)
@given(st.integers(2, 400), st.data())
def test_it_is_the_formula_and_falls_from_0_to_minus_1(longest: int, data: st.DataObject) -> None:
    cache = data.draw(st.integers(1, longest - 1))
    values = [soft_overlong_punishment(length, longest, cache) for length in range(longest + 20)]
    expected = [restatement.soft_overlong(length, longest, cache) for length in range(longest + 20)]
    assert values == pytest.approx(expected, abs=1e-12)
    assert values == sorted(values, reverse=True)
    assert (max(values), min(values)) == (0.0, -1.0)
