"""Arguments and options that several commands share, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Recipe = Annotated[Path, typer.Argument(help="A recipe, e.g. recipes/quickstart.toml.", metavar="RECIPE")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--override", help="Set a field of the recipe, e.g. -o algorithm.clip_high=0.3.", metavar="KEY=VALUE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def print_json(value: Any) -> None:
    """Print a result for a program."""
    print(json.dumps(value, indent=2, allow_nan=False))


def describe_accuracy(line: Mapping[str, Any]) -> str:
    """An evaluation in a few words."""
    return (
        f"{line['avg']:.1%} (95% interval {line['ci_low']:.1%} to {line['ci_high']:.1%}; "
        f"{line['problems']} problems x {line['samples']})"
    )
