"""Lays the replies of a micro-batch out as one flat row without padding; a group's prompt stands in it once.

    prompt A | reply A1 | reply A2 | prompt B | reply B1 | …

Letters: N tokens of the flat row, A anything per token, B sequences, M tokens that are no padding, R replies of a group, T the
longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.maths.attention import attend_causally, attend_to_shared_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the tokens of padded sequences stand in the flat row.

    places_BT: of each token; padding points at any token. valid_M: the places in places_BT, flattened, that are none.
    padding: those that are.
    """

    places_BT: Tensor
    valid_M: Tensor
    padding: Tensor

    def take(self, flat_NA: Tensor) -> Tensor:
        """[N, A, ...] -> [B, A, T, ...]; padding holds some token's values."""
        rows = flat_NA.index_select(0, self.places_BT.flatten())
        return rows.view(*self.places_BT.shape, *flat_NA.shape[1:]).transpose(1, 2)

    def put(self, flat_NA: Tensor, padded_BAT: Tensor) -> None:
        """[B, A, T, ...] into their places of [N, A, ...]."""
        rows = padded_BAT.transpose(1, 2).flatten(0, 1)
        if self.padding.numel():
            rows = rows.index_select(0, self.valid_M)
        flat_NA.index_copy_(0, self.places_BT.flatten()[self.valid_M], rows)

    def cleared(self, padded_BAT: Tensor, value: float) -> Tensor:
        """The same with `value` on padding."""
        if not self.padding.numel():
            return padded_BAT
        rows = padded_BAT.transpose(1, 2)
        cleared = rows.flatten(0, 1).index_fill(0, self.padding, value)
        return cleared.view(rows.shape).transpose(1, 2)


def places_of(firsts_B: Tensor, lengths_B: Tensor) -> Places:
    """Lay sequences out from the places of their first tokens and their lengths, padded on the right to the longest."""
    column_T = torch.arange(int(lengths_B.max()))
    inside_BT = column_T < lengths_B.unsqueeze(1)
    first_B1 = firsts_B.unsqueeze(1)
    return Places(
        places_BT=torch.where(inside_BT, first_B1 + column_T, first_B1),
        valid_M=inside_BT.flatten().nonzero().squeeze(1),
        padding=(~inside_BT).flatten().nonzero().squeeze(1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Where a prompt and its replies stand in the flat row.

    padded_RT: the place of each reply token, replies padded on the right (padding points at the reply's first token).
    valid_M: the places in padded_RT, flattened, that are no padding. lengths_R: tokens of each reply.
    """

    start: int
    prompt_length: int
    end: int
    padded_RT: Tensor
    valid_M: Tensor
    lengths_R: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A micro-batch as a flat row.

    predictor_M: the place whose logits predict each reply token, replies in row order. row_M, column_M: where that token
    stands in the [B, T] tensors of the micro-batch.
    """

    tokens_N: Tensor
    positions_N: Tensor
    groups: tuple[GroupLayout, ...]
    predictor_M: Tensor
    row_M: Tensor
    column_M: Tensor


def pack_flat(prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor) -> Packing:
    """Lay rows out; neighbours with the same prompt share it."""
    lengths = lengths_B.tolist()
    tokens: list[Tensor] = []
    positions: list[Tensor] = []
    predictors: list[Tensor] = []
    groups: list[GroupLayout] = []
    start = row = 0
    while row < len(prompt_ids):
        last = row
        while last < len(prompt_ids) and prompt_ids[last] == prompt_ids[row]:
            last += 1
        prompt = prompt_ids[row]
        members = lengths[row:last]
        tokens += [torch.tensor(prompt), *(tokens_BT[number, : lengths[number]] for number in range(row, last))]
        positions += [torch.arange(len(prompt)), *(torch.arange(length) + len(prompt) for length in members)]
        firsts = (torch.tensor([0, *members[:-1]]).cumsum(0) + start + len(prompt)).tolist()
        for first, length in zip(firsts, members, strict=True):
            # The prompt's last place predicts the first token of every reply; then each token predicts the next.
            before = torch.arange(first - 1, first - 1 + length)
            before[0] = start + len(prompt) - 1
            predictors.append(before)
        groups.append(_layout(start, len(prompt), firsts, members))
        start = groups[-1].end
        row = last
    return Packing(
        tokens_N=torch.cat(tokens),
        positions_N=torch.cat(positions),
        groups=tuple(groups),
        predictor_M=torch.cat(predictors),
        row_M=torch.repeat_interleave(torch.arange(len(lengths)), lengths_B),
        column_M=torch.cat([torch.arange(length) for length in lengths]),
    )


def _layout(start: int, prompt_length: int, firsts: Sequence[int], lengths: Sequence[int]) -> GroupLayout:
    lengths_R = torch.tensor(lengths)
    places = places_of(torch.tensor(firsts), lengths_R)
    return GroupLayout(
        start=start,
        prompt_length=prompt_length,
        end=start + prompt_length + sum(lengths),
        padded_RT=places.places_BT,
        valid_M=places.valid_M,
        lengths_R=lengths_R,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPlan:
    """How a flat row attends: each prompt causally to itself, each reply to its prompt and causally to itself."""

    groups: tuple[GroupLayout, ...]

    def attend(self, layer: int, query_HND: Tensor, key_KND: Tensor, value_KND: Tensor, scaling: float) -> Tensor:
        parts: list[Tensor] = []
        for group in self.groups:
            prompt = slice(group.start, group.start + group.prompt_length)
            prompt_key, prompt_value = key_KND[:, prompt], value_KND[:, prompt]
            own_HPD = attend_causally(query_HND[:, prompt], prompt_key, prompt_value, scaling)
            replies_HRTD = attend_to_shared_prompt(
                query_HND[:, group.padded_RT],
                key_KND[:, group.padded_RT],
                value_KND[:, group.padded_RT],
                prompt_key,
                prompt_value,
                scaling,
            )
            parts += [own_HPD, replies_HRTD.flatten(1, 2)[:, group.valid_M]]
        return torch.cat(parts, dim=1).transpose(0, 1)
