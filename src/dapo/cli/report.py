"""`dapo report`: the report of a run, and pictures of one or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dapo.cli.options import AsJson, print_json
from dapo.errors import RequestError
from dapo.files import write_atomically


def report(
    runs: Annotated[list[Path], typer.Argument(help="One run folder, or several to compare.", metavar="RUN...")],
    picture: Annotated[
        Path | None,
        typer.Option(help="Write the accuracy curves as an SVG picture to this file instead.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report.html anew; or, with --picture, one picture of the accuracy of one or several runs."""
    for run in runs:
        if not (run / "config.json").is_file():
            raise RequestError(f"{run} is not a run folder: it holds no config.json. Name one that `dapo train` made.")
    from dapo.reporting.html import compare_picture, curve_picture, write_report

    if picture is None:
        written = [write_report(run) for run in runs]
    else:
        svg = curve_picture(runs[0]) if len(runs) == 1 else compare_picture(runs, [run.name for run in runs])
        write_atomically(picture, svg.encode())
        written = [picture]
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        print(path)
