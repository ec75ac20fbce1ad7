"""How tokens attend in the engine. Letters: R rows (replies), P prompts, H query heads, K key-value heads, D head width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dapo.engines.native.cache import KeyValueCache
from dapo.maths.attention import attend_with_normaliser, join_parts

_BUCKET = 16  # key lengths are rounded up to this, so that few shapes occur and their kernels are reused


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """Several prompts side by side in one flat row; each attends causally to itself and is written to its cell."""

    cache: KeyValueCache
    cells: Sequence[int]
    lengths: Sequence[int]

    def attend(self, layer: int, query_HND: Tensor, key_KND: Tensor, value_KND: Tensor, scaling: float) -> Tensor:
        keys, values = self.cache.layer(layer, key_KND)
        outputs, start = [], 0
        for cell, length in zip(self.cells, self.lengths, strict=True):
            here = slice(start, start + length)
            keys[cell, :, :length] = key_KND[:, here]
            values[cell, :, :length] = value_KND[:, here]
            output = scaled_dot_product_attention(
                query_HND[None, :, here],
                key_KND[None, :, here],
                value_KND[None, :, here],
                is_causal=True,
                scale=scaling,
                enable_gqa=True,
            )
            outputs.append(output[0].transpose(0, 1))
            start += length
        return torch.cat(outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One new token of every reply: it attends to its group's prompt, read once for all of the group, and to its reply.

    place_R: the position within the reply at which the new token's key is written. bias_R1T: 0 on the reply's own
    positions, -inf beyond. lanes_PJ: the rows of each prompt, filled up with row 0. lane_of_R: where a row stands in
    lanes_PJ, flattened. prompt_bias_P1T: 0 on a prompt's positions, -inf beyond.
    """

    prompts: KeyValueCache
    replies: KeyValueCache
    rows_R: Tensor
    place_R: Tensor
    bias_R11T: Tensor
    lanes_PJ: Tensor
    lane_of_R: Tensor
    prompt_bias_P11T: Tensor

    def attend(self, layer: int, query_HND: Tensor, key_KND: Tensor, value_KND: Tensor, scaling: float) -> Tensor:
        heads, rows, width = query_HND.shape
        kv_heads = key_KND.shape[0]
        keys, values = self.replies.layer(layer, key_KND)
        keys[self.rows_R, :, self.place_R] = key_KND.transpose(0, 1)
        values[self.rows_R, :, self.place_R] = value_KND.transpose(0, 1)
        query_RKQD = query_HND.transpose(0, 1).reshape(rows, kv_heads, heads // kv_heads, width)
        span = self.bias_R11T.shape[-1]
        own = attend_with_normaliser(
            query_RKQD, keys[:rows, :, :span], values[:rows, :, :span], self.bias_R11T, scaling
        )
        return join_parts(self._attend_to_prompt(layer, query_RKQD, key_KND, scaling), own).reshape(rows, heads, width)

    def _attend_to_prompt(self, layer: int, query_RKQD: Tensor, like: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        _, kv_heads, per_head, width = query_RKQD.shape
        prompts, lanes = self.lanes_PJ.shape
        keys, values = self.prompts.layer(layer, like)
        span = self.prompt_bias_P11T.shape[-1]
        query_PJKQD = query_RKQD[self.lanes_PJ.flatten()].view(prompts, lanes, kv_heads, per_head, width)
        query_PKJD = query_PJKQD.transpose(1, 2).reshape(prompts, kv_heads, lanes * per_head, width)
        output, normaliser = attend_with_normaliser(
            query_PKJD, keys[:prompts, :, :span], values[:prompts, :, :span], self.prompt_bias_P11T, scaling
        )
        output = output.reshape(prompts, kv_heads, lanes, per_head, width).transpose(1, 2)
        normaliser = normaliser.reshape(prompts, kv_heads, lanes, per_head).transpose(1, 2)
        return (
            output.reshape(prompts * lanes, kv_heads, per_head, width)[self.lane_of_R],
            normaliser.reshape(prompts * lanes, kv_heads, per_head)[self.lane_of_R],
        )


def bias_up_to(lengths_R: Tensor, dtype: torch.dtype, limit: int) -> Tensor:
    """0 where a position is below a row's length and -inf beyond, [R, 1, 1, T]; T is the longest, rounded up."""
    span = min(limit, -(-int(lengths_R.max()) // _BUCKET) * _BUCKET)
    beyond = torch.arange(span, device=lengths_R.device) >= lengths_R.unsqueeze(1)
    bias = torch.zeros(beyond.shape, dtype=dtype, device=lengths_R.device).masked_fill_(beyond, -torch.inf)
    return bias[:, None, None, :]
