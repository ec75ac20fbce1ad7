"""Attention in parts. Letters: B any batch, K key-value heads, Q queries, T keys, D head width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def attend_with_normaliser(
    query_BKQD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor, bias: Tensor | None, scaling: float
) -> tuple[Tensor, Tensor]:
    """Attention over some of the keys, and the log of its normaliser: ([B, K, Q, D], [B, K, Q] float32).

    `bias` is added to the scores and must broadcast to [B, K, Q, T]. Queries that share a key-value head stand side by
    side in Q, so no key is repeated for grouped heads.
    """
    if query_BKQD.device.type == "cpu":
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query_BKQD, key_BKTD, value_BKTD, 0.0, False, attn_mask=bias, scale=scaling
        )
        return output, normaliser
    scores = torch.matmul(query_BKQD, key_BKTD.transpose(-1, -2)).float() * scaling
    if bias is not None:
        scores = scores + bias
    normaliser = scores.logsumexp(dim=-1)
    weights = (scores - normaliser.unsqueeze(-1)).exp().to(value_BKTD.dtype)
    return torch.matmul(weights, value_BKTD), normaliser


def join_parts(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Join attention over two disjoint sets of keys into attention over both: each part weighs its normaliser."""
    share = torch.sigmoid(first[1] - second[1]).unsqueeze(-1).to(first[0].dtype)
    return torch.lerp(second[0], first[0], share)


def attend_to_shared_prompt(
    query_HNTD: Tensor,
    key_KNTD: Tensor,
    value_KNTD: Tensor,
    prompt_key_KPD: Tensor,
    prompt_value_KPD: Tensor,
    scaling: float,
) -> Tensor:
    """Attention of N replies to one prompt and, causally, each to itself: [H, N, T, D], differentiable.

    Replies are padded on the right to T; no valid position looks at padding. H query heads share K key-value heads.
    """
    if query_HNTD.device.type == "cpu":
        output: Tensor = _SharedPromptAttention.apply(  # type: ignore[no-untyped-call]
            query_HNTD, key_KNTD, value_KNTD, prompt_key_KPD, prompt_value_KPD, scaling
        )
        return output
    return attend_to_shared_prompt_plainly(query_HNTD, key_KNTD, value_KNTD, prompt_key_KPD, prompt_value_KPD, scaling)


def attend_to_shared_prompt_plainly(
    query_HNTD: Tensor,
    key_KNTD: Tensor,
    value_KNTD: Tensor,
    prompt_key_KPD: Tensor,
    prompt_value_KPD: Tensor,
    scaling: float,
) -> Tensor:
    """The same over concatenated keys and a mask: for devices without the kernels below, and to compare with."""
    _, replies, width, _ = query_HNTD.shape
    prompt = prompt_key_KPD.shape[1]

    def with_prompt(own_KNTD: Tensor, shared_KPD: Tensor) -> Tensor:
        return torch.cat([shared_KPD.unsqueeze(1).expand(-1, replies, -1, -1), own_KNTD], dim=2).transpose(0, 1)

    causal_TT = torch.ones(width, width, dtype=torch.bool, device=query_HNTD.device).tril()
    mask_TS = torch.cat([causal_TT.new_ones(width, prompt), causal_TT], dim=1)
    output_NHTD = torch.nn.functional.scaled_dot_product_attention(
        query_HNTD.transpose(0, 1),
        with_prompt(key_KNTD, prompt_key_KPD),
        with_prompt(value_KNTD, prompt_value_KPD),
        attn_mask=mask_TS,
        scale=scaling,
        enable_gqa=True,
    )
    return output_NHTD.transpose(0, 1)


class _SharedPromptAttention(torch.autograd.Function):
    """Two fused attentions, over the prompt and over the reply, joined by their normalisers.

    Backward hands each of the two kernels the joined output and the joined normaliser: with these, the probabilities that
    a kernel recomputes are those of the whole attention, so its gradients are the exact share of its keys.
    """

    @staticmethod
    def forward(
        context: Any,
        query_HNTD: Tensor,
        key_KNTD: Tensor,
        value_KNTD: Tensor,
        prompt_key_KPD: Tensor,
        prompt_value_KPD: Tensor,
        scaling: float,
    ) -> Tensor:
        heads, replies, width, depth = query_HNTD.shape
        kv_heads = key_KNTD.shape[0]
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        own_query = query_HNTD.transpose(0, 1)
        own_key, own_value = _one_per_head(key_KNTD, heads), _one_per_head(value_KNTD, heads)
        own, own_normaliser = fused(own_query, own_key, own_value, 0.0, True, scale=scaling)
        prompt_query = query_HNTD.reshape(1, kv_heads, -1, depth)
        prompt, prompt_normaliser = fused(
            prompt_query, prompt_key_KPD.unsqueeze(0), prompt_value_KPD.unsqueeze(0), 0.0, False, scale=scaling
        )
        own_HNTD, own_normaliser_HNT = own.transpose(0, 1), own_normaliser.transpose(0, 1)
        prompt_HNTD = prompt.reshape(heads, replies, width, depth)
        prompt_normaliser_HNT = prompt_normaliser.reshape(heads, replies, width)
        output_HNTD = join_parts((prompt_HNTD, prompt_normaliser_HNT), (own_HNTD, own_normaliser_HNT)).contiguous()
        normaliser_HNT = torch.logaddexp(own_normaliser_HNT, prompt_normaliser_HNT)
        context.save_for_backward(
            query_HNTD, key_KNTD, value_KNTD, prompt_key_KPD, prompt_value_KPD, output_HNTD, normaliser_HNT
        )
        context.scaling = scaling
        return output_HNTD

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, prompt_key, prompt_value, output, normaliser = context.saved_tensors
        gradient = gradients[0]
        heads, replies, width, depth = query.shape
        kv_heads = key.shape[0]
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

        def own(tensor: Tensor) -> Tensor:
            return tensor.transpose(0, 1).contiguous()

        own_query, own_key, own_value = fused(
            own(gradient),
            own(query),
            _one_per_head(key, heads),
            _one_per_head(value, heads),
            own(output),
            own(normaliser),
            0.0,
            True,
            scale=context.scaling,
        )

        def shared(tensor: Tensor) -> Tensor:
            return tensor.reshape(1, kv_heads, -1, *tensor.shape[3:]).contiguous()

        from_prompt, prompt_key_gradient, prompt_value_gradient = fused(
            shared(gradient),
            shared(query),
            prompt_key.unsqueeze(0),
            prompt_value.unsqueeze(0),
            shared(output),
            shared(normaliser),
            0.0,
            False,
            scale=context.scaling,
        )
        query_gradient = own_query.transpose(0, 1) + from_prompt.reshape(heads, replies, width, depth)

        def per_kv_head(tensor: Tensor) -> Tensor:
            return tensor.view(replies, kv_heads, heads // kv_heads, width, depth).sum(dim=2).transpose(0, 1)

        return (
            query_gradient,
            per_kv_head(own_key),
            per_kv_head(own_value),
            prompt_key_gradient[0],
            prompt_value_gradient[0],
            None,
        )


def _one_per_head(tensor_KNTD: Tensor, heads: int) -> Tensor:
    """Repeat key-value heads for grouped query heads, replies first: [N, H, T, D]."""
    return tensor_KNTD.repeat_interleave(heads // tensor_KNTD.shape[0], dim=0).transpose(0, 1)
