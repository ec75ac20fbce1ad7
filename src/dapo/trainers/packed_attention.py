"""Attention of a flat row of prompts and replies, forward and backward. Letters: N tokens of the row, H query heads,
K key-value heads, A = H + 2 K, D head width, G groups of a block, R replies of each, T the longest of them, P prompt tokens.

Consumes: queries, keys and values side by side, [N, A, D], and where the groups stand. Each prompt attends causally to itself,
each reply to its prompt and causally to itself; no key is computed or kept twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dapo.maths.attention import fused_attention, join_parts
from dapo.maths.attention_gradients import attention_gradients
from dapo.trainers.blocks import Block


class _Heads(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class PackedAttention:
    """The blocks of a flat row, with the heads of a model."""

    blocks: Sequence[Block]
    heads: int
    kv_heads: int
    scaling: float

    def forward(self, joint_NAD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [N, H, D] and the log-normaliser [N, H], float32 at least."""
        tokens, _, depth = joint_NAD.shape
        output_NHD = joint_NAD.new_empty(tokens, self.heads, depth)
        wide = torch.promote_types(joint_NAD.dtype, torch.float32)
        normaliser_NH = joint_NAD.new_empty(tokens, self.heads, dtype=wide)
        for block in self.blocks:
            prompt = self._split(block.prompts(joint_NAD))
            output, normaliser = fused_attention(*prompt, self.scaling, causal=True)
            block.put_prompts(output_NHD, output)
            block.put_prompts(normaliser_NH, normaliser)
            output, normaliser = self._replies(block, self._split(block.replies(joint_NAD)), prompt)
            block.put_replies(output_NHD, output)
            block.put_replies(normaliser_NH, normaliser)
        return output_NHD, normaliser_NH

    def _replies(self, block: Block, reply: _Heads, prompt: _Heads) -> tuple[Tensor, Tensor]:
        """Two attentions, over the prompt and over the reply, joined by their normalisers; [G * R, H, T, D], [G * R, H, T]."""
        own = fused_attention(*reply, self.scaling, causal=True)
        output, normaliser = fused_attention(
            block.by_group(reply.query), prompt.key, prompt.value, self.scaling, causal=False, key_bias_BS=block.bias_GP
        )
        shared = (block.by_reply(output), block.by_reply(normaliser))
        return join_parts(shared, own), torch.logaddexp(shared[1], own[1])

    def backward(self, gradient_NHD: Tensor, joint_NAD: Tensor, output_NHD: Tensor, normaliser_NH: Tensor) -> Tensor:
        """Return the gradient by queries, keys and values, [N, A, D]."""
        found_NAD = torch.empty_like(joint_NAD)
        whole = (gradient_NHD, output_NHD, normaliser_NH)
        for block in self.blocks:
            prompt = self._split(block.prompts(joint_NAD))
            gradient, output, normaliser = (block.prompts(tensor) for tensor in whole)
            # Not the gradient is cleared but its normaliser: what fills padding looks at later tokens, and 0 * exp(100) is NaN.
            normaliser = block.without_prompt_padding(normaliser)
            of_prompt = attention_gradients(gradient, *prompt, output, normaliser, self.scaling, causal=True)
            reply = self._split(block.replies(joint_NAD))
            gradient, output, normaliser = (block.replies(tensor) for tensor in whole)
            normaliser = block.without_reply_padding(normaliser)
            own = attention_gradients(gradient, *reply, output, normaliser, self.scaling, causal=True)
            shared = attention_gradients(
                block.by_group(gradient),
                block.by_group(reply.query),
                prompt.key,
                prompt.value,
                block.by_group(output),
                block.by_group(normaliser),
                self.scaling,
                causal=False,
                key_bias_BS=block.bias_GP,
            )
            by_query = own.query + block.by_reply(shared.query)
            block.put_replies(found_NAD, torch.cat([by_query, own.key, own.value], dim=1))
            by_key, by_value = of_prompt.key + shared.key, of_prompt.value + shared.value
            block.put_prompts(found_NAD, torch.cat([of_prompt.query, by_key, by_value], dim=1))
        return found_NAD

    def _split(self, joint_BA: Tensor) -> _Heads:
        """Queries, keys and values of a tensor whose second dimension holds them side by side."""
        both = self.heads + self.kv_heads
        return _Heads(joint_BA[:, : self.heads], joint_BA[:, self.heads : both], joint_BA[:, both:])
