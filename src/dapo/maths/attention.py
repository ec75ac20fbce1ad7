"""Attention in parts. Letters: B any batch, H query heads, K key-value heads, Q queries, S keys, N replies, T tokens, P prompt
tokens, D head width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dapo.maths.attention_gradients import attention_gradients


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
    # Not torch.sigmoid: the processor computes its last few entries in another way, so rows would depend on their number.
    share = (second[1] - first[1]).exp_().add_(1.0).reciprocal_().unsqueeze(-1).to(first[0].dtype)
    return torch.lerp(second[0], first[0], share)


def fused_attention(
    query_BHQD: Tensor,
    key_BKSD: Tensor,
    value_BKSD: Tensor,
    scaling: float,
    *,
    causal: bool,
    key_bias_BS: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention by the processor's kernel, and the log of its normaliser: [B, H, Q, D] and [B, H, Q], the latter float32.

    `causal`: query q sees the keys up to q. `key_bias_BS` is added to the scores of a key, e.g. -inf on padding.
    """
    batch, heads, queries, depth = query_BHQD.shape
    if causal:
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query_BHQD, _one_per_head(key_BKSD, heads), _one_per_head(value_BKSD, heads), 0.0, True, scale=scaling
        )
        return output, normaliser
    # Queries that share a key-value head stand side by side: no key is repeated.
    folded = query_BHQD.reshape(batch, key_BKSD.shape[1], -1, depth)
    bias = None if key_bias_BS is None else key_bias_BS[:, None, None, :].to(query_BHQD.dtype)
    output, normaliser = attend_with_normaliser(folded, key_BKSD, value_BKSD, bias, scaling)
    return output.reshape(query_BHQD.shape), normaliser.reshape(batch, heads, queries)


def attend_to_prompt_and_self(
    query_BHTD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, mask_BQS: Tensor, scaling: float
) -> tuple[Tensor, Tensor]:
    """Attention of short replies to keys that hold the prompt's and their own, in one call of the processor's kernel.

    `mask_BQS` (B or 1) is what `prompt_and_self_mask` gives. Returns [B, H, T, D] and the log of the normaliser [B, H, T].
    """
    batch, heads, width, depth = query_BHTD.shape
    kv_heads = key_BKSD.shape[1]
    split = query_BHTD.transpose(1, 2).reshape(batch, width, kv_heads, -1, depth)
    folded = split.transpose(1, 2).reshape(batch, kv_heads, -1, depth)
    output, normaliser = attend_with_normaliser(folded, key_BKSD, value_BKSD, mask_BQS.unsqueeze(1), scaling)
    output = output.view(batch, kv_heads, width, -1, depth).transpose(2, 3)
    normaliser = normaliser.reshape(batch, kv_heads, width, -1).transpose(2, 3)
    return output.reshape(batch, heads, width, depth), normaliser.reshape(batch, heads, width)


def prompt_and_self_mask(width: int, prompt: int, copies: int, like: Tensor, bias_BP: Tensor | None = None) -> Tensor:
    """0 on the prompt and on a reply's tokens up to the query's, -inf on later ones: [B or 1, width * copies, prompt + width].

    `copies` query heads share a key-value head; those of one token stand side by side. `bias_BP` is added on the prompt.
    """
    later = torch.arange(width) > torch.arange(width).repeat_interleave(copies).unsqueeze(1)
    own = torch.zeros(later.shape).masked_fill_(later, -torch.inf)
    bias_B1P = torch.zeros(1, 1, prompt) if bias_BP is None else bias_BP.unsqueeze(1)
    batch = bias_B1P.shape[0]
    mask = torch.cat([bias_B1P.expand(-1, width * copies, -1), own.expand(batch, -1, -1)], dim=2)
    return mask.to(like.device, like.dtype)


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


def attend_causally(query_HTD: Tensor, key_KTD: Tensor, value_KTD: Tensor, scaling: float) -> Tensor:
    """Causal attention of one sequence, [H, T, D], differentiable; H query heads share K key-value heads."""
    if query_HTD.device.type == "cpu":
        output: Tensor = _CausalAttention.apply(query_HTD, key_KTD, value_KTD, scaling)  # type: ignore[no-untyped-call]
        return output
    return torch.nn.functional.scaled_dot_product_attention(
        query_HTD[None], key_KTD[None], value_KTD[None], is_causal=True, scale=scaling, enable_gqa=True
    )[0]


class _CausalAttention(torch.autograd.Function):
    """The kernel forward; matrix products backward, which the kernel's own backward is far behind."""

    @staticmethod
    def forward(context: Any, query_HTD: Tensor, key_KTD: Tensor, value_KTD: Tensor, scaling: float) -> Tensor:
        parts = (query_HTD[None], key_KTD[None], value_KTD[None])
        output, normaliser = fused_attention(*parts, scaling, causal=True)
        context.save_for_backward(*parts, output, normaliser)
        context.scaling = scaling
        return output[0]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, normaliser = context.saved_tensors
        upstream = gradients[0][None]
        found = attention_gradients(upstream, query, key, value, output, normaliser, context.scaling, causal=True)
        return found.query[0], found.key[0], found.value[0], None


class _SharedPromptAttention(torch.autograd.Function):
    """Two attentions, over the prompt and over the reply, joined by their normalisers."""

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
        query_NHTD = query_HNTD.transpose(0, 1)
        key_NKTD, value_NKTD = key_KNTD.transpose(0, 1), value_KNTD.transpose(0, 1)
        own, own_normaliser = fused_attention(query_NHTD, key_NKTD, value_NKTD, scaling, causal=True)
        flat_1HQD = query_HNTD.flatten(1, 2)[None]
        prompt, prompt_normaliser = fused_attention(
            flat_1HQD, prompt_key_KPD[None], prompt_value_KPD[None], scaling, causal=False
        )
        own_normaliser_HNT = own_normaliser.transpose(0, 1)
        prompt_normaliser_HNT = prompt_normaliser.view(own_normaliser_HNT.shape)
        output_HNTD = join_parts(
            (prompt.view(query_HNTD.shape), prompt_normaliser_HNT), (own.transpose(0, 1), own_normaliser_HNT)
        )
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
        own = attention_gradients(
            gradient.transpose(0, 1),
            query.transpose(0, 1),
            key.transpose(0, 1),
            value.transpose(0, 1),
            output.transpose(0, 1),
            normaliser.transpose(0, 1),
            context.scaling,
            causal=True,
        )
        prompt = attention_gradients(
            gradient.flatten(1, 2)[None],
            query.flatten(1, 2)[None],
            prompt_key[None],
            prompt_value[None],
            output.flatten(1, 2)[None],
            normaliser.flatten(1, 2)[None],
            context.scaling,
            causal=False,
        )
        return (
            own.query.transpose(0, 1) + prompt.query.view(query.shape),
            own.key.transpose(0, 1),
            own.value.transpose(0, 1),
            prompt.key[0],
            prompt.value[0],
            None,
        )


def _one_per_head(tensor: Tensor, heads: int) -> Tensor:
    """Repeat key-value heads for grouped query heads, [B, K, ...] -> [B, H, ...]."""
    kv_heads = tensor.shape[1]
    if kv_heads == heads:
        return tensor
    return tensor.unsqueeze(2).expand(-1, -1, heads // kv_heads, *tensor.shape[2:]).flatten(1, 2)
