"""The native engine where it gives the model's own result, and transformers' generation elsewhere."""

from __future__ import annotations

import warnings

import torch
from transformers import PreTrainedModel

from dapo.engines.hf import HFEngine
from dapo.engines.native.engine import NativeEngine
from dapo.engines.native.runner import Runner
from dapo.models.attention import UnsupportedAttentionError, use_planned_attention
from dapo.models.render import Renderer


def native_or_hf(model: PreTrainedModel, renderer: Renderer, *, max_rows: int) -> NativeEngine | HFEngine:
    """Try planned attention on a short prompt; never a wrong result: where it differs, engine `hf` serves, with a warning."""
    usual = str(model.config._attn_implementation)
    vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    prompt = [place % vocabulary for place in (3, 1, 4, 1, 5)]
    try:
        with torch.no_grad():
            expected = (
                model(input_ids=torch.tensor([prompt], device=model.device), use_cache=False).logits[0, -1].float()
            )
            use_planned_attention(model)
            runner = Runner(model, max_rows=1)
            runner.read_prompts([prompt])
            found = runner.first_logits(0).float()
        gap = float((found - expected).norm() / expected.norm())
        if gap <= (1e-4 if model.dtype == torch.float32 else 0.05):
            return NativeEngine(model, renderer, max_rows=max_rows)
        reason = f"its logits under planned attention differ by {gap:.1%} from its own"
    except (UnsupportedAttentionError, TypeError, AttributeError) as error:
        reason = str(error)
    model.set_attn_implementation(usual)
    warnings.warn(
        f"{type(model).__name__} is sampled by engine hf, which is slower: {reason}.", RuntimeWarning, stacklevel=2
    )
    return HFEngine(model, renderer, max_rows=max_rows)
