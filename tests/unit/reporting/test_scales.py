from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.reporting.scales import clamp, number_text, round_step, step_axis, tick_label, value_axis


@pytest.mark.parametrize(
    ("about", "step"), [(1.0, 1.0), (1.1, 2.0), (2.1, 5.0), (5.1, 10.0), (0.03, 0.05), (700.0, 1000.0)]
)
def test_a_step_is_one_two_or_five_times_a_power_of_ten(about: float, step: float) -> None:
    assert round_step(about) == pytest.approx(step, rel=1e-12)


def test_an_axis_has_round_ticks_around_its_values() -> None:
    axis = value_axis([0.094, 0.514])
    assert [tick_label(tick, axis.decimals) for tick in axis.ticks] == ["0.0", "0.2", "0.4", "0.6"]
    assert (axis.low, axis.high) == (0.0, pytest.approx(0.6))


def test_an_axis_of_values_far_from_zero_does_not_reach_zero() -> None:
    axis = value_axis([0.95, 0.99])
    assert [tick_label(tick, axis.decimals) for tick in axis.ticks] == ["0.95", "0.96", "0.97", "0.98", "0.99"]


def test_an_axis_of_equal_values_has_room_on_both_sides() -> None:
    axis = value_axis([3.0, 3.0])
    assert axis.low < 3.0 < axis.high
    zero = value_axis([0.0])
    assert (zero.low, zero.high) == (-1.0, 1.0)


def test_a_fixed_range_is_kept_exactly() -> None:
    axis = value_axis([0.3], fixed=(0.0, 0.9))
    assert (axis.low, axis.high) == (0.0, 0.9)
    assert axis.ticks == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])


def test_a_step_axis_has_whole_ticks_and_ends_at_the_data() -> None:
    axis = step_axis([1.0, 2.0, 3.0])
    assert (axis.low, axis.high, axis.ticks) == (1.0, 3.0, (1.0, 2.0, 3.0))
    assert step_axis([0.0, 15.0]).ticks == (0.0, 5.0, 10.0, 15.0)
    assert step_axis([4.0]).ticks == (3.0, 4.0, 5.0)


def test_a_value_is_placed_by_its_share_of_the_range_and_never_outside() -> None:
    axis = value_axis([], fixed=(0.0, 10.0))
    assert axis.place(2.5, 100.0, 200.0) == 125.0
    assert axis.place(-5.0, 100.0, 200.0) == 100.0
    assert axis.place(99.0, 100.0, 200.0) == 200.0
    assert axis.place(2.5, 200.0, 100.0) == 175.0


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.1 + 0.2, 1, "0.3"),
        (-0.0, 1, "0.0"),
        (5000.0, 0, "5000"),
        (12_500.0, 0, "12.5k"),
        (3e6, 0, "3M"),
        (2e-6, 6, "2.0e-6"),
        (0.0, 6, "0"),
    ],
)
def test_a_tick_label_has_only_the_digits_it_needs(value: float, decimals: int, text: str) -> None:
    assert tick_label(value, decimals) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (11.3456, "", "11.35"),
        (28500.0, "", "28,500"),
        (1e-6, "", "1.00e-06"),
        (0.0, "", "0"),
        (51.44, "%", "51.4%"),
        (0.316, "%", "0.32%"),
        (0.0, "%", "0.0%"),
    ],
)
def test_a_number_for_people(value: float, unit: str, text: str) -> None:
    assert number_text(value, unit) == text


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_every_axis_has_few_ticks_inside_a_real_range(values: list[float]) -> None:
    for axis in (value_axis(values), step_axis(values)):
        assert math.isfinite(axis.low) and math.isfinite(axis.high) and axis.low < axis.high
        assert len(axis.ticks) <= 12
        room = 1e-5 * (axis.high - axis.low)
        assert all(axis.low - room <= tick <= axis.high + room for tick in axis.ticks)


def test_a_number_that_is_too_small_to_be_shown_is_0() -> None:
    assert clamp(5e-324) == 0.0
    assert clamp(-1e-250) == 0.0
    assert value_axis([0.0, 5e-324]) == value_axis([0.0, 0.0])
