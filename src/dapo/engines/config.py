"""The recipe's `[engine]` section. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dapo.frozen import Frozen

if TYPE_CHECKING:
    from dapo.engines.hf import HFEngine
    from dapo.engines.native.engine import NativeEngine
    from dapo.models.config import ModelConfig
    from dapo.models.render import Renderer

Precision = Literal["auto", "float32", "bfloat16"]


class HFConfig(Frozen):
    """transformers' own generation, in this process, on the processor or one GPU."""

    type: Literal["hf"] = "hf"
    precision: Precision = "auto"
    """Precision of the engine's copy of the weights. `auto`: bfloat16 where the machine is fast at it."""
    max_rows: int = Field(128, ge=1)
    """Replies that are generated side by side."""

    def build(self, model: ModelConfig, renderer: Renderer) -> HFEngine:
        """Load the engine's own copy of the model."""
        from dapo.engines.hf import HFEngine
        from dapo.models.load import load_model, resolve_precision

        return HFEngine(
            load_model(model, resolve_precision(self.precision, model.device)), renderer, max_rows=self.max_rows
        )


class NativeConfig(Frozen):
    """Continuous batching in this process: the prompt of a group is read once, a finished reply frees its place at once."""

    type: Literal["native"] = "native"
    precision: Precision = "auto"
    """Precision of the engine's copy of the weights. `auto`: bfloat16 where the machine is fast at it."""
    max_rows: int = Field(128, ge=1)
    """Replies that are generated side by side."""

    def build(self, model: ModelConfig, renderer: Renderer) -> NativeEngine | HFEngine:
        """Load the engine's own copy of the model. Where attention cannot be planned, engine `hf` serves, with a warning."""
        from dapo.engines.pick import native_or_hf
        from dapo.models.load import load_model, resolve_precision

        loaded = load_model(model, resolve_precision(self.precision, model.device))
        return native_or_hf(loaded, renderer, max_rows=self.max_rows)


EngineConfig = Annotated[HFConfig | NativeConfig, Field(discriminator="type")]
