"""Gradients of attention, given its output and log-normaliser. Letters: B any batch, H query heads, K key-value heads,
G = H / K query heads of one key-value head, Q queries, S keys, D head width, C = B * K.

The probabilities are made again from the normaliser, a block of queries at a time, so that the scores which exist at once
stay below a bound and within the processor's cache. The gradient of a part of the keys needs the output and the normaliser
of the whole attention: with these its probabilities are those of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SCORE_LIMIT = 1 << 20
"""Attention scores that exist at a time in a gradient: 4 MB in float32."""


class AttentionGradients(NamedTuple):
    """By query, key and value, each in the shape of what it belongs to."""

    query: Tensor
    key: Tensor
    value: Tensor


def attention_gradients(
    gradient_BHQD: Tensor,
    query_BHQD: Tensor,
    key_BKSD: Tensor,
    value_BKSD: Tensor,
    output_BHQD: Tensor,
    normaliser_BHQ: Tensor,
    scaling: float,
    *,
    causal: bool,
    prefix: int = 0,
    key_bias_BS: Tensor | None = None,
) -> AttentionGradients:
    """Gradients of attention to these keys; see `fused_attention` for `causal` and `key_bias_BS`.

    The first `prefix` keys are seen by every query, also where attention to the others is causal.
    """
    batch, heads, queries, depth = query_BHQD.shape
    kv_heads = key_BKSD.shape[1]
    per_head = heads // kv_heads
    wide = torch.promote_types(query_BHQD.dtype, torch.float32)

    def folded(tensor: Tensor) -> Tensor:
        """[B, H, Q, ...] -> [C, Q * G, ...]: the queries of one place stand side by side."""
        split = tensor.reshape(batch, kv_heads, per_head, queries, *tensor.shape[3:])
        return split.transpose(2, 3).reshape(batch * kv_heads, queries * per_head, *tensor.shape[3:])

    gradient, query, output = folded(gradient_BHQD), folded(query_BHQD) * scaling, folded(output_BHQD)
    bias_C1S = None if key_bias_BS is None else key_bias_BS.repeat_interleave(kv_heads, dim=0).unsqueeze(1)
    found = _in_blocks(
        _Parts(
            gradient_CRD=gradient,
            query_CRD=query,
            key_CSD=key_BKSD.reshape(batch * kv_heads, -1, depth),
            value_CSD=value_BKSD.reshape(batch * kv_heads, -1, depth),
            rest_CR1=(gradient * output).sum(dim=2, keepdim=True, dtype=wide),
            normaliser_CR1=folded(normaliser_BHQ).unsqueeze(2),
            bias_C1S=bias_C1S,
        ),
        per_place=per_head,
        prefix=prefix if causal else key_BKSD.shape[2],
    )
    by_query = found.query.mul_(scaling).view(batch, kv_heads, queries, per_head, depth).transpose(2, 3)
    return AttentionGradients(
        by_query.reshape(query_BHQD.shape),
        found.key.to(key_BKSD.dtype).view(key_BKSD.shape),
        found.value.to(value_BKSD.dtype).view(value_BKSD.shape),
    )


class _Parts(NamedTuple):
    """R = Q * G rows of queries; queries are scaled already."""

    gradient_CRD: Tensor
    query_CRD: Tensor
    key_CSD: Tensor
    value_CSD: Tensor
    rest_CR1: Tensor
    normaliser_CR1: Tensor
    bias_C1S: Tensor | None


def _in_blocks(parts: _Parts, *, per_place: int, prefix: int) -> AttentionGradients:
    """A block of places at a time; to keys after `prefix` attention is causal.

    Key and value gradients come in float32 at least: blocks add up in them.
    """
    batch, rows, _ = parts.query_CRD.shape
    keys = parts.key_CSD.shape[1]
    by_query = torch.empty_like(parts.query_CRD)
    by_key: Tensor | None = None
    by_value: Tensor | None = None
    step = max(1, SCORE_LIMIT // (batch * keys * per_place)) * per_place
    # From the last block on: only it sees all keys, where attention is causal.
    for start in reversed(range(0, rows, step)):
        part = slice(start, min(rows, start + step))
        seen = min(keys, prefix + part.stop // per_place)
        key, value, gradient = parts.key_CSD[:, :seen], parts.value_CSD[:, :seen], parts.gradient_CRD[:, part]
        probability = torch.bmm(parts.query_CRD[:, part], key.transpose(1, 2)) - parts.normaliser_CR1[:, part]
        if prefix < keys:
            probability[:, :, prefix:] += _future(start // per_place, seen - prefix, per_place, probability)
        if parts.bias_C1S is not None:
            probability += parts.bias_C1S[:, :, :seen]
        probability.exp_()
        value_part = torch.bmm(probability.to(value.dtype).transpose(1, 2), gradient)
        by_score = torch.bmm(gradient, value.transpose(1, 2)) - parts.rest_CR1[:, part]
        by_score = by_score.mul_(probability).to(key.dtype)
        by_query[:, part] = torch.bmm(by_score, key)
        key_part = torch.bmm(by_score.transpose(1, 2), parts.query_CRD[:, part])
        if by_key is None or by_value is None:
            by_key, by_value = (one if start == 0 else one.to(probability.dtype) for one in (key_part, value_part))
        else:
            by_key[:, :seen] += key_part
            by_value[:, :seen] += value_part
    assert by_key is not None and by_value is not None
    return AttentionGradients(by_query, by_key, by_value)


def _future(first: int, last: int, copies: int, like: Tensor) -> Tensor:
    """-inf where a key lies behind the place of its query, for the places `first` to `last`: [places * copies, last]."""
    place = torch.arange(first, last, device=like.device).repeat_interleave(copies)
    behind = torch.arange(last, device=like.device) > place.unsqueeze(1)
    return torch.zeros(behind.shape, dtype=like.dtype, device=like.device).masked_fill_(behind, -torch.inf)
