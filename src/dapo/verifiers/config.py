"""What a recipe may say about answer verification. Readable without torch or sympy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from dapo.frozen import Frozen
from dapo.verifiers.grades import VerifierName

if TYPE_CHECKING:
    from dapo.verifiers.pool import VerifierPool


class VerifierConfig(Frozen):
    """How answers are graded. `verifier = "dapo"` is short for `verifier = { name = "dapo" }`."""

    name: VerifierName = "math"
    """`math`: is the final answer equal to the gold? `dapo`: the DAPO authors' rule, for people who reproduce."""
    watch: VerifierName | None = None
    """A second verifier that grades too and decides nothing; how often it disagrees is a metric."""
    seconds: float = Field(default=5.0, gt=0, le=600)
    """How long one answer may be thought about before it counts as wrong and as a verifier error."""
    memory_mb: int = Field(default=1024, ge=512, le=65_536)
    """How much address space, in MiB, one worker process may take."""
    workers: int = Field(default=2, ge=1, le=64)
    """How many processes do symbolic mathematics; they start when the first answer needs them."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _watch_another(self) -> VerifierConfig:
        if self.watch == self.name:
            raise ValueError(f'watch = "{self.watch}" would watch itself; name the other verifier, or leave watch out')
        return self

    def build(self) -> VerifierPool:
        """Make the pool; no process starts before an answer needs one."""
        from dapo.verifiers.pool import VerifierPool

        return VerifierPool(
            self.name, watch=self.watch, seconds=self.seconds, memory_mb=self.memory_mb, workers=self.workers
        )
