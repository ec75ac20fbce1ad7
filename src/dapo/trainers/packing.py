"""Lays the replies of a micro-batch out as one flat row without padding; a group's prompt stands in it once.

    prompt A | reply A1 | reply A2 | prompt B | reply B1 | …

Letters: N tokens of the flat row, M reply tokens, R replies of a group, T the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.maths.attention import attend_causally, attend_to_shared_prompt


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
    width = max(lengths)
    column_T = torch.arange(width)
    inside_RT = column_T < torch.tensor(lengths).unsqueeze(1)
    first_R1 = torch.tensor(firsts).unsqueeze(1)
    return GroupLayout(
        start=start,
        prompt_length=prompt_length,
        end=start + prompt_length + sum(lengths),
        padded_RT=torch.where(inside_RT, first_R1 + column_T, first_R1),
        valid_M=inside_RT.flatten().nonzero().squeeze(1),
        lengths_R=torch.tensor(lengths),
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
