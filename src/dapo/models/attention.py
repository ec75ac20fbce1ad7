"""Attention by plan: the caller of a model says how its tokens attend, and keeps keys and values itself.

transformers lets a model's attention be replaced by a named function. Ours hands the fresh queries, keys and values of a
layer to a plan, which came in with the call to `forward`. The engine's plans write to its own cache and share a group's
prompt; the trainer's plans let the replies of a group share their prompt's positions.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from dapo.errors import ModelError

_NAME = "dapo_planned"
PLAN = "attention_plan"
"""The name under which a plan is handed to `model.forward`."""


class AttentionPlan(Protocol):
    """Says how the N tokens of a flat row attend. Letters: H query heads, K key-value heads, N tokens, D head width."""

    def attend(self, layer: int, query_HND: Tensor, key_KND: Tensor, value_KND: Tensor, scaling: float) -> Tensor:
        """Return the attention's output [N, H, D]; keys and queries have their positions applied."""
        ...


class UnsupportedAttentionError(ModelError):
    """The model's attention does more than a plan can do (a sliding window, capped scores, sinks)."""


def _planned(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **settings: Any,
) -> tuple[Tensor, None]:
    plan: AttentionPlan | None = settings.get(PLAN)
    special = [name for name in ("sliding_window", "softcap", "s_aux") if settings.get(name) is not None]
    if plan is None or special or dropout:
        raise UnsupportedAttentionError(
            f"{type(module).__name__} asks for {special or 'attention without a plan'}, which planned attention does not do."
        )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    output = plan.attend(int(module.layer_idx), query[0], key[0], value[0], scale)  # type: ignore[arg-type]
    return output.unsqueeze(0), None


def use_planned_attention(model: PreTrainedModel) -> None:
    """Switch a model to planned attention. Raises UnsupportedAttentionError where its code has no such switch."""
    AttentionInterface.register(_NAME, _planned)
    if not model._can_set_attn_implementation():
        raise UnsupportedAttentionError(f"{type(model).__name__} has attention of its own that cannot be replaced.")
    model.set_attn_implementation(_NAME)
    if model.config._attn_implementation != _NAME:
        raise UnsupportedAttentionError(
            f"{type(model).__name__} kept its attention {model.config._attn_implementation}."
        )
