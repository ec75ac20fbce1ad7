"""Whatever goes wrong inside an engine, nobody waits for an answer that never comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from dapo.engines.hf import HFEngine
from dapo.engines.native.engine import NativeEngine
from dapo.engines.native.forward import ModelForward
from dapo.errors import EngineError
from dapo.models.attention import use_planned_attention
from dapo.models.config import ModelConfig
from dapo.models.load import load_model, open_renderer
from dapo.models.render import Renderer
from dapo.types import Message, Problem, RolloutGroup, Sampling

Tiny = Callable[..., Path]


FAULTS = (RuntimeError("out of memory"), TypeError("odd"), OverflowError("large"))


def hf_engine(model: PreTrainedModel, renderer: Renderer) -> HFEngine:
    return HFEngine(model, renderer, max_rows=128)


def native_engine(model: PreTrainedModel, renderer: Renderer) -> NativeEngine:
    use_planned_attention(model)
    return NativeEngine(ModelForward(model), renderer, max_rows=128)


@pytest.mark.parametrize("make", [hf_engine, native_engine])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_model_is_an_engine_error_for_all_who_wait_and_the_engine_goes_on(
    tiny: Tiny, make: Callable[[PreTrainedModel, Renderer], HFEngine | NativeEngine], fault: Exception
) -> None:
    config = ModelConfig(path=str(tiny()), device="cpu")
    renderer = open_renderer(config)
    model = load_model(config, torch.float32)
    engine = make(model, renderer)
    prompt = renderer.prompt(Problem(id="one", messages=(Message(role="user", content="1 + 1?"),), answer="2"))

    def fail(module: torch.nn.Module, arguments: object) -> None:
        raise fault

    failing = model.register_forward_pre_hook(fail)
    sampling = Sampling(max_tokens=4)

    async def work() -> RolloutGroup:
        asked = [engine.sample(prompt, 1, sampling, seed) for seed in range(3)]
        outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=2)
        for outcome in outcomes:
            assert isinstance(outcome, EngineError)
            assert str(outcome) == f"Generation failed: {type(fault).__name__}: {fault}"
            assert outcome.__cause__ is fault
        failing.remove()
        return await engine.sample(prompt, 1, sampling, 1)

    assert len(asyncio.run(work()).rollouts) == 1


@pytest.mark.parametrize("make", [hf_engine, native_engine])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_that_are_not_finite_are_told_in_words(
    tiny: Tiny, make: Callable[[PreTrainedModel, Renderer], HFEngine | NativeEngine], temperature: float
) -> None:
    config = ModelConfig(path=str(tiny()), device="cpu")
    renderer = open_renderer(config)
    model = load_model(config, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    prompt = renderer.prompt(Problem(id="one", messages=(Message(role="user", content="1 + 1?"),), answer="2"))
    with pytest.raises(EngineError, match=r"the logits are not finite \(NaN or infinity\) in 2 of 2 rows"):
        asyncio.run(make(model, renderer).sample(prompt, 2, Sampling(max_tokens=4, temperature=temperature), 1))
