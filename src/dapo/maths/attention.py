"""Attention in parts. Letters: B any batch, K key-value heads, Q queries, T keys, D head width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

DENSE_LIMIT = 4096
"""Up to this length a causal gradient is made by matrix products; beyond it by the fused kernel."""

SCORE_LIMIT = 1 << 24
"""Attention scores that exist at a time in a gradient."""


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


def attend_causally(query_HTD: Tensor, key_KTD: Tensor, value_KTD: Tensor, scaling: float) -> Tensor:
    """Causal attention of one sequence, [H, T, D], differentiable; H query heads share K key-value heads."""
    if query_HTD.device.type == "cpu" and query_HTD.shape[1] <= DENSE_LIMIT:
        output: Tensor = _CausalAttention.apply(query_HTD, key_KTD, value_KTD, scaling)  # type: ignore[no-untyped-call]
        return output
    return torch.nn.functional.scaled_dot_product_attention(
        query_HTD[None], key_KTD[None], value_KTD[None], is_causal=True, scale=scaling, enable_gqa=True
    )[0]


class _CausalAttention(torch.autograd.Function):
    """The fused kernel forward; matrix products backward, which the fused backward is far behind on short sequences."""

    @staticmethod
    def forward(context: Any, query_HTD: Tensor, key_KTD: Tensor, value_KTD: Tensor, scaling: float) -> Tensor:
        heads = query_HTD.shape[0]
        output, normaliser = _fused(
            query_HTD[None], _one_per_head(key_KTD, heads)[None], _one_per_head(value_KTD, heads)[None], True, scaling
        )
        context.save_for_backward(query_HTD, key_KTD, value_KTD, output[0], normaliser[0])
        context.scaling = scaling
        return output[0]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, normaliser = context.saved_tensors
        kv_heads, width, _ = key.shape
        per_head = query.shape[0] // kv_heads

        def folded(tensor: Tensor) -> Tensor:
            return tensor.reshape(kv_heads, per_head * width, *tensor.shape[2:])

        query_gradient, key_gradient, value_gradient = attention_gradients(
            folded(gradients[0]),
            folded(query),
            key,
            value,
            folded(output),
            folded(normaliser),
            _causal_bias(width, per_head, query),
            context.scaling,
        )
        return query_gradient.view(query.shape), key_gradient, value_gradient, None


class _SharedPromptAttention(torch.autograd.Function):
    """Two fused attentions, over the prompt and over the reply, joined by their normalisers.

    Backward takes the joined output and normaliser for each of the two: with these, the probabilities that it makes again
    are those of the whole attention, so its gradients are the exact share of its keys.
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
        own, own_normaliser = _fused(
            query_HNTD.transpose(0, 1),
            _one_per_head(key_KNTD, heads).transpose(0, 1),
            _one_per_head(value_KNTD, heads).transpose(0, 1),
            True,
            scaling,
        )
        prompt, prompt_normaliser = _fused(
            query_HNTD.reshape(1, kv_heads, -1, depth), prompt_key_KPD[None], prompt_value_KPD[None], False, scaling
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
        heads, replies, width, depth = query.shape
        kv_heads = key.shape[0]
        per_head = heads // kv_heads

        def by_reply(tensor: Tensor) -> Tensor:
            """[H, N, T, ...] -> [K * N, G * T, ...]: queries that share a key stand side by side."""
            split = tensor.view(kv_heads, per_head, replies, width, *tensor.shape[3:])
            return split.transpose(1, 2).reshape(kv_heads * replies, per_head * width, *tensor.shape[3:])

        def by_prompt(tensor: Tensor) -> Tensor:
            """[H, N, T, ...] -> [K, G * N * T, ...]."""
            return tensor.reshape(kv_heads, per_head * replies * width, *tensor.shape[3:])

        gradient = gradients[0].contiguous()
        own_query, own_key, own_value = attention_gradients(
            by_reply(gradient),
            by_reply(query),
            key.reshape(kv_heads * replies, width, depth),
            value.reshape(kv_heads * replies, width, depth),
            by_reply(output),
            by_reply(normaliser),
            _causal_bias(width, per_head, query),
            context.scaling,
        )
        from_prompt, prompt_key_gradient, prompt_value_gradient = attention_gradients(
            by_prompt(gradient),
            by_prompt(query),
            prompt_key,
            prompt_value,
            by_prompt(output),
            by_prompt(normaliser),
            None,
            context.scaling,
        )
        own_query = own_query.view(kv_heads, replies, per_head, width, depth).transpose(1, 2)
        query_gradient = own_query.reshape(query.shape) + from_prompt.view(query.shape)
        return (
            query_gradient,
            own_key.view(key.shape),
            own_value.view(key.shape),
            prompt_key_gradient,
            prompt_value_gradient,
            None,
        )


def attention_gradients(
    gradient_BQD: Tensor,
    query_BQD: Tensor,
    key_BSD: Tensor,
    value_BSD: Tensor,
    output_BQD: Tensor,
    normaliser_BQ: Tensor,
    bias_QS: Tensor | None,
    scaling: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value, given the output and the log-normaliser of the whole attention.

    The probabilities are made again from the normaliser. Queries are taken a slice at a time, so that the scores that
    exist at once stay below a bound.
    """
    step = max(1, SCORE_LIMIT // (query_BQD.shape[0] * key_BSD.shape[1]))
    query_gradient = torch.empty_like(query_BQD)
    key_gradient, value_gradient = torch.zeros_like(key_BSD), torch.zeros_like(value_BSD)
    rest_BQ1 = torch.linalg.vecdot(gradient_BQD.float(), output_BQD.float()).unsqueeze(2)
    for start in range(0, query_BQD.shape[1], step):
        part = slice(start, start + step)
        query, gradient = query_BQD[:, part], gradient_BQD[:, part]
        scores = torch.bmm(query, key_BSD.transpose(1, 2)).float().mul_(scaling)
        if bias_QS is not None:
            scores.add_(bias_QS[part])
        probability = scores.sub_(normaliser_BQ[:, part].unsqueeze(2)).exp_()
        value_gradient += torch.bmm(probability.to(value_BSD.dtype).transpose(1, 2), gradient)
        by_score = torch.bmm(gradient, value_BSD.transpose(1, 2)).float()
        by_score = by_score.sub_(rest_BQ1[:, part]).mul_(probability).mul_(scaling).to(query_BQD.dtype)
        query_gradient[:, part] = torch.bmm(by_score, key_BSD)
        key_gradient += torch.bmm(by_score.transpose(1, 2), query)
    return query_gradient, key_gradient, value_gradient


def _fused(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scaling: float) -> tuple[Tensor, Tensor]:
    output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, scale=scaling
    )
    return output, normaliser


def _one_per_head(tensor: Tensor, heads: int) -> Tensor:
    """Repeat key-value heads, in the first dimension, for grouped query heads."""
    return tensor.repeat_interleave(heads // tensor.shape[0], dim=0)


def _causal_bias(width: int, copies: int, like: Tensor) -> Tensor:
    """-inf above the diagonal, for `copies` blocks of `width` queries: [copies * T, T], float32."""
    above_TT = torch.ones(width, width, dtype=torch.bool, device=like.device).triu(1)
    bias_TT = torch.zeros(width, width, device=like.device).masked_fill_(above_TT, -torch.inf)
    return bias_TT.repeat(copies, 1)
