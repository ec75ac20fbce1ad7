"""The report of a run: one HTML file that needs no network and no script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from dapo.files import write_atomically
from dapo.metrics import METRICS
from dapo.reporting.charts import Series, line_chart
from dapo.reporting.figures import SECTIONS, advice, draw, shown_figures
from dapo.reporting.pictures import compare_picture, curve_picture
from dapo.reporting.record import RunRecord, describe, number, read_run
from dapo.reporting.replies import group_html, shown_groups
from dapo.reporting.scales import number_text
from dapo.reporting.text import duration, escape

__all__ = ["compare_picture", "curve_picture", "report_html", "write_report"]

# Nothing may be loaded or run, whatever a model wrote: escaping is the first wall, this is the second.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(run_folder: Path, *, replies: int = 8) -> Path:
    """Write `report.html` into `run_folder` and return its path; a reader never meets a half-written file.

    `replies` is how many replies are shown of each group. Parts of the folder may be missing or end in the middle.
    Raises DataError if the folder does not exist or a file is broken elsewhere than at its end.
    """
    page = report_html(read_run(run_folder), replies=replies)
    path = run_folder / "report.html"
    write_atomically(path, page.encode())
    return path


def report_html(record: RunRecord, *, replies: int = 8) -> str:
    """Return the page. The same record gives the same page, byte for byte."""
    style = resources.files("dapo.reporting").joinpath("report.css").read_text(encoding="utf-8")
    body = "".join(
        (
            _head(record),
            _tiles(record),
            _charts(record),
            _evaluations(record),
            _replies(record, replies),
            _last_numbers(record),
            _settings(record),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{escape(record.name)}: training report</title>'
        f"<style>\n{style}</style></head>\n<body>{body}</body></html>\n"
    )


def _head(record: RunRecord) -> str:
    named = [(part.title(), describe(record.config, part)) for part in ("algorithm", "model", "task")]
    facts = "".join(f"<span>{label} <b>{escape(value)}</b></span>" for label, value in named if value)
    return f'<p class="kind">Training report</p><h1>{escape(record.name)}</h1><div class="facts">{facts}</div>'


def _tiles(record: RunRecord) -> str:
    tiles = [_accuracy_tile(record), _tile("Steps", f"{len(record.steps):,}", _last_step(record))]
    seconds = record.total("time/step")
    evaluating = sum(number(line.get("seconds")) or 0.0 for line in record.evaluations)
    if seconds:
        below = f"and {duration(evaluating)} of evaluation" if evaluating else "without evaluation"
        tiles.append(_tile("Time of training", duration(seconds), below))
    generated, trained = record.total("sampling/tokens_generated"), record.total("tokens/trained")
    if generated:
        tiles.append(_tile("Tokens generated", _short(generated), f"{trained / generated:.0%} of them trained on"))
    groups, kept = record.total("sampling/groups_generated"), record.total("sampling/groups_kept")
    if groups:
        tiles.append(_tile("Groups kept", f"{kept / groups:.0%}", f"{kept:,.0f} of {groups:,.0f} generated"))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _accuracy_tile(record: RunRecord) -> str:
    """Held-out accuracy before and after, or the training accuracy where nothing was held out."""
    if record.data_names:
        data = record.data_names[0]
        label = f"Held-out accuracy on {data}"
        points = [point for point in record.accuracy(data) if point.y is not None]
    else:
        label = "Training accuracy, before the filter"
        points = [point for point in record.values("reward/accuracy_all") if point.y is not None]
    if not points:
        return _tile("Accuracy", "no data yet", "", kind="first")
    ends = [(points[0], "before"), (points[-1], "after")] if len(points) > 1 else [(points[0], "")]
    value = " <span>→</span> ".join(_percent(point.y) for point, _ in ends)
    intervals = [
        f"{_interval(point.low, point.high)} {when}".strip()
        for point, when in ends
        if point.low is not None and point.high is not None
    ]
    below = f"95% interval: {', '.join(intervals)}" if intervals else f"steps {points[0].x:g} to {points[-1].x:g}"
    return _tile(label, value, below, kind="first")


def _tile(label: str, value_html: str, below: str, *, kind: str = "") -> str:
    return (
        f'<div class="tile {kind}"><div class="label">{escape(label)}</div>'
        f'<div class="value">{value_html}</div><div class="below">{escape(below)}</div></div>'
    )


def _last_step(record: RunRecord) -> str:
    updates = number(record.steps[-1].get("optim/updates")) if record.steps else None
    return f"{updates:,.0f} optimizer updates" if updates is not None else ""


def _short(value: float) -> str:
    for limit, name in ((1e9, "billion"), (1e6, "million")):
        if value >= limit:
            return f"{value / limit:.1f} {name}"
    return f"{value:,.0f}"


def _charts(record: RunRecord) -> str:
    parts = []
    for section in SECTIONS:
        cards = [_card(draw(figure, record), advice(figure)) for figure in shown_figures(section, record)]
        if section is SECTIONS[0]:
            held_out = [Series(name=name, points=record.accuracy(name), interval="bars") for name in record.data_names]
            chart = line_chart(held_out, "Held-out accuracy", "95% interval", percent=True)
            cards.insert(0, _card(chart, "The curve that counts: problems that are never trained on."))
        parts.append(f'<h2>{escape(section.question)}</h2><div class="charts">{"".join(cards)}</div>')
    return "".join(parts)


def _card(chart: str, hint: str) -> str:
    """A chart and what to know about it: the first sentence, and the rest when it is asked for."""
    first, _, rest = hint.partition(". ")
    caption = f"<details><summary>{escape(first)}.</summary>{escape(rest)}</details>" if rest else escape(first)
    return f'<figure class="card">{chart}<figcaption>{caption}</figcaption></figure>'


def _evaluations(record: RunRecord) -> str:
    if not record.evaluations:
        return ""
    head = "".join(
        f'<th class="number">{name}</th>'
        for name in ("accuracy", "95% interval", "pass@k", "majority", "truncated", "tokens", "problems", "samples")
    )
    rows = "".join(_evaluation_row(line) for line in record.evaluations)
    return (
        '<h2>Evaluations</h2><div class="scroll"><table><thead><tr><th class="number">step</th><th>data</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _evaluation_row(line: Mapping[str, Any]) -> str:
    cells = (
        _percent(line.get("avg")),
        _interval(number(line.get("ci_low")), number(line.get("ci_high"))),
        _pass_at(line.get("pass_at")),
        _percent(line.get("maj")),
        _percent(line.get("truncated")),
        _count(line.get("length_mean")),
        _count(line.get("problems")),
        _count(line.get("samples")),
    )
    numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
    step = _count(line.get("step"))
    return f'<tr><td class="number">{step}</td><td>{escape(str(line.get("data", "")))}</td>{numbers}</tr>'


def _pass_at(value: object) -> str:
    """The entry with the largest k, e.g. `64.1% at 8`."""
    if not isinstance(value, Mapping):
        return _percent(value)
    by_k = {int(k): value[k] for k in value if str(k).isdecimal()}
    return f"{_percent(by_k[max(by_k)])} at {max(by_k)}" if by_k else ""


def _percent(value: object) -> str:
    share = number(value)
    return "" if share is None else f"{100 * share:.1f}%"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}%"


def _count(value: object) -> str:
    count = number(value)
    return "" if count is None else number_text(count)


def _replies(record: RunRecord, most: int) -> str:
    if most <= 0:
        return ""
    groups = [group_html(step, group, most) for step, group in shown_groups(record)]
    shown = "".join(groups) or '<p class="nothing">No replies yet.</p>'
    return f"<h2>Replies from the first, the middle and the last step</h2>{shown}"


def _last_numbers(record: RunRecord) -> str:
    if not record.steps:
        return ""
    line = record.steps[-1]
    known = [name for name in METRICS if name in line]
    names = [*known, *sorted(name for name in line if name not in METRICS and name != "step")]
    rows = "".join(
        f'<tr><td><code>{escape(name)}</code></td><td class="number">{_count(line[name]) or "none"}</td>'
        f"<td>{escape(METRICS[name].meaning.replace('`', '')) if name in METRICS else ''}</td></tr>"
        for name in names
    )
    return (
        f'<h2>More</h2><details class="more"><summary>All numbers of step {_count(line["step"])}</summary>'
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></details>'
    )


def _settings(record: RunRecord) -> str:
    if not record.config:
        return ""
    text = json.dumps(record.config, indent=2, ensure_ascii=False)
    return f'<details class="more"><summary>Settings (config.json)</summary><pre>\n{escape(text)}</pre></details>'
