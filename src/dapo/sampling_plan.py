"""What a recipe says about drawing: the sampling of training and of evaluation, and the problems that are measured."""

from __future__ import annotations

from collections.abc import Sequence

from dapo.config import RunConfig
from dapo.errors import ConfigError
from dapo.ports import Task
from dapo.types import Problem, Sampling


def order_seed(config: RunConfig) -> int:
    """The seed of the order of training prompts: the task's `data_seed` where it has one, so that it fixes which prompts a
    run sees and when; else the run's."""
    data_seed = getattr(config.task, "data_seed", None)
    return config.seed if data_seed is None else int(data_seed)


def training_sampling(config: RunConfig) -> Sampling:
    """How training replies are drawn: from the policy itself, at the temperature of the ratio."""
    return Sampling(temperature=config.batch.temperature, max_tokens=config.batch.max_tokens)


def evaluation_sampling(config: RunConfig) -> Sampling:
    """How held-out replies are drawn."""
    settings = config.evaluation
    return Sampling(
        temperature=settings.temperature,
        max_tokens=settings.max_tokens or config.batch.max_tokens,
        top_p=settings.top_p,
        top_k=settings.top_k,
        min_p=settings.min_p,
    )


def held_out_problems(config: RunConfig, task: Task) -> Sequence[Problem]:
    """The problems to measure on. Raises ConfigError if the task has none."""
    problems = task.held_out_problems()
    if len(problems) == 0:
        raise ConfigError(
            "evaluation.enabled = true and the task has no held-out problems. Give it some (e.g. task.held_out), or set "
            "evaluation.enabled = false."
        )
    count = config.evaluation.problems
    return problems[:count] if count else problems
