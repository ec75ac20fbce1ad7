"""The trainer's state on disk: safetensors and JSON, nothing that could run code."""

from __future__ import annotations

import json
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
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        for key in _KEYS:
            if key in state:
                tensors[f"{name}/{key}"] = state[key].detach().cpu().contiguous()
    save_file(tensors, folder / _OPTIMIZER)
    (folder / _COUNTERS).write_text(json.dumps({"updates": updates}) + "\n", encoding="utf-8")


def load_trainer_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take back the moments; return the count of updates."""
    tensors = load_file(folder / _OPTIMIZER)
    for name, parameter in model.named_parameters():
        state = {key: tensors[f"{name}/{key}"] for key in _KEYS if f"{name}/{key}" in tensors}
        if state:
            moved = {key: value if key == "step" else value.to(parameter.device) for key, value in state.items()}
            optimizer.state[parameter] = moved
    counters = json.loads((folder / _COUNTERS).read_text(encoding="utf-8"))
    return int(counters["updates"])
