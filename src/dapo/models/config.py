"""The recipe's `[model]` section. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dapo.frozen import Frozen

Device = Literal["auto", "cuda", "mps", "cpu"]


class ModelConfig(Frozen):
    """Which policy to train and where to put it."""

    path: str = Field(min_length=1)
    """A Hub id (`Qwen/Qwen2.5-0.5B`), a local folder, or `package:NAME` for a GGUF file inside an installed package
    (`package:NAME/FILE.gguf` where it holds several)."""
    revision: str | None = None
    """Branch, tag or commit of a Hub id. Name a commit to make a run repeatable."""
    chat_template: str | None = None
    """Path of a Jinja file to use instead of the tokenizer's own template, or `none`: contents joined by blank lines,
    for base models."""
    device: Device = "auto"
    """`auto` takes CUDA, then MPS, then the processor."""
    trust_remote_code: bool = False
    """Whether Python code that comes with the model may run. Only for models whose code you have read."""
