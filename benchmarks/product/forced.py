"""Replies of given lengths, so that both sides of a comparison write the same number of tokens.

This is the one place of the benchmarks that knows the inside of the engine: how it decides that a reply has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dapo.engines.native.engine import NativeEngine
from dapo.types import Finish

Lengths = Mapping[tuple[int, ...], Sequence[int]]
"""By the token ids of a prompt: the length of each reply of its group."""


def force_lengths(lengths: Lengths) -> None:
    """From here on, reply number i to a prompt ends at `lengths[prompt][i]` tokens; end tokens end nothing."""
    assert callable(getattr(NativeEngine, "_finish", None)), "the engine ends replies elsewhere now: change this file"

    def finish(self: NativeEngine, row: object) -> Finish | None:
        wanted = lengths[row.owner.prompt.token_ids][row.index]  # type: ignore[attr-defined]
        return Finish.LENGTH if row.length >= wanted else None  # type: ignore[attr-defined]

    NativeEngine._finish = finish  # type: ignore[method-assign]
