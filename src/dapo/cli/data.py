"""`dapo data`: what is wrong with a data set, and mending it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dapo.cli.options import AsJson
from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.findings import Kind
from dapo.types import Problem

app = typer.Typer(help="Check and clean data sets.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(help="A .jsonl, .json or .parquet file, a folder of them, or a Hub id.", metavar="FILE")
]
Evaluation = Annotated[
    list[str] | None,
    typer.Option("--evaluation", help="An evaluation file: problems that stand in it are named.", metavar="FILE"),
]
MaxPromptTokens = Annotated[int | None, typer.Option(min=1, help="Name prompts over this many tokens (needs --model).")]
Model = Annotated[str | None, typer.Option(help="Measure prompts with this model's tokenizer and template.")]
Keep = Annotated[list[Kind] | None, typer.Option("--keep", help="Keep rows with this kind of finding.")]
Drop = Annotated[list[Kind] | None, typer.Option("--drop", help="Drop rows with this kind of finding.")]


@app.command()
def check(
    source: Source,
    evaluation: Evaluation = None,
    max_prompt_tokens: MaxPromptTokens = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a data set. Changes nothing."""
    from dapo.data.check import run_check

    report = run_check(
        SourceConfig(path=source),
        _options(evaluation, max_prompt_tokens, None, None),
        count_tokens=_counter(max_prompt_tokens, model),
    )
    print(report.to_json() if as_json else report.to_text())


@app.command()
def clean(
    source: Source,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the clean set goes: .jsonl or .parquet.")],
    evaluation: Evaluation = None,
    max_prompt_tokens: MaxPromptTokens = None,
    model: Model = None,
    keep: Keep = None,
    drop: Drop = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Mend what can be mended without guessing, drop the rest, and report every row that was touched."""
    from dapo.data.clean import run_clean

    summary = run_clean(
        SourceConfig(path=source),
        out,
        _options(evaluation, max_prompt_tokens, keep, drop),
        count_tokens=_counter(max_prompt_tokens, model),
        overwrite=overwrite,
    )
    print(summary.to_json() if as_json else summary.to_text())


def _options(
    evaluation: list[str] | None, max_prompt_tokens: int | None, keep: list[Kind] | None, drop: list[Kind] | None
) -> CheckConfig:
    given = {
        "evaluation": tuple(evaluation or ()),
        "max_prompt_tokens": max_prompt_tokens,
        "keep": tuple(keep or ()),
        "drop": tuple(drop or ()),
    }
    return CheckConfig.model_validate({name: value for name, value in given.items() if value})


def _counter(max_prompt_tokens: int | None, model: str | None) -> Callable[[Problem], int] | None:
    """Count tokens with the tokenizer and template that training would use. Raises ConfigError without a model."""
    if max_prompt_tokens is None:
        return None
    from dapo.errors import ConfigError

    if model is None:
        raise ConfigError(
            "--max-prompt-tokens counts tokens, and no --model says whose. Name the model that is to be trained."
        )
    from dapo.models.config import ModelConfig
    from dapo.models.load import open_renderer
    from dapo.models.source import check_source

    config = ModelConfig(path=model)
    check_source(config)
    renderer = open_renderer(config)
    return lambda problem: len(renderer.prompt(problem).token_ids)
