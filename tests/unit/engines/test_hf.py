from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import torch

from dapo.engines.hf import HFEngine
from dapo.models.config import ModelConfig
from dapo.models.load import load_model, open_renderer
from dapo.types import Message, Problem, Prompt, RolloutGroup, Sampling, Weights

Tiny = Callable[..., Path]


def opened(folder: Path, *, max_rows: int = 128) -> tuple[HFEngine, torch.nn.Module, Prompt]:
    config = ModelConfig(path=str(folder), device="cpu")
    renderer = open_renderer(config)
    model = load_model(config, torch.float32)
    prompt = renderer.prompt(Problem(id="one", messages=(Message(role="user", content="1 + 1?"),), answer="2"))
    return HFEngine(model, renderer, max_rows=max_rows), model, prompt


def with_a_buffer(model: torch.nn.Module, value: float) -> None:
    """Scale the model's logits by a buffer that is saved with its weights."""
    model.register_buffer("logit_scale", torch.tensor(value))
    model.lm_head.register_forward_hook(lambda module, arguments, output: output * model.logit_scale)  # type: ignore[union-attr]


def test_buffers_are_loaded_with_the_parameters(tiny: Tiny) -> None:
    engine, model, prompt = opened(tiny())
    with_a_buffer(model, 1.0)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights["logit_scale"] = torch.tensor(0.5)
    sampling = Sampling(max_tokens=12)

    async def work() -> tuple[RolloutGroup, RolloutGroup]:
        before = await engine.sample(prompt, 4, sampling, 1)
        await engine.load(Weights(policy_version=1, source=weights))
        after = await engine.sample(prompt, 4, sampling, 1)
        await engine.close()
        return before, after

    before, after = asyncio.run(work())

    # Half the logits is twice the temperature.
    hot, _, _ = opened(tiny())
    expected = asyncio.run(hot.sample(prompt, 4, Sampling(max_tokens=12, temperature=2.0), 1))
    assert [r.token_ids for r in after.rollouts] == [r.token_ids for r in expected.rollouts]
    assert [r.token_ids for r in after.rollouts] != [r.token_ids for r in before.rollouts]


def test_requests_of_one_breath_share_a_batch_up_to_the_rows(tiny: Tiny) -> None:
    engine, model, prompt = opened(tiny(), max_rows=5)
    rows: list[int] = []
    model.register_forward_pre_hook(
        lambda module, arguments, keywords: rows.append(keywords["input_ids"].shape[0]), with_kwargs=True
    )

    async def work() -> None:
        await asyncio.gather(*(engine.sample(prompt, n, Sampling(max_tokens=1), 1) for n in (2, 3, 4, 1, 2)))

    asyncio.run(work())

    assert rows == [5, 5, 2]
