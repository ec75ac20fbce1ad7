from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dapo.engines.hf import HFEngine
from dapo.engines.native.engine import NativeEngine
from dapo.engines.native.forward import FusedForward, ModelForward
from dapo.engines.pick import native_or_hf
from dapo.models.config import ModelConfig
from dapo.models.load import load_model, open_renderer

Tiny = Callable[..., Path]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_model_whose_attention_can_be_planned_gets_the_native_engine(
    tiny: Tiny, kind: str, dtype: torch.dtype
) -> None:
    config = ModelConfig(path=str(tiny(kind=kind)), device="cpu")

    engine = native_or_hf(load_model(config, dtype), open_renderer(config), max_rows=4)

    assert type(engine) is NativeEngine
    assert type(engine._forward) is FusedForward  # and not the slower way, which serves too
    assert engine.precision == str(dtype).removeprefix("torch.")


def test_another_model_gets_transformers_generation_with_its_own_attention_and_a_warning(tiny: Tiny) -> None:
    config = ModelConfig(path=str(tiny(kind="gemma2")), device="cpu")
    model = load_model(config, torch.float32)
    usual = model.config._attn_implementation

    with pytest.warns(RuntimeWarning, match=r"Gemma2ForCausalLM is sampled by engine hf.*sliding_window"):
        engine = native_or_hf(model, open_renderer(config), max_rows=4)

    assert type(engine) is HFEngine
    assert model.config._attn_implementation == usual


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_llama_with_another_activation_is_sampled_through_its_own_code(dtype: torch.dtype, tiny: Tiny) -> None:
    config = ModelConfig(path=str(tiny()), device="cpu")
    model = load_model(config, dtype)
    model.config.hidden_act = "gelu"
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.GELU()

    engine = native_or_hf(model, open_renderer(config), max_rows=4)

    assert type(engine) is NativeEngine
    assert type(engine._forward) is ModelForward


def test_fused_steps_that_give_another_result_are_not_used(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(path=str(tiny()), device="cpu")
    normed = FusedForward._normed
    monkeypatch.setattr(FusedForward, "_normed", lambda *arguments: normed(*arguments) * 1.001)

    engine = native_or_hf(load_model(config, torch.float32), open_renderer(config), max_rows=4)

    assert type(engine) is NativeEngine
    assert type(engine._forward) is ModelForward
