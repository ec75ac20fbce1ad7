from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dapo.errors import RunError
from dapo.models.weights import copy_weights, read_safetensors


class Small(nn.Module):
    """Two weights that are one, and a buffer."""

    def __init__(self, value: float, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False, dtype=dtype)
        self.second = nn.Linear(2, 2, bias=False, dtype=dtype)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((2,), value, dtype=dtype))
        nn.init.constant_(self.first.weight, value)


def values(model: nn.Module) -> dict[str, list[float]]:
    return {name: sorted(set(tensor.flatten().tolist())) for name, tensor in model.state_dict().items()}


def test_parameters_and_buffers_are_copied() -> None:
    model = Small(1.0)

    copy_weights(model, Small(2.0).state_dict(), what="The policy")

    assert values(model) == {"first.weight": [2.0], "second.weight": [2.0], "scale": [2.0]}
    assert model.second.weight is model.first.weight


@pytest.mark.parametrize("left_out", ["first.weight", "second.weight"])
def test_tied_weights_may_come_under_one_of_their_names(left_out: str) -> None:
    model = Small(1.0)
    weights = Small(2.0).state_dict()
    weights.pop(left_out)

    copy_weights(model, weights, what="The policy")

    assert values(model) == {"first.weight": [2.0], "second.weight": [2.0], "scale": [2.0]}


def test_values_are_cast_to_the_models_precision() -> None:
    model = Small(1.0, dtype=torch.bfloat16)

    copy_weights(model, Small(1.00390625).state_dict(), what="The policy")

    assert model.scale.dtype is torch.bfloat16
    assert values(model)["scale"] == [1.0]  # between 1 and 1.0078125; the even one is taken


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": None}, r"1 weights missing \['scale'\], 0 unknown"),
        ({"first.weight": None, "second.weight": None}, r"2 weights missing"),
        ({"stranger": torch.zeros(1)}, r"1 unknown \['stranger'\]"),
        ({"scale": torch.zeros(3)}, r"1 of another shape \['scale'\]"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(change: dict[str, torch.Tensor | None], message: str) -> None:
    model = Small(1.0)
    weights = {**Small(2.0).state_dict(), **change}
    fitting = {name: tensor for name, tensor in weights.items() if tensor is not None}

    with pytest.raises(RunError, match=rf"The policy of version 7 does not fit the model: .*{message}"):
        copy_weights(model, fitting, what="The policy of version 7")

    assert values(model) == {"first.weight": [1.0], "second.weight": [1.0], "scale": [1.0]}


def test_a_folder_may_hold_one_file_or_shards(tmp_path: Path) -> None:
    weights = Small(2.0).state_dict()
    save_file({"first.weight": weights["first.weight"]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"scale": weights["scale"]}, tmp_path / "model-00002-of-00002.safetensors")
    model = Small(1.0)

    copy_weights(model, tmp_path, what="The policy")

    assert sorted(read_safetensors(tmp_path)) == ["first.weight", "scale"]
    assert values(model) == {"first.weight": [2.0], "second.weight": [2.0], "scale": [2.0]}


def test_a_folder_without_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="3 weights missing"):
        copy_weights(Small(1.0), tmp_path, what="The checkpoint")
