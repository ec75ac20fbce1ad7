"""Pictures that stand alone, for a README or an article: SVG with fixed colours on white."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dapo.errors import RequestError
from dapo.reporting.charts import PAPER, Series, line_chart
from dapo.reporting.record import RunRecord, read_run

_TRAINING = "reward/accuracy_all"
_WIDTH, _HEIGHT = 720, 360
_PANEL_WIDTH = 440


def curve_picture(run_folder: Path) -> str:
    """Return held-out accuracy with its 95% interval, and training accuracy before the filter, as one SVG picture.

    Raises DataError if the folder does not exist or a file is broken elsewhere than at its end.
    """
    record = read_run(run_folder)
    series = [
        Series(name=f"held out: {name}", points=record.accuracy(name), interval="bars") for name in record.data_names
    ]
    series.append(Series(name="training, before the filter", points=record.values(_TRAINING), faint=True))
    title = f"Accuracy of {record.name}"
    return line_chart(series, title, "bars: 95% interval", width=_WIDTH, height=_HEIGHT, percent=True, look=PAPER)


def compare_picture(run_folders: Sequence[Path], labels: Sequence[str]) -> str:
    """Return the curves of several runs beside each other: held-out accuracy, and training accuracy before the filter.

    Held-out accuracy is of the first data that the first run with an evaluation was judged by; a panel for which no
    run has data is left out. Raises RequestError if there are not as many labels as folders, or no folder.
    """
    if not run_folders or len(run_folders) != len(labels):
        raise RequestError(
            f"{len(run_folders)} run folders and {len(labels)} labels; give at least one folder and a label for each"
        )
    records = [read_run(folder) for folder in run_folders]
    data = next((record.data_names[0] for record in records if record.data_names), None)
    panels = []
    if data is not None:
        held_out = [
            Series(name=label, points=record.accuracy(data), interval="bars")
            for record, label in zip(records, labels, strict=True)
        ]
        panels.append((f"Held-out accuracy on {data}", "bars: 95% interval", held_out))
    if data is None or any(record.has(_TRAINING) for record in records):
        panels.append(("Training accuracy", "before the filter", _training(records, labels)))
    charts = [
        line_chart(series, title, note, width=_PANEL_WIDTH, height=_HEIGHT, percent=True, look=PAPER)
        for title, note, series in panels
    ]
    return _side_by_side(charts)


def _training(records: Sequence[RunRecord], labels: Sequence[str]) -> list[Series]:
    return [Series(name=label, points=record.values(_TRAINING)) for record, label in zip(records, labels, strict=True)]


def _side_by_side(charts: Sequence[str]) -> str:
    width = _PANEL_WIDTH * len(charts)
    placed = [f'<g transform="translate({_PANEL_WIDTH * place} 0)">{chart}</g>' for place, chart in enumerate(charts)]
    size = f'width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(placed)}</svg>'
