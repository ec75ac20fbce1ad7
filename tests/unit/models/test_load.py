from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dapo.errors import ModelError
from dapo.models.config import ModelConfig
from dapo.models.load import end_token_ids, load_model, load_tokenizer, open_renderer, pick_device, resolve_precision

Tiny = Callable[..., Path]


@pytest.fixture
def copied(tiny: Tiny, tmp_path: Path) -> Path:
    """A tiny model that a test may spoil."""
    return Path(shutil.copytree(tiny(), tmp_path / "model"))


def test_a_tokenizer_without_an_end_token_is_refused(tiny: Tiny) -> None:
    folder = tiny(eos=False)

    with pytest.raises(ModelError, match=r"has no end token, so no reply could ever end\. Set eos_token"):
        load_tokenizer(ModelConfig(path=str(folder)))


def test_a_tokenizer_without_a_template_is_refused_unless_plain_text_is_wanted(tiny: Tiny) -> None:
    folder = tiny(template=None)

    with pytest.raises(ModelError, match=r"has no chat template.*set model\.chat_template to a Jinja file, or"):
        load_tokenizer(ModelConfig(path=str(folder)))
    assert load_tokenizer(ModelConfig(path=str(folder), chat_template="none")).eos_token == "<|end|>"


def test_a_folder_without_a_tokenizer_is_refused_by_its_name(copied: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()

    with pytest.raises(ModelError, match="could not read") as error:
        load_tokenizer(ModelConfig(path=str(copied)))
    assert str(copied) in str(error.value)


def test_a_folder_without_weights_is_refused_by_its_name(copied: Path) -> None:
    (copied / "model.safetensors").unlink()

    with pytest.raises(ModelError, match="could not read") as error:
        load_model(ModelConfig(path=str(copied)), torch.float32)
    assert str(copied) in str(error.value)


def test_weights_that_are_cut_off_are_refused(copied: Path) -> None:
    whole = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(ModelError, match="could not read"):
        load_model(ModelConfig(path=str(copied)), torch.float32)


def test_weights_that_lack_a_layer_are_refused(copied: Path) -> None:
    """A layer that the file lacks would be filled with random numbers, and training would start from a ruined model."""
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    weights.pop("model.layers.1.mlp.down_proj.weight")
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelError, match="down_proj"):
        load_model(ModelConfig(path=str(copied)), torch.float32)


def test_the_model_is_in_the_precision_and_mode_that_are_wanted(tiny: Tiny) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = load_model(ModelConfig(path=str(tiny()), device="cpu"), dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        assert not model.training
        assert model.device == torch.device("cpu")


def test_end_tokens_are_the_tokenizers_and_those_of_the_generation_settings(copied: Path) -> None:
    config = ModelConfig(path=str(copied))
    tokenizer = load_tokenizer(config)
    settings = copied / "generation_config.json"

    assert end_token_ids(config, tokenizer) == {2, 3}
    settings.write_text(json.dumps({"eos_token_id": 3}), encoding="utf-8")
    assert end_token_ids(config, tokenizer) == {2, 3}
    settings.write_text(json.dumps({"bos_token_id": 1}), encoding="utf-8")
    assert end_token_ids(config, tokenizer) == {2}
    settings.unlink()
    assert open_renderer(config).end_tokens == {2}


def test_a_device_that_is_not_there_is_refused() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match=r"model\.device = 'cuda' was asked for, and this machine has none"):
            pick_device("cuda")


def test_a_named_precision_is_what_it_says() -> None:
    assert resolve_precision("float32", "cpu") is torch.float32
    assert resolve_precision("bfloat16", "cpu") is torch.bfloat16
    assert resolve_precision("auto", "cpu") in (torch.float32, torch.bfloat16)
