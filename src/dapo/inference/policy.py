"""Opens a policy from a run or a model, and asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dapo.models.config import ModelConfig
from dapo.models.source import check_source
from dapo.storage.run_folder import find_policy
from dapo.types import Message, Problem, Rollout, Sampling

if TYPE_CHECKING:
    from dapo.models.render import Renderer
    from dapo.ports import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A model that is ready to answer."""

    name: str
    renderer: Renderer
    engine: Engine


def open_policy(model: str, *, precision: str = "auto") -> Policy:
    """Open a policy by the name of a run folder, a model folder, a Hub id or `package:NAME`. Raises RequestError."""
    from dapo.engines.config import NativeConfig

    config = ModelConfig(path=find_policy(model))
    check_source(config)
    from dapo.models.load import open_renderer

    renderer = open_renderer(config)
    return Policy(
        name=config.path,
        renderer=renderer,
        engine=NativeConfig.model_validate({"precision": precision}).build(config, renderer),
    )


def sample_replies(policy: Policy, question: str, n: int, sampling: Sampling, seed: int) -> Sequence[Rollout]:
    """Draw `n` replies to a question put as a user's message."""
    problem = Problem(id="question", messages=(Message(role="user", content=question),), answer="")
    prompt = policy.renderer.prompt(problem)
    return asyncio.run(policy.engine.sample(prompt, n, sampling, seed)).rollouts
