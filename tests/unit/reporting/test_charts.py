from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.reporting.charts import PAPER, Point, Series, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def curve(*values: float | None, name: str = "curve") -> Series:
    return Series(name=name, points=tuple(Point(x=step, y=value) for step, value in enumerate(values, start=1)))


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.encode("utf-8"))


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in parsed(svg).iter(f"{SVG}text")]


def lines(svg: str, colour: str = PAPER.series[0]) -> list[str]:
    """The paths that are curves, by their stroke width."""
    groups = [group for group in parsed(svg).iter(f"{SVG}g") if group.get("stroke") == colour]
    return [path.get("d", "") for group in groups for path in group if path.get("stroke-width")]


def hints(svg: str) -> list[str]:
    return [title.text or "" for title in parsed(svg).iter(f"{SVG}title")]


def test_a_chart_has_its_title_its_labels_its_ticks_and_the_latest_value() -> None:
    svg = line_chart([curve(0.0, 1.0, 2.0)], "Reward", "mean", look=PAPER)
    assert texts(svg) == [
        "Reward", "mean", "curve 2", "0.0", "0.5", "1.0", "1.5", "2.0", "1", "2", "3", "step",
    ]  # fmt: skip


def test_points_stand_where_their_values_say() -> None:
    svg = line_chart([curve(0.0, 1.0, 2.0)], "t", "y", width=400, height=250, look=PAPER)
    left, right, top, bottom = 16 + 3 * 6.6, 384, 52, 210
    assert lines(svg) == [f"M{left:.1f} {bottom}L{(left + right) / 2:.1f} {(top + bottom) // 2}L{right} {top}"]


def test_missing_and_not_finite_values_are_gaps() -> None:
    svg = line_chart([curve(1.0, 2.0, None, 4.0, float("nan"), 5.0, 6.0, float("inf"))], "t", "y", look=PAPER)
    assert [path.count("L") for path in lines(svg)] == [1, 1]
    assert hints(svg) == ["curve, 1: 1", "curve, 2: 2", "curve, 4: 4", "curve, 6: 5", "curve, 7: 6"]


def test_one_point_is_a_dot_without_a_line() -> None:
    svg = line_chart([curve(3.0)], "t", "y", look=PAPER)
    assert lines(svg) == []
    assert hints(svg) == ["curve, 1: 3"]


@pytest.mark.parametrize("series", [[], [curve()], [curve(None, float("nan"))]])
def test_a_chart_without_values_says_so(series: list[Series]) -> None:
    svg = line_chart(series, "Reward", "mean")
    assert texts(svg) == ["Reward", "mean", "step", "no data yet"]
    assert parsed(svg).get("aria-label") == "Reward: no data yet"


def test_shares_are_drawn_as_percentages() -> None:
    svg = line_chart([curve(0.1, 0.514)], "t", "y", percent=True, look=PAPER)
    assert texts(svg)[2:7] == ["curve 51.4%", "0%", "20%", "40%", "60%"]
    assert hints(svg) == ["curve, 1: 10.0%", "curve, 2: 51.4%"]


def test_a_fixed_range_is_in_shares_where_the_values_are() -> None:
    svg = line_chart([curve(0.5)], "t", "y", y_range=(0.0, 1.0), percent=True, look=PAPER)
    assert texts(svg)[3:9] == ["0%", "20%", "40%", "60%", "80%", "100%"]


def test_error_bars_reach_from_low_to_high_and_the_axis_holds_them() -> None:
    points = (Point(x=0, y=0.5, low=0.0, high=1.0), Point(x=1, y=0.5))
    svg = line_chart([Series(name="a", points=points, interval="bars")], "t", "y", width=400, height=250, look=PAPER)
    bars = re.findall(r'd="(M[^"]+)" opacity="0.65"', svg)
    assert bars == ["M32.8 210h6M35.8 210V52M32.8 52h6"]
    assert hints(svg)[0] == "a, 0: 0.5 [0, 1]"


def test_the_bars_of_two_curves_do_not_hide_each_other() -> None:
    points = (Point(x=0, y=0.5, low=0.0, high=1.0), Point(x=1, y=0.5, low=0.0, high=1.0))
    two = [Series(name=name, points=points, interval="bars") for name in "ab"]
    circles = list(parsed(line_chart(two, "t", "y", look=PAPER)).iter(f"{SVG}circle"))
    assert float(circles[2].get("cx", "")) - float(circles[0].get("cx", "")) == pytest.approx(5.0, abs=0.11)


def test_a_band_is_one_closed_shape() -> None:
    points = tuple(Point(x=step, y=0.5, low=0.0, high=1.0) for step in range(3))
    svg = line_chart([Series(name="a", points=points, interval="band")], "t", "y", look=PAPER)
    (shape,) = re.findall(r'<path d="(M[^"]+Z)"[^>]+fill-opacity', svg)
    assert shape.count("L") == 5


def test_all_text_is_escaped() -> None:
    evil = '</text><script>alert("1")</script>\x00\ud800'
    svg = line_chart([curve(1.0, name=evil)], evil, evil, evil)
    assert "<script" not in svg
    shown = '</text><script>alert("1")</script>␀⟨U+D800⟩'
    assert texts(svg)[:3] == [shown, shown, f"{shown} 1"]


def test_a_page_chart_leaves_colours_to_the_page_and_a_picture_has_its_own() -> None:
    on_page = line_chart([curve(1.0, 2.0)], "t", "y")
    picture = line_chart([curve(1.0, 2.0)], "t", "y", look=PAPER)
    assert "var(--series-1" in on_page and "currentColor" in on_page and "<rect width" not in on_page
    assert "var(" not in picture and "currentColor" not in picture
    assert '<rect width="360" height="240" fill="#ffffff"/>' in picture
    assert (parsed(on_page).get("width"), parsed(picture).get("width")) == (None, "360")


def test_a_long_curve_keeps_its_line_and_thins_out_its_hints() -> None:
    svg = line_chart([curve(*range(1, 1001))], "t", "y", look=PAPER)
    assert lines(svg)[0].count("L") == 999
    shown = hints(svg)
    assert len(shown) <= 151
    assert (shown[0], shown[-1]) == ("curve, 1: 1", "curve, 1000: 1,000")


def test_a_legend_that_is_too_wide_takes_a_second_row() -> None:
    many = [curve(1.0, name=f"a rather long name {number}") for number in range(3)]
    rows = {
        text.get("y")
        for text in parsed(line_chart(many, "t", "y")).iter(f"{SVG}text")
        if "rather" in "".join(text.itertext())
    }
    assert rows == {"39", "57", "75"}


_VALUE = st.none() | st.floats()


@given(st.lists(st.tuples(st.floats(), _VALUE, _VALUE, _VALUE), max_size=6), st.sampled_from(["none", "band", "bars"]))
def test_any_numbers_make_a_drawing_inside_its_frame(rows: list[tuple[float, float, float, float]], kind: str) -> None:
    points = tuple(Point(x=x, y=y, low=low, high=high) for x, y, low, high in rows)
    svg = line_chart([Series(name="a", points=points, interval=kind)], "t", "y")  # type: ignore[arg-type]
    for circle in parsed(svg).iter(f"{SVG}circle"):
        assert 0 <= float(circle.get("cx", "nan")) <= 360
        assert 0 <= float(circle.get("cy", "nan")) <= 240
    assert "nan" not in svg.replace("tspan", "")
