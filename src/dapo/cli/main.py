"""`dapo`: the commands, and how their errors reach a person."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dapo import __version__
from dapo.cli import data, grade, report, sample, show, train
from dapo.cli import eval as eval_command
from dapo.errors import DapoError

app = typer.Typer(
    name="dapo",
    help="Train reasoning models with reinforcement learning: DAPO, GRPO and PPO on one code path.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"dapo {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of every command."""


app.command("train")(train.train)
app.command("eval")(eval_command.evaluate)
app.command("sample")(sample.sample)
app.command("show")(show.show)
app.command("grade")(grade.grade)
app.command("report")(report.report)
app.add_typer(data.app, name="data")


def run() -> None:
    """Entry point. Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 130 interrupted before a run began."""
    try:
        app()  # a wrong command line, --help and an interrupt end the process here, with the codes 2, 0 and 130
    except DapoError as error:
        print(f"dapo: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        print(
            f"dapo: {error.filename}: {error.strerror}. Check the path, its permissions and the space.", file=sys.stderr
        )
        sys.exit(2)
