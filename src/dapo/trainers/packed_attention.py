"""Attention of a flat row of prompts and replies, forward and backward. Letters: N tokens of the row, H query heads,
K key-value heads, A = H + 2 K, D head width, G groups of a block, R replies of each, T the longest of them, P prompt tokens.

Consumes: queries, keys and values side by side, [N, A, D], and where the groups stand. Each prompt attends causally to itself,
each reply to its prompt and causally to itself; no key is computed or kept twice. Where replies are short, a copy of the
prompt's keys is put before their own for the moment of the product: one call is then faster than two that are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dapo.maths.attention import attend_to_prompt_and_self, fused_attention, join_parts, prompt_and_self_mask
from dapo.maths.attention_gradients import attention_gradients
from dapo.trainers.blocks import Block


class _Heads(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor


class _KeysAndValues(NamedTuple):
    key: Tensor
    value: Tensor


class _Upstream(NamedTuple):
    """What a gradient of attention starts from: the gradient by its output, the output and the log-normaliser."""

    gradient: Tensor
    output: Tensor
    normaliser: Tensor


_SHORT = 1 << 22
"""Scores, over all replies of a block, up to which replies count as short; also the size of a mask at most."""


@dataclass(frozen=True, slots=True)
class PackedAttention:
    """The blocks of a flat row, with the heads of a model. masks: of each block of short replies; None for a long one."""

    blocks: Sequence[Block]
    masks: Sequence[Tensor | None]
    heads: int
    kv_heads: int
    scaling: float

    @classmethod
    def over(
        cls, blocks: Sequence[Block], heads: int, kv_heads: int, scaling: float, *, like: Tensor
    ) -> PackedAttention:
        """Make the masks once for all layers, in the precision of `like`."""
        masks = [_mask(block, heads // kv_heads, like) for block in blocks]
        return cls(blocks=blocks, masks=masks, heads=heads, kv_heads=kv_heads, scaling=scaling)

    def forward(self, joint_NAD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [N, H, D] and the log-normaliser [N, H], float32 at least."""
        tokens, _, depth = joint_NAD.shape
        output_NHD = joint_NAD.new_empty(tokens, self.heads, depth)
        wide = torch.promote_types(joint_NAD.dtype, torch.float32)
        normaliser_NH = joint_NAD.new_empty(tokens, self.heads, dtype=wide)
        for block, mask in zip(self.blocks, self.masks, strict=True):
            prompt = self._split(block.prompts(joint_NAD))
            output, normaliser = fused_attention(*prompt, self.scaling, causal=True)
            block.put_prompts(output_NHD, output)
            block.put_prompts(normaliser_NH, normaliser)
            reply = self._split(block.replies(joint_NAD))
            if mask is None:
                output, normaliser = self._long_replies(block, reply, prompt)
            else:
                keys, values = _beside_prompts(block, prompt, reply)
                output, normaliser = attend_to_prompt_and_self(reply.query, keys, values, mask, self.scaling)
            block.put_replies(output_NHD, output)
            block.put_replies(normaliser_NH, normaliser)
        return output_NHD, normaliser_NH

    def _long_replies(self, block: Block, reply: _Heads, prompt: _Heads) -> tuple[Tensor, Tensor]:
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
        for block, mask in zip(self.blocks, self.masks, strict=True):
            prompt = self._split(block.prompts(joint_NAD))
            gradient, output, normaliser = (block.prompts(tensor) for tensor in whole)
            # Not the gradient is cleared but its normaliser: what fills padding looks at later tokens, and 0 * exp(100) is NaN.
            normaliser = block.without_prompt_padding(normaliser)
            of_prompt = attention_gradients(gradient, *prompt, output, normaliser, self.scaling, causal=True)
            reply = self._split(block.replies(joint_NAD))
            gradient, output, normaliser = (block.replies(tensor) for tensor in whole)
            normaliser = block.without_reply_padding(normaliser)
            whole_reply = _Upstream(gradient, output, normaliser)
            if mask is None:
                by_reply, by_prompt = self._by_long_replies(block, reply, prompt, whole_reply)
            else:
                by_reply, by_prompt = self._by_short_replies(block, reply, prompt, whole_reply)
            block.put_replies(found_NAD, torch.cat(by_reply, dim=1))
            by_key, by_value = of_prompt.key + by_prompt.key, of_prompt.value + by_prompt.value
            block.put_prompts(found_NAD, torch.cat([of_prompt.query, by_key, by_value], dim=1))
        return found_NAD

    def _by_short_replies(
        self, block: Block, reply: _Heads, prompt: _Heads, upstream: _Upstream
    ) -> tuple[_Heads, _KeysAndValues]:
        """Gradients by the replies' heads, and their part of those by the prompts' keys and values."""
        keys, values = _beside_prompts(block, prompt, reply)
        behind = prompt.key.shape[2]
        found = attention_gradients(
            upstream.gradient,
            reply.query,
            keys,
            values,
            upstream.output,
            upstream.normaliser,
            self.scaling,
            causal=True,
            prefix=behind,
            key_bias_BS=block.bias_before_replies(),
        )
        of_prompts = (block.sum_of_group(one[:, :, :behind]) for one in (found.key, found.value))
        return _Heads(found.query, found.key[:, :, behind:], found.value[:, :, behind:]), _KeysAndValues(*of_prompts)

    def _by_long_replies(
        self, block: Block, reply: _Heads, prompt: _Heads, upstream: _Upstream
    ) -> tuple[_Heads, _KeysAndValues]:
        """The same in two parts."""
        own = attention_gradients(
            upstream.gradient,
            *reply,
            upstream.output,
            upstream.normaliser,
            self.scaling,
            causal=True,
        )
        shared = attention_gradients(
            block.by_group(upstream.gradient),
            block.by_group(reply.query),
            prompt.key,
            prompt.value,
            block.by_group(upstream.output),
            block.by_group(upstream.normaliser),
            self.scaling,
            causal=False,
            key_bias_BS=block.bias_GP,
        )
        by_query = own.query + block.by_reply(shared.query)
        return _Heads(by_query, own.key, own.value), _KeysAndValues(shared.key, shared.value)

    def _split(self, joint_BA: Tensor) -> _Heads:
        """Queries, keys and values of a tensor whose second dimension holds them side by side."""
        both = self.heads + self.kv_heads
        return _Heads(joint_BA[:, : self.heads], joint_BA[:, self.heads : both], joint_BA[:, both:])


def _beside_prompts(block: Block, prompt: _Heads, reply: _Heads) -> _KeysAndValues:
    """Keys and values of each reply behind a copy of its prompt's."""
    return _KeysAndValues(block.beside_prompts(prompt.key, reply.key), block.beside_prompts(prompt.value, reply.value))


def _mask(block: Block, copies: int, like: Tensor) -> Tensor | None:
    """The mask of a block of short replies; None where a mask would be too large."""
    replies, width = block.reply.places_BT.shape
    prompt = block.prompt.places_BT.shape[1]
    if replies * width * copies * (prompt + width) > _SHORT:
        return None
    return prompt_and_self_mask(width, prompt, copies, like, block.bias_of_replies())
