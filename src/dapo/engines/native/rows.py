"""The replies that are being written. Letters: R rows; row r of the batch is cell r of the cache, without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dapo.types import Sampling


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One reply under way: whose it is, what it has, and its own random stream.

    `owner` and `index` name the request and the place within its group. `prompt` is a cell of the prompt cache.
    """

    owner: object
    index: int
    prompt: int
    prompt_length: int
    sampling: Sampling
    uniforms: Tensor
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.tokens)


def new_row(owner: object, index: int, prompt: int, prompt_length: int, sampling: Sampling, seed: int) -> Row:
    """Start a reply. Its uniform numbers are drawn ahead, so that they depend on nothing that happens beside it."""
    uniforms = torch.rand(sampling.max_tokens, generator=torch.Generator().manual_seed(seed))
    return Row(
        owner=owner,
        index=index,
        prompt=prompt,
        prompt_length=prompt_length,
        sampling=sampling,
        uniforms=uniforms,
    )


def lanes_of(rows: Sequence[Row], num_prompts: int) -> tuple[list[list[int]], list[int]]:
    """Group rows by prompt: the rows of each prompt, filled up with row 0, and each row's place in that, flattened."""
    by_prompt: list[list[int]] = [[] for _ in range(num_prompts)]
    for number, row in enumerate(rows):
        by_prompt[row.prompt].append(number)
    width = max(len(members) for members in by_prompt)
    place = [0] * len(rows)
    for prompt, members in enumerate(by_prompt):
        for lane, number in enumerate(members):
            place[number] = prompt * width + lane
    return [members + [0] * (width - len(members)) for members in by_prompt], place
