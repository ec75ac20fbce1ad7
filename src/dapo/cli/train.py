"""`dapo train`: train by a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from dapo.cli.options import AsJson, Overrides, Recipe, describe_accuracy, print_json
from dapo.cli.streams import spare_standard_output
from dapo.config import load_config
from dapo.resume import refuse_nested
from dapo.signals import ends_at_once
from dapo.storage.run_folder import default_run_folder


def train(
    recipe: Recipe,
    override: Overrides = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The run folder. Default: runs/ and the recipe's name.", metavar="DIR")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the run folder.")] = False,
    fork: Annotated[
        Path | None,
        typer.Option("--fork", help="Begin a new run from the newest checkpoint of the run in DIR.", metavar="DIR"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe, and measure it on held-out problems before and after."""
    spare_standard_output()  # a run is not lost because nobody reads what it prints
    config = load_config(recipe, override or [])
    folder = run if run is not None else default_run_folder(recipe, resume=resume)
    if fork is not None:
        refuse_nested(fork, folder)
    with ends_at_once():
        from dapo.run import Result, train_run

        result: Result = train_run(config, folder, resume=resume, fork_of=fork)
    if as_json:
        print_json(_as_json(result))
        return
    words = {
        "finished": "Training is finished",
        "solved": "The task is solved: nearly every reply is right, and no group is left to learn from",
        "data_ended": "The training data has ended",
        "stopped": "Stopped on request; go on with --resume",
    }
    print(f"{words[result.outcome.ending]}: {result.outcome.steps} steps, {result.seconds / 60:.1f} minutes.")
    if result.before is not None:
        print(f"  accuracy before  {describe_accuracy(result.before)}")
    if result.after is not None:
        print(f"  accuracy after   {describe_accuracy(result.after)}")
    print(f"  trained model    {result.policy or 'none was saved: no step was completed'}")
    print(f"  report           {result.report}")
    if result.policy is not None:
        print(f'  talk to it       dapo sample {shlex.quote(str(result.folder))} "your question"')


def _as_json(result: Any) -> dict[str, Any]:
    return {
        "ending": str(result.outcome.ending),
        "steps": result.outcome.steps,
        "seconds": round(result.seconds, 3),
        "before": result.before,
        "after": result.after,
        "run": str(result.folder),
        "policy": str(result.policy) if result.policy else None,
        "report": str(result.report),
    }
