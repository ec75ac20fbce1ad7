"""`dapo`: the commands, and how their errors reach a person."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dapo import __version__
from dapo.cli import data, grade, report, sample, show, train
from dapo.cli import eval as eval_command
from dapo.cli.streams import finish_output, output_has_failed, take_streams
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
    take_streams()
    code = _run()
    sys.exit(code if finish_output() or code else 1)


def _run() -> int | str | None:
    """Run the command; return the exit code."""
    try:
        app()
    except SystemExit as ended:  # so end all commands, a wrong command line, --help and an interrupt
        return ended.code
    except DapoError as error:
        print(f"dapo: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.filename is not None:
            print(
                f"dapo: {error.filename}: {error.strerror}. Check the path, its permissions and the space.",
                file=sys.stderr,
            )
            return 2
        if not output_has_failed():
            raise
        return 1
    return 0
