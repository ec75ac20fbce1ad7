"""The parts of a Llama-like decoder, read out of a model of transformers so that others can run it in their own way.

Consumes: a model. Produces: its modules by role, or the reason why it is not of this family. The engine fuses them for
generation and the trainer for its passes; both check their result against the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from dapo.models.attention import UnsupportedAttentionError

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
"""Model types whose layer is: norm, attention with rotary positions, residual, norm, gated feed-forward, residual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """One layer's modules by role. `query_norm` and `key_norm` are of one head's width; None where there are none."""

    attention_norm: nn.Module
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    query_norm: nn.Module | None
    key_norm: nn.Module | None
    output: nn.Linear
    feed_forward_norm: nn.Module
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear
    scaling: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A whole decoder. D hidden width, H query heads, K key-value heads, `width` of one head."""

    embedding: nn.Embedding
    rotary: nn.Module
    layers: tuple[DecoderLayer, ...]
    norm: nn.Module
    head: nn.Linear
    heads: int
    kv_heads: int
    width: int


def read_decoder(model: PreTrainedModel) -> Decoder:
    """Read a model's parts. Raises UnsupportedAttentionError with the reason where it is of another make."""
    config = model.config.get_text_config()
    if config.model_type not in FAMILIES:
        raise _refusal(model, f"its type {config.model_type!r} is none of {', '.join(FAMILIES)}")
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        raise _refusal(model, "some of its layers attend through a window")
    if config.model_type == "mistral" and getattr(config, "sliding_window", None) is not None:
        raise _refusal(model, "it attends through a sliding window")
    if config.hidden_act != "silu":
        raise _refusal(model, f"its activation {config.hidden_act!r} is not silu")
    body: Any = model.base_model
    layers = tuple(_read_layer(layer) for layer in body.layers)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear = [getattr(layer, name) for layer in layers for name in _LINEAR] + [head]
    if any(type(module) is not nn.Linear for module in linear):
        raise _refusal(model, "some of its matrix products are not plain nn.Linear (adapters, quantisation)")
    if head.bias is not None:
        raise _refusal(model, "its head has a bias")
    width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    return Decoder(
        embedding=body.embed_tokens,
        rotary=body.rotary_emb,
        layers=layers,
        norm=body.norm,
        head=head,
        heads=int(config.num_attention_heads),
        kv_heads=int(config.num_key_value_heads),
        width=width,
    )


_LINEAR: Sequence[str] = ("query", "key", "value", "output", "gate", "up", "down")


def _read_layer(layer: Any) -> DecoderLayer:
    attention, feed_forward = layer.self_attn, layer.mlp
    return DecoderLayer(
        attention_norm=layer.input_layernorm,
        query=attention.q_proj,
        key=attention.k_proj,
        value=attention.v_proj,
        query_norm=getattr(attention, "q_norm", None),
        key_norm=getattr(attention, "k_norm", None),
        output=attention.o_proj,
        feed_forward_norm=layer.post_attention_layernorm,
        gate=feed_forward.gate_proj,
        up=feed_forward.up_proj,
        down=feed_forward.down_proj,
        scaling=float(attention.scaling),
    )


def _refusal(model: PreTrainedModel, reason: str) -> UnsupportedAttentionError:
    return UnsupportedAttentionError(f"{type(model).__name__} is not read as a Llama-like decoder: {reason}.")
