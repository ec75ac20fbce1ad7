"""Line charts as SVG text: no dependency, no script, legible on light and dark pages and to the colour-blind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dapo.reporting.scales import Axis, clamp, number_text, step_axis, tick_label, value_axis
from dapo.reporting.text import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value at a step. `y` None (or not finite) is a gap; `low` and `high` are the ends of an interval, if known."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named curve. `interval` says how the points' intervals are drawn; `faint` puts the curve in the background."""

    name: str
    points: tuple[Point, ...]
    interval: Literal["none", "band", "bars"] = "none"
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colours of a chart, as CSS values. `background` None leaves the page's own."""

    series: tuple[str, ...]
    text: str
    muted: str
    grid: str
    background: str | None = None


# The colours of Okabe and Ito (2008), chosen to differ for every common form of colour blindness.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

PAGE = Look(
    series=tuple(f"var(--series-{number}, {colour})" for number, colour in enumerate(_COLOURS, start=1)),
    text="currentColor",
    muted="var(--muted, #667085)",
    grid="var(--grid, #88888840)",
)
"""For a page: CSS variables, so that the page's style decides, also in dark mode."""

PAPER = Look(series=_COLOURS, text="#1f2328", muted="#656d76", grid="#e4e7eb", background="#ffffff")
"""For a picture that stands alone: fixed colours on white."""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CHARACTER = 6.6  # width in pixels of a usual character at 12 px, for laying out the legend
_MOST_DOTS = 40  # beyond it dots run into each other: the line alone is drawn
_MOST_HINTS = 150  # a hint at every point of a long run would make the page heavy


def line_chart(
    series: Sequence[Series],
    title: str,
    y_label: str,
    x_label: str = "step",
    y_range: tuple[float, float] | None = None,
    width: int = 360,
    height: int = 240,
    *,
    percent: bool = False,
    look: Look = PAGE,
) -> str:
    """Return one `<svg>` element with the curves of `series`, a legend with their latest values, and axes.

    `percent` draws shares (0 to 1) as percentages; `y_range` is then in shares too. Hovering over a point shows its
    value. Values that are None or not finite are gaps; without any value the chart says so. All text is escaped.
    """
    unit = "%" if percent else ""
    factor = 100.0 if percent else 1.0
    curves = [_scaled(one, factor) for one in series]
    legend = _legend(curves, width, unit, look)
    frame = _frame(curves, width, height, y_range and (y_range[0] * factor, y_range[1] * factor), unit, legend.rows)
    size = f'width="{width}" height="{height}" ' if look.background is not None else ""  # a page sizes it by style
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {size}viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(_summary(title, curves, unit))}" font-family="{_FONT}" font-size="12" '
        f'fill="{look.text}">'
    ]
    if look.background is not None:
        parts.append(f'<rect width="{width}" height="{height}" fill="{look.background}"/>')
    parts.append(f'<text x="12" y="19" font-size="14" font-weight="600">{escape(title)}</text>')
    parts.append(
        f'<text x="{width - 12}" y="19" text-anchor="end" fill="{look.muted}" font-size="11">{escape(y_label)}</text>'
    )
    parts.append(legend.svg)
    parts.append(_axes(frame, x_label, unit, look))
    if frame.is_empty:
        middle = f'x="{_n((frame.left + frame.right) / 2)}" y="{_n((frame.top + frame.bottom) / 2)}"'
        parts.append(f'<text {middle} text-anchor="middle" fill="{look.muted}">no data yet</text>')
    for number, curve in enumerate(curves):
        parts.append(_curve(curve, frame, look.series[number % len(look.series)], unit, _shift(number, curves)))
    parts.append("</svg>")
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Legend:
    svg: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The plotting area in pixels, and its axes."""

    left: float
    right: float
    top: float
    bottom: float
    x: Axis
    y: Axis
    is_empty: bool

    def place(self, x: float, y: float) -> tuple[float, float]:
        return self.x.place(x, self.left, self.right), self.y.place(y, self.bottom, self.top)


def _scaled(series: Series, factor: float) -> Series:
    """Values times `factor`; whatever is not finite becomes None, so that nothing below has to ask again."""

    def scaled(value: float | None) -> float | None:
        return clamp(value * factor) if value is not None and math.isfinite(value) else None

    points = tuple(
        Point(x=clamp(point.x), y=scaled(point.y), low=scaled(point.low), high=scaled(point.high))
        for point in series.points
        if math.isfinite(point.x)
    )
    return Series(name=series.name, points=points, interval=series.interval, faint=series.faint)


def _frame(
    curves: Sequence[Series], width: int, height: int, y_range: tuple[float, float] | None, unit: str, legend_rows: int
) -> _Frame:
    shown = [point for curve in curves for point in curve.points if point.y is not None]
    with_interval = [point for curve in curves if curve.interval != "none" for point in curve.points]
    values = [point.y for point in shown if point.y is not None]
    values += [end for point in with_interval for end in (point.low, point.high) if end is not None]
    if not shown and y_range is None:
        y_range = (0.0, 1.0)
    y = value_axis(values, fixed=y_range)
    longest = max(len(tick_label(tick, y.decimals, unit)) for tick in y.ticks) if y.ticks else 1
    return _Frame(
        left=16 + longest * _CHARACTER,
        right=width - 16,
        top=34 + 18 * legend_rows,
        bottom=height - 40,
        x=step_axis([point.x for point in shown]),
        y=y,
        is_empty=not shown,
    )


def _legend(curves: Sequence[Series], width: int, unit: str, look: Look) -> _Legend:
    """A swatch, the name and the latest value of each curve that has one, wrapped to the width."""
    parts: list[str] = []
    x, row = 12.0, 0
    for number, curve in enumerate(curves):
        latest = next((point.y for point in reversed(curve.points) if point.y is not None), None)
        if latest is None:
            continue
        value = number_text(latest, unit)
        needed = 18 + (len(curve.name) + len(value) + 1) * _CHARACTER + 14
        if x > 12 and x + needed > width:
            x, row = 12.0, row + 1
        y = 39 + 18 * row
        colour = look.series[number % len(look.series)]
        parts.append(
            f'<rect x="{_n(x)}" y="{y - 6}" width="12" height="4" rx="2" fill="{colour}"/>'
            f'<text x="{_n(x + 17)}" y="{y}"><tspan fill="{look.muted}">{escape(curve.name)}</tspan> {value}</text>'
        )
        x += needed
    return _Legend(svg="".join(parts), rows=row + 1 if parts else 0)


def _axes(frame: _Frame, x_label: str, unit: str, look: Look) -> str:
    parts = [f'<g fill="{look.muted}" font-size="11">']
    for tick in () if frame.is_empty else frame.y.ticks:
        y = frame.y.place(tick, frame.bottom, frame.top)
        parts.append(f'<path d="M{_n(frame.left)} {_n(y)}H{_n(frame.right)}" stroke="{look.grid}"/>')
        label = tick_label(tick, frame.y.decimals, unit)
        parts.append(f'<text x="{_n(frame.left - 6)}" y="{_n(y + 4)}" text-anchor="end">{label}</text>')
    parts.append(f'<path d="M{_n(frame.left)} {_n(frame.bottom)}H{_n(frame.right)}" stroke="{look.muted}"/>')
    for tick in () if frame.is_empty else frame.x.ticks:
        x = frame.x.place(tick, frame.left, frame.right)
        parts.append(f'<path d="M{_n(x)} {_n(frame.bottom)}v4" stroke="{look.muted}"/>')
        label = tick_label(tick, frame.x.decimals)
        parts.append(f'<text x="{_n(x)}" y="{_n(frame.bottom + 17)}" text-anchor="middle">{label}</text>')
    middle = (frame.left + frame.right) / 2
    parts.append(f'<text x="{_n(middle)}" y="{_n(frame.bottom + 33)}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append("</g>")
    return "".join(parts)


def _shift(number: int, curves: Sequence[Series]) -> float:
    """Pixels by which a curve with error bars moves sideways, so that bars of several curves do not hide each other."""
    with_bars = [index for index, curve in enumerate(curves) if curve.interval == "bars"]
    return 5.0 * (with_bars.index(number) - (len(with_bars) - 1) / 2) if number in with_bars else 0.0


def _curve(curve: Series, frame: _Frame, colour: str, unit: str, shift: float) -> str:
    opacity, thickness = ("0.45", "1.5") if curve.faint else ("1", "2")
    parts = [f'<g stroke="{colour}" fill="none" stroke-linejoin="round" stroke-linecap="round">']
    if curve.interval == "band":
        parts.extend(_band(run, frame, colour) for run in _runs(curve.points))
    if curve.interval == "bars":
        parts.extend(_bar(point, frame, shift) for point in curve.points)
    for run in _runs(curve.points):
        places = [frame.place(point.x, point.y) for point in run if point.y is not None]
        path = "L".join(f"{_n(x + shift)} {_n(y)}" for x, y in places)
        if len(places) > 1:
            parts.append(f'<path d="M{path}" stroke-width="{thickness}" opacity="{opacity}"/>')
    parts.append("</g>")
    parts.append(_dots(curve, frame, colour, unit, shift))
    return "".join(parts)


def _runs(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the stretches of points without a gap."""
    run: list[Point] = []
    for point in points:
        if point.y is not None:
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _band(run: Sequence[Point], frame: _Frame, colour: str) -> str:
    upper = [frame.place(point.x, point.high) for point in run if point.high is not None and point.low is not None]
    lower = [frame.place(point.x, point.low) for point in run if point.high is not None and point.low is not None]
    if len(upper) < 2:
        return ""
    outline = "L".join(f"{_n(x)} {_n(y)}" for x, y in [*upper, *reversed(lower)])
    return f'<path d="M{outline}Z" fill="{colour}" fill-opacity="0.15" stroke="none"/>'


def _bar(point: Point, frame: _Frame, shift: float) -> str:
    if point.y is None or point.low is None or point.high is None:
        return ""
    x, low = frame.place(point.x, point.low)
    high = frame.place(point.x, point.high)[1]
    left, middle = _n(x + shift - 3), _n(x + shift)
    return f'<path d="M{left} {_n(low)}h6M{middle} {_n(low)}V{_n(high)}M{left} {_n(high)}h6" opacity="0.65"/>'


def _dots(curve: Series, frame: _Frame, colour: str, unit: str, shift: float) -> str:
    """Circles that carry the hints. They are visible where they are few, and where a point has no neighbour."""
    points = [point for point in curve.points if point.y is not None]
    lonely = {id(run[0]) for run in _runs(curve.points) if len(run) == 1}
    few = len(points) <= _MOST_DOTS
    stride = max(1, math.ceil(len(points) / _MOST_HINTS))
    radius = 2 if curve.faint else 2.8
    parts = [f'<g fill="{colour}" stroke="transparent" stroke-width="9">']
    for index, point in enumerate(points):
        is_last = index == len(points) - 1
        if point.y is None or not (is_last or index % stride == 0 or id(point) in lonely):
            continue
        x, y = frame.place(point.x, point.y)
        hint = f"{curve.name}, {point.x:g}: {number_text(point.y, unit)}"
        if point.low is not None and point.high is not None:
            hint += f" [{number_text(point.low, unit)}, {number_text(point.high, unit)}]"
        hidden = "" if few or is_last or id(point) in lonely else ' fill="transparent"'
        parts.append(
            f'<circle cx="{_n(x + shift)}" cy="{_n(y)}" r="{radius}"{hidden}><title>{escape(hint)}</title></circle>'
        )
    parts.append("</g>")
    return "".join(parts)


def _summary(title: str, curves: Sequence[Series], unit: str) -> str:
    """The chart in words, for those who hear the page."""
    latest = [
        f"{curve.name} {number_text(values[-1], unit)}"
        for curve in curves
        if (values := [point.y for point in curve.points if point.y is not None])
    ]
    return f"{title}: {', '.join(latest) if latest else 'no data yet'}"


def _n(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")
