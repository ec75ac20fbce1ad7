"""Groups of a flat row that are attended to together, as padded blocks. Letters: N tokens of the row, A anything per token,
G groups of the block, R replies of each, T tokens of the longest, P tokens of the longest prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.trainers.packing import GroupLayout, Places, places_of

_WASTE = 1.25
"""Groups share a block while it has at most so many times the positions that they have alone."""


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

    def beside_prompts(self, prompts_GAP: Tensor, replies_BAT: Tensor) -> Tensor:
        """[G, A, P, ...] and [G * R, A, T, ...] -> [G * R, A, P + T, ...]: each reply behind a copy of its prompt."""
        replies = replies_BAT.shape[0] // self.num_groups
        copies = prompts_GAP.unsqueeze(1).expand(-1, replies, *prompts_GAP.shape[1:]).flatten(0, 1)
        return torch.cat([copies, replies_BAT], dim=2)

    def sum_of_group(self, replies_BAT: Tensor) -> Tensor:
        """[G * R, A, P, ...] -> [G, A, P, ...]: the sum over the replies of a group."""
        split = replies_BAT.reshape(self.num_groups, -1, *replies_BAT.shape[1:])
        return split.sum(dim=1)

    def bias_of_replies(self) -> Tensor | None:
        """`bias_GP` of each reply's prompt, [G * R, P]."""
        if self.bias_GP is None:
            return None
        return self.bias_GP.repeat_interleave(self.reply.places_BT.shape[0] // self.num_groups, dim=0)

    def bias_before_replies(self) -> Tensor | None:
        """The same with 0 on the reply's own T tokens behind it, [G * R, P + T]."""
        bias = self.bias_of_replies()
        return None if bias is None else torch.nn.functional.pad(bias, (0, self.reply.places_BT.shape[1]))

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
    prompt = places_of(starts_G, lengths_G)
    is_padded = bool((lengths_G != lengths_G.max()).any())
    behind_GP = torch.arange(int(lengths_G.max())) >= lengths_G.unsqueeze(1)
    reply = places_of(
        torch.cat([group.padded_RT[:, 0] for group in groups]), torch.cat([group.lengths_R for group in groups])
    )
    return Block(
        prompt=prompt,
        reply=reply,
        bias_GP=torch.zeros(behind_GP.shape).masked_fill_(behind_GP, -torch.inf) if is_padded else None,
        num_groups=len(groups),
    )
