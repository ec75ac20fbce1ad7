"""`dapo eval`: measure a model on held-out problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dapo.cli.options import AsJson, Overrides, describe_accuracy, print_json
from dapo.config import load_config


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A run folder, a model folder, a Hub id, or package:NAME. Default: the recipe's model.",
            metavar="[MODEL_OR_RUN]",
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Take task and sampling from this recipe; default: the run's own.")
    ] = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Measure held-out accuracy, with a 95% interval over problems."""
    from dapo.inference import config_for_evaluation

    config = config_for_evaluation(model, recipe, override or [], load_config)
    from dapo.inference import evaluate_policy

    line = evaluate_policy(config)
    if as_json:
        print_json(line)
        return
    print(f"accuracy   {describe_accuracy(line)}")
    print(f"majority   {line['maj']:.1%}")
    print("pass@k     " + "  ".join(f"{k}: {value:.1%}" for k, value in line["pass_at"].items()))
    print(f"truncated  {line['truncated']:.1%}, mean length {line['length_mean']:.1f} tokens")
