"""How a benchmark is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`runs` a side; `quick` makes everything small, to see whether it works; `tune` looks for peers' settings anew."""

    runs: int = 3
    quick: bool = False
    tune: bool = False

    @property
    def suffix(self) -> str:
        """Keeps what quick runs found apart."""
        return "-quick" if self.quick else ""
