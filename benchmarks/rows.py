"""What a benchmark comes to: a row of docs/benchmarks.json. Pure: numbers in, rows out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

T = TypeVar("T")

Ratio = Literal["peer/product", "product/peer"]

FIELDS = ("name", "product", "peer", "ratio", "unit", "runs")
"""What every row has; `spread`, `meaning`, `peer_name`, `notes`, `details`, `machine` and `date` come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A comparison: one number a run for each side.

    `ratio` says how they are divided: seconds as peer/product and rates as product/peer, so that above 1 is better for the
    product; or it is the ratio itself, where it comes from pairs that are not at hand, as many as `runs` says.
    """

    name: str
    meaning: str
    peer_name: str
    unit: str
    product: Sequence[float]
    peer: Sequence[float]
    ratio: Ratio | float
    runs: int | None = None
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def to_row(measured: Measured, *, machine: Mapping[str, Any], date: str) -> dict[str, Any]:
    """The row: medians, their ratio, and the smallest and largest number of each side."""
    product, peer = statistics.median(measured.product), statistics.median(measured.peer)
    ratio = measured.ratio
    if isinstance(ratio, str):
        ratio = product / peer if ratio == "product/peer" else peer / product
    return {
        "name": measured.name,
        "product": significant(product),
        "peer": significant(peer),
        "ratio": significant(ratio),
        "unit": measured.unit,
        "runs": len(measured.product) if measured.runs is None else measured.runs,
        "spread": {
            "product": [significant(min(measured.product)), significant(max(measured.product))],
            "peer": [significant(min(measured.peer)), significant(max(measured.peer))],
        },
        "meaning": measured.meaning,
        "peer_name": measured.peer_name,
        "notes": list(measured.notes),
        "details": dict(measured.details),
        "machine": dict(machine),
        "date": date,
    }


def significant(value: float, digits: int = 4) -> float:
    """A number to four significant digits: what is measured here is not known better.

    >>> significant(51.23456), significant(0.0123456), significant(123456.0)
    (51.23, 0.01235, 123500.0)
    """
    return float(f"{value:.{digits}g}")


def merge_rows(
    before: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], order: Sequence[str]
) -> list[dict[str, Any]]:
    """Replace rows by newer ones of the same name; rows in the order of `order`, others behind them."""
    rows = {row["name"]: dict(row) for row in [*before, *new]}
    place = {name: number for number, name in enumerate(order)}
    return sorted(rows.values(), key=lambda row: (place.get(row["name"], len(place)), row["name"]))


def steady(values: Sequence[T], warmup: int) -> list[T]:
    """The values after the first `warmup`, which pay for what is made once."""
    if len(values) <= warmup:
        raise ValueError(f"{len(values)} steps leave nothing after {warmup} to warm up")
    return list(values[warmup:])


def first_window(values: Sequence[float], window: int, target: float) -> int | None:
    """How many values it took until the mean of the last `window` reached `target`; None where it never did.

    >>> first_window([0.1, 0.5, 0.7, 0.9], window=2, target=0.6)
    3
    """
    for end in range(window, len(values) + 1):
        if sum(values[end - window : end]) / window >= target:
            return end
    return None
