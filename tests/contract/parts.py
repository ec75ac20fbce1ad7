"""What both contract suites put together: prompts, engines by name, rollouts as a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from dapo.batching import pack
from dapo.engines.config import HFConfig, NativeConfig
from dapo.models.config import ModelConfig
from dapo.models.load import load_model, open_renderer
from dapo.models.render import Renderer
from dapo.ports import Engine
from dapo.types import (
    Batch,
    Message,
    Problem,
    Prompt,
    RolloutGroup,
    Score,
    ScoredGroup,
    ScoredRollout,
)

T = TypeVar("T")

ENGINES = {
    "hf": HFConfig(precision="float32"),
    "native": NativeConfig(precision="float32"),
}
"""Every engine that draws from real weights, by name, in float32. A new engine is one more line."""

QUESTIONS = ("What is 1 + 1?", "Hi", "Count from 1 to 20, and then say why you did so.", "7 * 8 = ?")
"""Questions of different lengths."""


def model_config(folder: Path) -> ModelConfig:
    return ModelConfig(path=str(folder), device="cpu")


def renderer_of(folder: Path) -> Renderer:
    return open_renderer(model_config(folder))


def prompts_of(renderer: Renderer, questions: Sequence[str] = QUESTIONS) -> list[Prompt]:
    return [
        renderer.prompt(Problem(id=f"problem-{number}", messages=(Message(role="user", content=question),), answer="2"))
        for number, question in enumerate(questions)
    ]


def open_engine(name: str, folder: Path, renderer: Renderer, *, max_rows: int = 128) -> Engine:
    config = ENGINES[name].model_copy(update={"max_rows": max_rows})
    return config.build(model_config(folder), renderer)


def with_engine(engine: Engine, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Do `work` with an engine in a loop of its own, and close the engine."""

    async def main() -> T:
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a folder, as a trainer publishes them."""
    return {
        name: tensor.clone() for name, tensor in load_model(model_config(folder), torch.float32).state_dict().items()
    }


def pack_groups(groups: Sequence[RolloutGroup]) -> Batch:
    """Rollouts as a batch; every second reply is right."""
    return pack(
        [
            ScoredGroup(
                prompt=group.prompt,
                rollouts=tuple(
                    ScoredRollout(
                        rollout=rollout,
                        score=Score(correct=index % 2 == 0, reward=1.0 if index % 2 == 0 else -1.0),
                        parts={"correctness": 1.0 if index % 2 == 0 else -1.0},
                    )
                    for index, rollout in enumerate(group.rollouts)
                ),
            )
            for group in groups
        ]
    )
