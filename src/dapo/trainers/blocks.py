"""Groups of a flat row that are attended to together, as padded blocks. Letters: N tokens of the row, A anything per token,
G groups of the block, R replies of each, T tokens of the longest, P tokens of the longest prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.trainers.packing import GroupLayout

_WASTE = 1.25
"""Groups share a block while it has at most so many times the positions that they have alone."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Groups of equally many replies. `bias_GP` is -inf on the padding of prompts; None where there is none."""

    prompt: Places
    reply: Places
    bias_GP: Tensor | None
    num_groups: int

    def prompts(self, flat_NA: Tensor) -> Tensor:
        """[N, A, ...] -> [G, A, P, ...]."""
        return self.prompt.take(flat_NA)

    def replies(self, flat_NA: Tensor) -> Tensor:
        """[N, A, ...] -> [G * R, A, T, ...]."""
        return self.reply.take(flat_NA)

    def put_prompts(self, flat_NA: Tensor, padded: Tensor) -> None:
        """Write what `prompts` would read."""
        self.prompt.put(flat_NA, padded)

    def put_replies(self, flat_NA: Tensor, padded: Tensor) -> None:
        """Write what `replies` would read."""
        self.reply.put(flat_NA, padded)

    def without_prompt_padding(self, normaliser: Tensor) -> Tensor:
        """A log-normaliser of inf on padding: probabilities of 0, so that it has no part in a gradient."""
        return self.prompt.cleared(normaliser, torch.inf)

    def without_reply_padding(self, normaliser: Tensor) -> Tensor:
        """The same on the padding of replies."""
        return self.reply.cleared(normaliser, torch.inf)

    def by_group(self, replies_BAT: Tensor) -> Tensor:
        """[G * R, A, T, ...] -> [G, A, R * T, ...]: the tokens of a group's replies one after the other."""
        split = replies_BAT.reshape(self.num_groups, -1, *replies_BAT.shape[1:])
        return split.transpose(1, 2).flatten(2, 3)

    def by_reply(self, groups_GAQ: Tensor) -> Tensor:
        """[G, A, R * T, ...] -> [G * R, A, T, ...]."""
        groups, heads = groups_GAQ.shape[:2]
        split = groups_GAQ.reshape(groups, heads, -1, self.reply.places_BT.shape[1], *groups_GAQ.shape[3:])
        return split.transpose(1, 2).flatten(0, 1)


def blocks_of(groups: Sequence[GroupLayout]) -> tuple[Block, ...]:
    """Put groups of equally many and similarly long replies together; every group is in one block."""
    order = sorted(range(len(groups)), key=lambda number: (*groups[number].padded_RT.shape, number))
    parts: list[list[GroupLayout]] = []
    alone = 0
    for number in order:
        group = groups[number]
        replies, width = group.padded_RT.shape
        same = bool(parts) and parts[-1][0].padded_RT.shape[0] == replies
        # The widest comes last, so it decides how wide all are.
        if same and width * replies * (len(parts[-1]) + 1) <= _WASTE * (alone + replies * width):
            parts[-1].append(group)
            alone += replies * width
        else:
            parts.append([group])
            alone = replies * width
    return tuple(_block(part) for part in parts)


def _block(groups: Sequence[GroupLayout]) -> Block:
    lengths_G = torch.tensor([group.prompt_length for group in groups])
    starts_G = torch.tensor([group.start for group in groups])
    prompt = _places(starts_G, lengths_G)
    is_padded = bool((lengths_G != lengths_G.max()).any())
    behind_GP = torch.arange(int(lengths_G.max())) >= lengths_G.unsqueeze(1)
    reply = _places(
        torch.cat([group.padded_RT[:, 0] for group in groups]), torch.cat([group.lengths_R for group in groups])
    )
    return Block(
        prompt=prompt,
        reply=reply,
        bias_GP=torch.zeros(behind_GP.shape).masked_fill_(behind_GP, -torch.inf) if is_padded else None,
        num_groups=len(groups),
    )


def _places(firsts_B: Tensor, lengths_B: Tensor) -> Places:
    column_T = torch.arange(int(lengths_B.max()))
    inside_BT = column_T < lengths_B.unsqueeze(1)
    first_B1 = firsts_B.unsqueeze(1)
    return Places(
        places_BT=torch.where(inside_BT, first_B1 + column_T, first_B1),
        valid_M=inside_BT.flatten().nonzero().squeeze(1),
        padding=(~inside_BT).flatten().nonzero().squeeze(1),
    )
