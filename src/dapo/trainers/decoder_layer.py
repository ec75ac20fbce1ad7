"""One decoder layer with a gradient written by hand. Letters: N tokens, E hidden width, F feed-forward width, H query heads,
K key-value heads, A = H + 2 K, D head width.

Autograd would keep every intermediate tensor and walk through dozens of small steps a layer; this keeps what the gradient
needs and makes the rest again where that is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from dapo.maths.decoder import (
    gated,
    gated_gradients,
    rms_norm,
    rms_norm_again,
    rms_norm_gradients,
    rotate,
)
from dapo.models.decoder import DecoderLayer
from dapo.trainers.packed_attention import PackedAttention


class LayerWeights(NamedTuple):
    """A layer's parameters, in the order in which the function below takes them; None where the model has none."""

    attention_norm: Tensor
    query: Tensor
    query_bias: Tensor | None
    key: Tensor
    key_bias: Tensor | None
    value: Tensor
    value_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    feed_forward_norm: Tensor
    gate: Tensor
    gate_bias: Tensor | None
    up: Tensor
    up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


def layer_weights(layer: DecoderLayer) -> LayerWeights:
    """The live parameters of a layer."""

    def norm(module: Any) -> Any:
        return None if module is None else module.weight

    return LayerWeights(
        attention_norm=norm(layer.attention_norm),
        query=layer.query.weight,
        query_bias=layer.query.bias,
        key=layer.key.weight,
        key_bias=layer.key.bias,
        value=layer.value.weight,
        value_bias=layer.value.bias,
        query_norm=norm(layer.query_norm),
        key_norm=norm(layer.key_norm),
        output=layer.output.weight,
        output_bias=layer.output.bias,
        feed_forward_norm=norm(layer.feed_forward_norm),
        gate=layer.gate.weight,
        gate_bias=layer.gate.bias,
        up=layer.up.weight,
        up_bias=layer.up.bias,
        down=layer.down.weight,
        down_bias=layer.down.bias,
    )


@dataclass(frozen=True, slots=True)
class LayerSetting:
    """What a layer needs beside weights: how tokens attend, the turn of each position, the norms' epsilon.

    cosine_N1D, sine_N1D: of each token's position. `keeps_all`: keep what the gradient needs; else only the layer's input, and
    run the layer again in the backward pass (activation checkpointing).
    """

    attention: PackedAttention
    cosine_N1D: Tensor
    sine_N1D: Tensor
    epsilon: float
    keeps_all: bool


class _Kept(NamedTuple):
    """What one pass through a layer leaves for its gradient."""

    attention_root: Tensor
    plain_NAD: Tensor | None
    """Queries, keys and values before their own norms, where they have any."""
    query_root: Tensor | None
    key_root: Tensor | None
    joint_NAD: Tensor
    output_NHD: Tensor
    normaliser_NH: Tensor
    middle_NE: Tensor
    feed_forward_root: Tensor
    gate_NF: Tensor
    up_NF: Tensor


def run_layer(hidden_NE: Tensor, setting: LayerSetting, weights: LayerWeights) -> Tensor:
    """The layer's output [N, E], differentiable in `hidden_NE` and in every weight."""
    output: Tensor = _Layer.apply(hidden_NE, setting, *weights)  # type: ignore[no-untyped-call]
    return output


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden_NE: Tensor, setting: LayerSetting, *parameters: Tensor | None) -> Tensor:
        weights = LayerWeights(*parameters)  # type: ignore[arg-type]
        output_NE, kept = _forward(hidden_NE, setting, weights)
        context.setting = setting
        context.save_for_backward(hidden_NE, *parameters, *(kept if setting.keeps_all else ()))
        return output_NE

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = context.saved_tensors
        setting: LayerSetting = context.setting
        count = 1 + len(LayerWeights._fields)
        hidden_NE, weights = saved[0], LayerWeights(*saved[1:count])
        kept = _Kept(*saved[count:]) if setting.keeps_all else _forward(hidden_NE, setting, weights)[1]
        by_hidden, by_weight = _backward(gradients[0], hidden_NE, setting, weights, kept)
        return by_hidden, None, *by_weight


def _forward(hidden_NE: Tensor, setting: LayerSetting, weights: LayerWeights) -> tuple[Tensor, _Kept]:
    attention, tokens = setting.attention, hidden_NE.shape[0]
    normed_NE, attention_root = rms_norm(hidden_NE, weights.attention_norm, setting.epsilon)
    joint = torch.cat(
        [
            linear(normed_NE, weights.query, weights.query_bias),
            linear(normed_NE, weights.key, weights.key_bias),
            linear(normed_NE, weights.value, weights.value_bias),
        ],
        dim=1,
    )
    joint_NAD = joint.view(tokens, attention.heads + 2 * attention.kv_heads, -1)
    queries = slice(0, attention.heads)
    keys = slice(attention.heads, attention.heads + attention.kv_heads)
    plain_NAD = query_root = key_root = None
    if weights.query_norm is not None and weights.key_norm is not None:
        plain_NAD, joint_NAD = joint_NAD, joint_NAD.clone()
        joint_NAD[:, queries], query_root = rms_norm(plain_NAD[:, queries], weights.query_norm, setting.epsilon)
        joint_NAD[:, keys], key_root = rms_norm(plain_NAD[:, keys], weights.key_norm, setting.epsilon)
    turned = joint_NAD[:, : keys.stop]
    turned.copy_(rotate(turned, setting.cosine_N1D, setting.sine_N1D))
    output_NHD, normaliser_NH = attention.forward(joint_NAD)
    middle_NE = linear(output_NHD.view(tokens, -1), weights.output, weights.output_bias).add_(hidden_NE)
    narrow_NE, feed_forward_root = rms_norm(middle_NE, weights.feed_forward_norm, setting.epsilon)
    gate_NF = linear(narrow_NE, weights.gate, weights.gate_bias)
    up_NF = linear(narrow_NE, weights.up, weights.up_bias)
    final_NE = linear(gated(gate_NF, up_NF), weights.down, weights.down_bias).add_(middle_NE)
    return final_NE, _Kept(
        attention_root=attention_root,
        plain_NAD=plain_NAD,
        query_root=query_root,
        key_root=key_root,
        joint_NAD=joint_NAD,
        output_NHD=output_NHD,
        normaliser_NH=normaliser_NH,
        middle_NE=middle_NE,
        feed_forward_root=feed_forward_root,
        gate_NF=gate_NF,
        up_NF=up_NF,
    )


def _backward(
    gradient_NE: Tensor, hidden_NE: Tensor, setting: LayerSetting, weights: LayerWeights, kept: _Kept
) -> tuple[Tensor, LayerWeights]:
    tokens = hidden_NE.shape[0]
    by_middle, feed_forward = _feed_forward_gradients(gradient_NE, weights, kept)
    output_NO = kept.output_NHD.view(tokens, -1)
    by_output, output, output_bias = _linear_gradients(by_middle, output_NO, weights.output, weights.output_bias)
    by_joint = setting.attention.backward(
        by_output.view_as(kept.output_NHD), kept.joint_NAD, kept.output_NHD, kept.normaliser_NH
    )
    by_joint, query_norm, key_norm = _before_turn(by_joint, setting, weights, kept)
    normed_NE = rms_norm_again(hidden_NE, weights.attention_norm, kept.attention_root)
    heads, kv_heads = setting.attention.heads, setting.attention.kv_heads
    by_query, by_key, by_value = (part.flatten(1) for part in torch.split(by_joint, [heads, kv_heads, kv_heads], dim=1))
    by_normed, query, query_bias = _linear_gradients(by_query, normed_NE, weights.query, weights.query_bias)
    from_key, key, key_bias = _linear_gradients(by_key, normed_NE, weights.key, weights.key_bias)
    from_value, value, value_bias = _linear_gradients(by_value, normed_NE, weights.value, weights.value_bias)
    by_normed.add_(from_key).add_(from_value)
    by_hidden, attention_norm = rms_norm_gradients(by_normed, hidden_NE, weights.attention_norm, kept.attention_root)
    return by_hidden.add_(by_middle), feed_forward._replace(
        attention_norm=attention_norm,
        query=query,
        query_bias=query_bias,
        key=key,
        key_bias=key_bias,
        value=value,
        value_bias=value_bias,
        query_norm=query_norm,
        key_norm=key_norm,
        output=output,
        output_bias=output_bias,
    )


def _feed_forward_gradients(gradient_NE: Tensor, weights: LayerWeights, kept: _Kept) -> tuple[Tensor, LayerWeights]:
    """The gradient by the middle of the layer, and those of the feed-forward weights."""
    opened_NF = silu(kept.gate_NF)
    inner_NF = opened_NF * kept.up_NF
    by_inner, down, down_bias = _linear_gradients(gradient_NE, inner_NF, weights.down, weights.down_bias)
    by_gate, by_up = gated_gradients(by_inner, kept.gate_NF, kept.up_NF, opened_NF)
    narrow_NE = rms_norm_again(kept.middle_NE, weights.feed_forward_norm, kept.feed_forward_root)
    by_narrow, gate, gate_bias = _linear_gradients(by_gate, narrow_NE, weights.gate, weights.gate_bias)
    from_up, up, up_bias = _linear_gradients(by_up, narrow_NE, weights.up, weights.up_bias)
    by_middle, norm = rms_norm_gradients(
        by_narrow.add_(from_up), kept.middle_NE, weights.feed_forward_norm, kept.feed_forward_root
    )
    found = LayerWeights(*(None,) * len(LayerWeights._fields))  # type: ignore[arg-type]
    return by_middle.add_(gradient_NE), found._replace(
        feed_forward_norm=norm,
        gate=gate,
        gate_bias=gate_bias,
        up=up,
        up_bias=up_bias,
        down=down,
        down_bias=down_bias,
    )


def _before_turn(
    by_joint_NAD: Tensor, setting: LayerSetting, weights: LayerWeights, kept: _Kept
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Undo the turn of queries and keys, then their norms: the gradient by the projections, and by the norms' weights."""
    heads = setting.attention.heads
    both = heads + setting.attention.kv_heads
    turned = by_joint_NAD[:, :both]
    turned.copy_(rotate(turned, setting.cosine_N1D, -setting.sine_N1D))
    if kept.plain_NAD is None or weights.query_norm is None or weights.key_norm is None:
        return by_joint_NAD, None, None
    assert kept.query_root is not None and kept.key_root is not None
    by_query, query_norm = rms_norm_gradients(
        by_joint_NAD[:, :heads], kept.plain_NAD[:, :heads], weights.query_norm, kept.query_root
    )
    by_key, key_norm = rms_norm_gradients(
        by_joint_NAD[:, heads:both], kept.plain_NAD[:, heads:both], weights.key_norm, kept.key_root
    )
    return torch.cat([by_query, by_key, by_joint_NAD[:, both:]], dim=1), query_norm, key_norm


def _linear_gradients(
    gradient_NO: Tensor, input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients by input, weight and bias of a linear map."""
    by_bias = None if bias_O is None else gradient_NO.sum(dim=0)
    return gradient_NO @ weight_OI, gradient_NO.t() @ input_NI, by_bias
