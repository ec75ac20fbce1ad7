"""Mixed precision by an explicit copy: weights and optimizer in float32, the passes through the model in bfloat16.

The copy computes just as an engine does that holds the same weights in bfloat16, and the weights are cast once an update.
Gradients are added up in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class ComputeCopy:
    """`model` is what forward and backward run on; gradients arrive at the parameters of the float32 `master`.

    With float32 as precision both are the same model and nothing is copied.
    """

    def __init__(self, master: PreTrainedModel, precision: torch.dtype) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self.model = master
        if precision == torch.float32:
            return
        self.model = copy.deepcopy(master)
        # Buffers stay as they are: a rotary embedding's frequencies need their float32.
        for own, narrow in zip(master.parameters(), self.model.parameters(), strict=True):
            narrow.data = own.data.to(precision)
            narrow.register_post_accumulate_grad_hook(_hand_over(own))  # type: ignore[no-untyped-call]
            self._pairs.append((own, narrow))
        self._pairs += list(zip(master.buffers(), self.model.buffers(), strict=True))

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the master's weights and buffers anew, after an update."""
        for own, narrow in self._pairs:
            narrow.copy_(own)


def _hand_over(own: nn.Parameter) -> Callable[[Tensor], None]:
    """Add a gradient that has just arrived to the master's. Its memory stays between updates: to get it from the system
    each time costs more than the sum."""
    kept: list[Tensor] = []

    def move(narrow: Tensor) -> None:
        assert narrow.grad is not None
        if own.grad is not None:
            own.grad.add_(narrow.grad)
        else:
            if not kept:
                kept.append(torch.empty_like(own))
            own.grad = kept[0].copy_(narrow.grad)
        narrow.grad = None

    return move
