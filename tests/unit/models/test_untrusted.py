"""Code that comes with a model does not run unless it is asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dapo.errors import ModelError
from dapo.models.config import ModelConfig
from dapo.models.load import check_positions, load_model, load_tokenizer

CODE = """
from pathlib import Path

Path({marker!r}).write_text("the code has run")
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def untrusted(tiny: Callable[..., Path], tmp_path: Path) -> Path:
    """A model folder whose config names code beside it, and that code leaves a mark."""
    folder = tmp_path / "untrusted"
    shutil.copytree(tiny(), folder)
    content = json.loads((folder / "config.json").read_text())
    content |= {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"},
    }
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "own_code.py").write_text(CODE.format(marker=str(tmp_path / "marker")))
    return folder


def test_code_beside_a_model_does_not_run_unless_it_is_asked_for(
    untrusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = ModelConfig(path=str(untrusted), device="cpu")
    assert config.trust_remote_code is False
    for refused in (
        lambda: load_model(config, torch.float32),
        lambda: check_positions(config, 10),
    ):
        with pytest.raises(ModelError, match="could not read"):
            refused()
    load_tokenizer_or_refuse(config)
    assert not (tmp_path / "marker").exists()


def load_tokenizer_or_refuse(config: ModelConfig) -> None:
    """A tokenizer needs none of the code: either answer is right, as long as the code does not run."""
    try:
        load_tokenizer(config)
    except ModelError:
        return


class RunsCode:
    """Pickled, it leaves a mark where it is read."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._marker,)


@pytest.mark.parametrize("content", ["code", "empty", "garbage", "list"])
def test_a_pickled_model_is_refused_in_words_and_nothing_in_it_runs(
    tiny: Callable[..., Path], tmp_path: Path, content: str
) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(tiny(), folder)
    (folder / "model.safetensors").unlink()
    weights = folder / "pytorch_model.bin"
    if content in ("code", "list"):
        torch.save({"a": RunsCode(tmp_path / "marker")} if content == "code" else [3], weights)
    else:
        weights.write_bytes(b"" if content == "empty" else b"x" * 100)
    with pytest.raises(ModelError, match="could not read") as refused:
        load_model(ModelConfig(path=str(folder), device="cpu"), torch.float32)
    message = str(refused.value)
    if content in ("code", "garbage"):
        assert "its .bin file holds something else than tensors" in message and ".safetensors" in message
    assert "weights_only" not in message
    assert not (tmp_path / "marker").exists()
