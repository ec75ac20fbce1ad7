"""Axes of charts: round ticks, and numbers written for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LARGEST = 1e15  # beyond it a chart cannot tell numbers apart; larger ones are drawn at the edge
_SMALLEST = 1e-200


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range of values with round ticks inside it. `decimals` is how many the tick labels need."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def place(self, value: float, start: float, end: float) -> float:
        """Return where `value` lies between the pixels `start` and `end`; outside the range, at the nearer end."""
        share = (value - self.low) / (self.high - self.low)
        return start + (end - start) * min(1.0, max(0.0, share))


def clamp(value: float) -> float:
    """Return `value`; the largest number that a chart can show where it is beyond, and 0 where it is too small to be shown."""
    if abs(value) < _SMALLEST:
        return 0.0
    return min(_LARGEST, max(-_LARGEST, value))


def value_axis(values: Sequence[float], *, fixed: tuple[float, float] | None = None, wanted_ticks: int = 5) -> Axis:
    """Return an axis that holds all finite `values`, or exactly the range `fixed`.

    Values that are all positive, or all negative, get an axis that reaches 0 if 0 is not far away.
    """
    if fixed is not None:
        low, high = fixed
        step = round_step((high - low) / wanted_ticks)
        return _axis(low, high, step)
    low, high = (clamp(min(values)), clamp(max(values))) if values else (0.0, 1.0)
    if low > 0 and low < 0.5 * high:
        low = 0.0
    if high < 0 and high > 0.5 * low:
        high = 0.0
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    step = round_step((high - low) / wanted_ticks)
    return _axis(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)


def step_axis(values: Sequence[float], *, wanted_ticks: int = 6) -> Axis:
    """Return an axis over step numbers: it begins and ends at the data, with ticks at whole numbers."""
    low, high = (clamp(min(values)), clamp(max(values))) if values else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - 1.0, high + 1.0
    step = round_step((high - low) / wanted_ticks)
    if all(float(value).is_integer() for value in values):
        step = max(1.0, step)
    return _axis(low, high, step)


def round_step(about: float) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that is not below `about` (up to rounding)."""
    power = 10.0 ** math.floor(math.log10(about))
    for factor in (1.0, 2.0, 5.0):
        if about <= factor * power * (1 + 1e-9):
            return factor * power
    return 10.0 * power


def tick_label(value: float, decimals: int, unit: str = "") -> str:
    """Return a tick's text: only the digits that tell ticks apart, thousands as `12k`, millions as `3M`."""
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scale = 1e3 if suffix == "k" else limit
            return f"{value / scale:g}{suffix}{unit}"
    if decimals > 4:
        return f"{value:.1e}".replace("e-0", "e-") + unit if value else f"0{unit}"
    text = f"{value:.{decimals}f}"
    return (text[1:] if text.startswith("-") and not float(text) else text) + unit


def number_text(value: float, unit: str = "") -> str:
    """Return a number for a legend or a hint: four significant digits, thousands separated.

    With the unit `%` it has one decimal, or two below 1%.
    """
    size = abs(value)
    if unit == "%":
        return f"{value:.2f}%" if 0 < size < 1 else f"{value:.1f}%"
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def _axis(low: float, high: float, step: float) -> Axis:
    """Ticks are the multiples of `step` in the range; each is made by one multiplication, so errors do not add up."""
    begin, end = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return Axis(low=low, high=high, ticks=tuple(k * step for k in range(begin, end + 1)), decimals=decimals)
