"""Takes weights into a model that is there already: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dapo.errors import RunError


@torch.no_grad()
def copy_weights(model: nn.Module, source: Mapping[str, Tensor] | Path, *, what: str) -> None:
    """Copy parameters and buffers by name, casting to the model's precision and device. Raises RunError on a misfit.

    Names and shapes are compared before the first value is copied, so wrong weights leave the model as it was. Tied
    weights may be given under one of their names. `what` names the weights in the error.
    """
    tensors = read_safetensors(source) if isinstance(source, Path) else source
    target = model.state_dict()
    addresses = {tensor.data_ptr() for name, tensor in target.items() if name in tensors}
    missing = [name for name, tensor in target.items() if name not in tensors and tensor.data_ptr() not in addresses]
    unknown = [name for name in tensors if name not in target]
    shapes = [name for name in tensors if name in target and tensors[name].shape != target[name].shape]
    if missing or unknown or shapes:
        raise RunError(
            f"{what} does not fit the model: {len(missing)} weights missing {missing[:3]}, {len(unknown)} unknown "
            f"{unknown[:3]}, {len(shapes)} of another shape {shapes[:3]}. Both sides must load the same model."
        )
    for name, tensor in tensors.items():
        target[name].copy_(tensor)


def read_safetensors(folder: Path) -> dict[str, Tensor]:
    """Read all weights of a folder, whether in one file or in shards."""
    merged: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        merged.update(load_file(file))
    return merged
