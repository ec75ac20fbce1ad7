"""The trainer's state on disk: safetensors and JSON, nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

_OPTIMIZER = "optimizer.safetensors"
_COUNTERS = "trainer.json"
_KEYS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSnapshot:
    """The whole state of a trainer, copied into the processor's memory: training goes on while it is written.

    The next snapshot of the same trainer is copied over this one.
    `model` is there for its configuration, which training does not change. `parts` holds tensors by name, by the name
    of the file that they go to, beside the policy's.
    """

    model: PreTrainedModel
    policy: Mapping[str, Tensor]
    parts: Mapping[str, Mapping[str, Tensor]]
    updates: int

    @property
    def num_bytes(self) -> int:
        """What the tensors will take on the disk; names and settings come on top."""
        tensors = [*self.policy.values(), *(tensor for part in self.parts.values() for tensor in part.values())]
        return sum({(tensor.data_ptr(), tensor.nbytes): tensor.nbytes for tensor in tensors}.values())

    def write(self, folder: Path) -> None:
        """Write the policy in Hugging Face format into `folder`, and all else that a trainer restores into `folder/trainer`."""
        self.model.save_pretrained(str(folder), state_dict=dict(self.policy))
        self.write_parts(folder / "trainer")

    def write_parts(self, folder: Path) -> None:
        """Write what stands beside the policy: tensors as safetensors, the count of updates as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, tensors in self.parts.items():
            save_file(dict(tensors), folder / name)
        (folder / _COUNTERS).write_text(json.dumps({"updates": self.updates}) + "\n", encoding="utf-8")


class Buffers:
    """Memory that snapshots are copied into, kept from one to the next: fresh memory costs more than the copy itself."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def copy(self, prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies in the processor's memory; what was one tensor under two names stays one, as tied weights are."""
        made: dict[tuple[object, ...], Tensor] = {}
        found = {}
        for name, tensor in tensors.items():
            unique = "" if tensor.nbytes else name
            place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), unique)
            if place not in made:
                made[place] = self._buffer(f"{prefix}/{name}", tensor).copy_(tensor.detach())
            found[name] = made[place]
        return found

    def _buffer(self, name: str, like: Tensor) -> Tensor:
        kept = self._tensors.get(name)
        if kept is None or kept.shape != like.shape or kept.dtype != like.dtype:
            kept = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
            self._tensors[name] = kept
        return kept


def take_snapshot(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    others: Mapping[str, Mapping[str, Tensor]],
    *,
    updates: int,
    buffers: Buffers,
) -> TrainerSnapshot:
    """Copy the policy, AdamW's moments by parameter name, and the tensors of `others` by the name of their file."""
    parts = {_OPTIMIZER: moments(model.named_parameters(), optimizer)}
    parts |= {name: dict(tensors) for name, tensors in others.items() if tensors}
    return TrainerSnapshot(
        model=model,
        policy=buffers.copy("policy", model.state_dict()),
        parts={name: buffers.copy(name, tensors) for name, tensors in parts.items()},
        updates=updates,
    )


def load_trainer_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take back the moments; return the count of updates."""
    load_moments(model.named_parameters(), optimizer, load_file(folder / _OPTIMIZER))
    counters = json.loads((folder / _COUNTERS).read_text(encoding="utf-8"))
    return int(counters["updates"])


def moments(named: Iterable[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's own tensors, named `PARAMETER/KEY`; a parameter that was never updated has none."""
    found: dict[str, Tensor] = {}
    for name, parameter in named:
        state = optimizer.state.get(parameter, {})
        found |= {f"{name}/{key}": state[key].detach() for key in _KEYS if key in state}
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
