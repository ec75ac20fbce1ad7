"""Measures a policy as a recipe says: on the task's held-out problems."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dapo.config import RunConfig, parse_config
from dapo.errors import RequestError
from dapo.models.source import check_source
from dapo.sampling_plan import evaluation_sampling, held_out_problems
from dapo.seeds import derive_seed
from dapo.storage.run_folder import BESIDE, find_policy


def config_for_evaluation(
    model: str | None, recipe: Path | None, overrides: Sequence[str], load: Callable[[Path, Sequence[str]], RunConfig]
) -> RunConfig:
    """The recipe to evaluate by: the one named, or the run's own; its model replaced by the one named."""
    if recipe is not None:
        config = load(recipe, overrides)
    elif model is not None and (Path(model) / "config.json").is_file() and (Path(model) / "checkpoints").is_dir():
        content = _read_config(Path(model) / "config.json")
        for name in BESIDE:
            content.pop(name, None)
        if overrides:
            from dapo.config import apply_overrides

            apply_overrides(content, overrides)
        config = parse_config(content, what=f"{model}/config.json")
    else:
        raise RequestError(
            f"What should {model or 'the model'} be measured on? Name a recipe with --recipe, whose held-out problems and "
            "[evaluation] settings are used, or a run folder that has its own."
        )
    if model is None:
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"path": find_policy(model)})})


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RequestError(f"{path} is not the config of a run: {error}. Name a recipe with --recipe.") from error


def evaluate_policy(config: RunConfig) -> dict[str, Any]:
    """Measure the recipe's model on the task's held-out problems; returns a line like those of `eval.jsonl`."""
    config.task.check()
    check_source(config.model)
    from dapo.evaluation import evaluate
    from dapo.models.load import open_renderer

    task = config.task.build(config.seed)
    problems = held_out_problems(config, task)
    renderer = open_renderer(config.model)
    engine = config.engine.build(config.model, renderer)
    result = asyncio.run(
        evaluate(
            problems,
            renderer.prompt,
            engine,
            task,
            sampling=evaluation_sampling(config),
            samples=config.evaluation.samples,
            seed=derive_seed(config.seed, "evaluation", 0),
            scoring_seconds=config.batch.scoring_seconds,
        )
    )
    return result.summary(_step_of(config.model.path), config.task.type)


def _step_of(model: str) -> int:
    """The step of a run's checkpoint; 0 for any other model."""
    found = re.search(r"step-(\d+)$", model)
    return int(found[1]) if found else 0
