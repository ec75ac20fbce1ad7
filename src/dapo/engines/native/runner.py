"""Reads prompts in and writes replies token by token: the model, the cache and the sampler; nothing asynchronous.

Rows and prompts stand in their caches without gaps: when one leaves, another takes its cell. So every step works on a
slice of the buffers and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dapo.engines.native.cache import KeyValueCache
from dapo.engines.native.forward import Forward
from dapo.engines.native.plans import PromptPlan, StepPlan, bias_up_to
from dapo.engines.native.rows import Row, lanes_of
from dapo.maths.sampling import draw
from dapo.models.attention import AttentionPlan

_FIRST_ROOM = 64  # positions of a new cache; doubled as replies and prompts need it


class Runner:
    """The replies under way on one model. `rows[r]` is in cell r of the reply cache; prompts likewise."""

    def __init__(self, forward: Forward, max_rows: int) -> None:
        self._forward = forward
        self._replies = KeyValueCache(forward.layers, max_rows, _FIRST_ROOM)
        self._prompts = KeyValueCache(forward.layers, 1, _FIRST_ROOM)
        self.rows: list[Row] = []
        self._first_logits: list[Tensor] = []
        self._prompt_lengths: list[int] = []

    @property
    def num_prompts(self) -> int:
        """Prompts that are held."""
        return len(self._prompt_lengths)

    @torch.inference_mode()
    def read_prompts(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Read prompts into the cache, all in one pass; return their cells."""
        first = self.num_prompts
        cells = list(range(first, first + len(prompts)))
        lengths = [len(prompt) for prompt in prompts]
        if cells[-1] >= self._prompts.cells:
            self._prompts.make_cells(2 * len(cells) + first)
        self._prompts.make_room(max(lengths), used=first)
        tokens = [token for prompt in prompts for token in prompt]
        positions = [place for length in lengths for place in range(length)]
        ends = torch.tensor(lengths).cumsum(0) - 1
        logits = self._logits(tokens, positions, PromptPlan(cache=self._prompts, cells=cells, lengths=lengths), ends)
        self._prompt_lengths += lengths
        self._first_logits += list(logits.unbind(0))
        return cells

    def first_logits(self, cell: int) -> Tensor:
        """The logits [V] that follow a prompt that was read."""
        return self._first_logits[cell]

    @torch.inference_mode()
    def start(self, rows: Sequence[Row]) -> None:
        """Add replies to prompts that were read, and draw the first token of each."""
        if not rows:
            return
        logits_RV = torch.stack([self._first_logits[row.prompt] for row in rows])
        self.rows += rows
        self._draw(rows, logits_RV)

    @torch.inference_mode()
    def step(self) -> None:
        """Write the next token of every reply under way."""
        rows = self.rows
        device, dtype = self._forward.device, self._forward.dtype
        lengths = torch.tensor([row.length for row in rows], device=device)
        self._replies.make_room(int(lengths.max()), used=len(rows))
        lanes, places = lanes_of(rows, self.num_prompts)
        plan = StepPlan(
            prompts=self._prompts,
            replies=self._replies,
            rows_R=torch.arange(len(rows), device=device),
            place_R=lengths - 1,
            bias_R11T=bias_up_to(lengths, dtype, self._replies.positions),
            lanes_PJ=torch.tensor(lanes, device=device),
            lane_of_R=torch.tensor(places, device=device),
            prompt_bias_P11T=bias_up_to(
                torch.tensor(self._prompt_lengths, device=device), dtype, self._prompts.positions
            ),
        )
        tokens = [row.tokens[-1] for row in rows]
        positions = [row.prompt_length + row.length - 1 for row in rows]
        self._draw(rows, self._logits(tokens, positions, plan, None))

    @torch.inference_mode()
    def remove(self, leaving: Sequence[Row]) -> None:
        """Drop replies that have ended; the last rows move into their cells."""
        gone = {id(row) for row in leaving}
        for place in sorted((number for number, row in enumerate(self.rows) if id(row) in gone), reverse=True):
            last = len(self.rows) - 1
            if place != last:
                self._replies.move(last, place, self.rows[last].length)
                self.rows[place] = self.rows[last]
            self.rows.pop()

    @torch.inference_mode()
    def forget_prompt(self, cell: int) -> int | None:
        """Drop a prompt that no reply needs; the last one moves into its cell. Returns the cell that was moved, if any."""
        last = self.num_prompts - 1
        moved = None
        if cell != last:
            self._prompts.move(last, cell, self._prompt_lengths[last])
            self._prompt_lengths[cell] = self._prompt_lengths[last]
            self._first_logits[cell] = self._first_logits[last]
            for row in self.rows:
                if row.prompt == last:
                    row.prompt = cell
            moved = last
        self._prompt_lengths.pop()
        self._first_logits.pop()
        return moved

    def clear(self) -> None:
        """Drop everything that is under way."""
        self.rows.clear()
        self._prompt_lengths.clear()
        self._first_logits.clear()

    def free(self) -> None:
        """Give back the caches' memory; nothing may be under way."""
        assert not self.rows
        self._replies.free()
        self._prompts.free()

    def _logits(
        self, tokens: Sequence[int], positions: Sequence[int], plan: AttentionPlan, keep_M: Tensor | None
    ) -> Tensor:
        """Run one flat row of tokens; return the logits at `keep_M`, or at all of them."""
        device = self._forward.device
        return self._forward.logits(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, device=device),
            plan,
            None if keep_M is None else keep_M.to(device),
        )

    def _draw(self, rows: Sequence[Row], logits_RV: Tensor) -> None:
        """Draw each row's next token from its own stream. Rows of one sampling are drawn together."""
        by_sampling: dict[object, list[int]] = {}
        for number, row in enumerate(rows):
            by_sampling.setdefault(row.sampling, []).append(number)
        for members in by_sampling.values():
            sampling = rows[members[0]].sampling
            uniform_R = torch.stack([rows[number].uniforms[rows[number].length] for number in members])
            logits = logits_RV if len(members) == len(rows) else logits_RV[members]
            tokens_R, logprobs_R = draw(
                logits,
                uniform_R.to(logits.device),
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
            )
            drawn = zip(members, tokens_R.tolist(), logprobs_R.tolist(), strict=True)
            for number, token, logprob in drawn:
                rows[number].tokens.append(token)
                rows[number].logprobs.append(logprob)
