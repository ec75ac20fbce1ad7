"""Keys and values in static buffers. Letters: L layers, C cells, K key-value heads, T positions, D head width."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of up to `cells` sequences: [L, C, K, T, D] each. Room for positions is doubled when it runs out.

    The shape of a head is learnt from the first keys that are written, so no model's settings have to be interpreted.
    """

    def __init__(self, layers: int, cells: int, positions: int) -> None:
        self._layers = layers
        self._cells = cells
        self._positions = positions
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def cells(self) -> int:
        """Sequences that there are places for."""
        return self._cells

    @property
    def positions(self) -> int:
        """Positions that each sequence has room for."""
        return self._positions

    def make_room(self, positions: int, *, used: int) -> None:
        """Make sure that position `positions - 1` exists; what the first `used` cells hold stays."""
        if positions <= self._positions:
            return
        wider = max(positions, 2 * self._positions)
        if self._keys is not None and self._values is not None:
            self._keys, self._values = (_widened(buffer, wider, used) for buffer in (self._keys, self._values))
        self._positions = wider

    def make_cells(self, cells: int) -> None:
        """Make sure that cell `cells - 1` exists."""
        if cells <= self._cells:
            return
        if self._keys is not None and self._values is not None:
            self._keys, self._values = _with_cells(self._keys, cells), _with_cells(self._values, cells)
        self._cells = cells

    def layer(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, [C, K, T, D]; made in the shape, precision and place of `like` [K, N, D]."""
        if self._keys is None or self._values is None:
            heads, _, width = like.shape
            shape = (self._layers, self._cells, heads, self._positions, width)
            # Zeros, not whatever was there: a masked position still meets a value, and 0 * NaN is NaN.
            self._keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
            self._values = torch.zeros(shape, dtype=like.dtype, device=like.device)
        return self._keys[layer], self._values[layer]

    def move(self, source: int, target: int, positions: int) -> None:
        """Copy the first positions of one cell to another, in all layers."""
        for buffer in (self._keys, self._values):
            if buffer is not None:
                buffer[:, target, :, :positions] = buffer[:, source, :, :positions]

    def free(self) -> None:
        """Give the memory back."""
        self._keys = self._values = None


def _widened(buffer: Tensor, positions: int, used: int) -> Tensor:
    layers, cells, heads, old, width = buffer.shape
    wider = buffer.new_zeros(layers, cells, heads, positions, width)
    wider[:, :used, :, :old] = buffer[:, :used]  # zeros that nobody touches take no memory
    return wider


def _with_cells(buffer: Tensor, cells: int) -> Tensor:
    layers, old, heads, positions, width = buffer.shape
    larger = buffer.new_zeros(layers, cells, heads, positions, width)
    larger[:, :old] = buffer
    return larger
