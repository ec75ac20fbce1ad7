"""The fastest way through a model that gives the model's own result."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.engines.hf import HFEngine
from dapo.engines.limits import positions_of
from dapo.engines.native.engine import NativeEngine
from dapo.engines.native.forward import Forward, FusedForward, ModelForward
from dapo.engines.native.runner import Runner
from dapo.models.attention import UnsupportedAttentionError, use_planned_attention
from dapo.models.render import Renderer


def native_or_hf(model: PreTrainedModel, renderer: Renderer, *, max_rows: int) -> NativeEngine | HFEngine:
    """The native engine with fused steps, else through the model's own code; else engine `hf`, with a warning.

    Each is tried on a short prompt, and never used where its result is another.
    """
    usual = str(model.config._attn_implementation)
    expected = _own_logits(model)
    positions = positions_of(model)
    fused, _ = _tried(lambda: FusedForward(model), expected)
    if isinstance(fused, FusedForward):
        fused.release()
        return NativeEngine(fused, renderer, max_rows=max_rows, positions=positions)
    planned, reason = _tried(lambda: _planned(model), expected)
    if planned is not None:
        return NativeEngine(planned, renderer, max_rows=max_rows, positions=positions)
    model.set_attn_implementation(usual)
    warnings.warn(
        f"{type(model).__name__} is sampled by engine hf, which is slower: {reason}.", RuntimeWarning, stacklevel=2
    )
    return HFEngine(model, renderer, max_rows=max_rows)


_PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)


def _prompt(vocabulary: int) -> list[int]:
    return [token % vocabulary for token in _PROMPT]


@torch.no_grad()
def _own_logits(model: PreTrainedModel) -> Tensor:
    """What follows a short prompt by the model's own forward, [V] float32."""
    prompt = _prompt(_vocabulary(model))
    output = model(input_ids=torch.tensor([prompt], device=model.device), use_cache=False)
    logits: Tensor = output.logits[0, -1].float()
    return logits


def _planned(model: PreTrainedModel) -> ModelForward:
    use_planned_attention(model)
    return ModelForward(model)


def _tried(make: Callable[[], Forward], expected_V: Tensor) -> tuple[Forward | None, str]:
    """Make a forward and compare its logits with those expected; None, with the reason, where it cannot serve."""
    try:
        forward = make()
        runner = Runner(forward, max_rows=1)
        runner.read_prompts([_prompt(expected_V.shape[0])])
        found_V = runner.first_logits(0).float()
    except (UnsupportedAttentionError, TypeError, AttributeError, RuntimeError) as error:
        return None, str(error)
    gap = float((found_V - expected_V).norm() / expected_V.norm())
    if gap <= (1e-4 if forward.dtype == torch.float32 else 0.05):
        return forward, ""
    return None, f"its logits under planned attention differ by {gap:.1%} from its own"


def _vocabulary(model: PreTrainedModel) -> int:
    return int(model.get_output_embeddings().weight.shape[0])  # type: ignore[no-untyped-call]
