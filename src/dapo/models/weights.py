"""Takes weights into a model that is there already: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dapo.errors import RunError


@dataclass(frozen=True, slots=True)
class WeightNames:
    """What a model's weights are called: the shape of each name, and under which names one tied tensor stands."""

    shapes: Mapping[str, tuple[int, ...]]
    ties: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(model: nn.Module) -> WeightNames:
        """Read them from a model."""
        target = model.state_dict()
        by_address: dict[int, tuple[str, ...]] = {}
        for name, tensor in target.items():
            by_address[tensor.data_ptr()] = (*by_address.get(tensor.data_ptr(), ()), name)
        return WeightNames(
            shapes={name: tuple(tensor.shape) for name, tensor in target.items()},
            ties={name: by_address[tensor.data_ptr()] for name, tensor in target.items()},
        )

    def resolve(self, tensors: Mapping[str, Tensor], *, what: str) -> dict[str, Tensor]:
        """Give every name its tensor; tied weights may be there under one of their names. Raises RunError on a misfit."""
        found = {
            name: next((tensors[other] for other in (name, *self.ties[name]) if other in tensors), None)
            for name in self.shapes
        }
        missing = [name for name, tensor in found.items() if tensor is None]
        unknown = [name for name in tensors if name not in self.shapes]
        shapes = [name for name in tensors if name in self.shapes and tuple(tensors[name].shape) != self.shapes[name]]
        if missing or unknown or shapes:
            raise RunError(
                f"{what} does not fit the model: {len(missing)} weights missing {missing[:3]}, {len(unknown)} unknown "
                f"{unknown[:3]}, {len(shapes)} of another shape {shapes[:3]}. Both sides must load the same model."
            )
        return {name: tensor for name, tensor in found.items() if tensor is not None}


@torch.no_grad()
def copy_weights(model: nn.Module, source: Mapping[str, Tensor] | Path, *, what: str) -> None:
    """Copy parameters and buffers by name, casting to the model's precision and device. Raises RunError on a misfit.

    Names and shapes are compared before the first value is copied, so wrong weights leave the model as it was. Tied
    weights may be given under one of their names. `what` names the weights in the error.
    """
    tensors = read_weights(source)
    target = model.state_dict()
    WeightNames.of(model).resolve(tensors, what=what)
    for name, tensor in tensors.items():
        target[name].copy_(tensor)


def read_weights(source: Mapping[str, Tensor] | Path) -> Mapping[str, Tensor]:
    """Weights by name, whether they are there already or in a folder."""
    return read_safetensors(source) if isinstance(source, Path) else source


def read_safetensors(folder: Path) -> dict[str, Tensor]:
    """Read all weights of a folder, whether in one file or in shards."""
    merged: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        merged.update(load_file(file))
    return merged
