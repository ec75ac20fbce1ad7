"""The trainer's state on disk: safetensors and JSON, nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

_OPTIMIZER = "optimizer.safetensors"
_COUNTERS = "trainer.json"
_KEYS = ("exp_avg", "exp_avg_sq", "step")


def save_trainer_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, updates: int) -> None:
    """Write AdamW's moments by parameter name, and the count of updates."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(moments(model.named_parameters(), optimizer), folder / _OPTIMIZER)
    (folder / _COUNTERS).write_text(json.dumps({"updates": updates}) + "\n", encoding="utf-8")


def load_trainer_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take back the moments; return the count of updates."""
    load_moments(model.named_parameters(), optimizer, load_file(folder / _OPTIMIZER))
    counters = json.loads((folder / _COUNTERS).read_text(encoding="utf-8"))
    return int(counters["updates"])


def moments(named: Iterable[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's state as tensors named `PARAMETER/KEY`; a parameter that was never updated has none."""
    found: dict[str, Tensor] = {}
    for name, parameter in named:
        state = optimizer.state.get(parameter, {})
        found |= {f"{name}/{key}": state[key].detach().cpu().contiguous() for key in _KEYS if key in state}
    return found


def load_moments(
    named: Iterable[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer, stored: Mapping[str, Tensor]
) -> None:
    """Take back what `moments` gave."""
    for name, parameter in named:
        state = {key: stored[f"{name}/{key}"] for key in _KEYS if f"{name}/{key}" in stored}
        if state:
            # The count of steps stays where the optimizer keeps it; the moments lie beside the parameter.
            optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in state.items()
            }
