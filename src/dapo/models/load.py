"""Model and tokenizer from their files; which device and precision suit the machine."""

from __future__ import annotations

from pickle import UnpicklingError  # noqa: TID251 - the error alone, which torch raises for weights that would run code
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from dapo.errors import ModelError
from dapo.machine import keep_freed_memory
from dapo.models.config import Device, ModelConfig
from dapo.models.render import Renderer
from dapo.models.source import ModelSource, resolve_source


def pick_device(device: Device) -> torch.device:
    """Resolve `auto`, and refuse a device that this machine does not have. Raises ModelError."""
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if has[name]))
    if not has[device]:
        raise ModelError(f"model.device = {device!r} was asked for, and this machine has none. Use `auto` or `cpu`.")
    return torch.device(device)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 matrix products are faster than float32 ones on the device."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type == "cpu":
        try:
            with open("/proc/cpuinfo") as cpuinfo:
                flags = cpuinfo.read()
        except OSError:
            return False
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False


def resolve_precision(precision: str, device: Device) -> torch.dtype:
    """`auto` is bfloat16 where the device is fast at it, and float32 elsewhere."""
    if precision == "auto":
        return torch.bfloat16 if has_fast_bfloat16(pick_device(device)) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """Load the tokenizer alone, and check that it can serve. Raises ModelError."""
    source = resolve_source(config)
    tokenizer: PreTrainedTokenizerBase = _from_pretrained(AutoTokenizer, source)
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"The tokenizer of {config.path} has no end token, so no reply could ever end. Set eos_token in its "
            "tokenizer_config.json to the token that ends a reply."
        )
    if config.chat_template not in (None, "none"):
        with open(str(config.chat_template), encoding="utf-8") as file:
            tokenizer.chat_template = file.read()
    if not tokenizer.chat_template and config.chat_template != "none":
        raise ModelError(
            f"The tokenizer of {config.path} has no chat template, and the task's prompts are chat messages. Use an "
            'instruction-tuned model, or set model.chat_template to a Jinja file, or to "none" for a base model that '
            "is to read plain text."
        )
    return tokenizer


def check_positions(config: ModelConfig, wanted: int) -> None:
    """Refuse, from its settings alone, a model with fewer than `wanted` positions. Raises ModelError."""
    source = resolve_source(config)
    limit = getattr(_from_pretrained(AutoConfig, source).get_text_config(), "max_position_embeddings", None)
    if limit is not None and wanted > limit:
        raise ModelError(
            f"The longest prompt and batch.max_tokens are {wanted} positions together, and {config.path} has {limit}. Lower "
            "batch.max_tokens, or shorten the prompts (batch.max_prompt_tokens)."
        )


def open_renderer(config: ModelConfig) -> Renderer:
    """Load the tokenizer, and know which tokens end a reply. Raises ModelError."""
    tokenizer = load_tokenizer(config)
    return Renderer(tokenizer, end_token_ids(config, tokenizer), plain=config.chat_template == "none")


def load_model(config: ModelConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Load the model on its device in evaluation mode (no dropout: a ratio compares like with like).

    The process then keeps memory that it frees (see `dapo.machine`). Raises ModelError, also for a file that lacks some of
    the weights: transformers would put random numbers there.
    """
    keep_freed_memory()
    source = resolve_source(config)
    model: PreTrainedModel
    model, report = _from_pretrained(AutoModelForCausalLM, source, dtype=dtype, output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"The files of {config.path} lack {len(missing)} of the weights that its config.json asks for, "
            f"{', '.join(missing[:3])} among them. Fetch or save the model again."
        )
    model.train(False)
    placed: PreTrainedModel = model.to(pick_device(config.device))  # type: ignore[arg-type]
    return placed


def end_token_ids(config: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that ends a reply: the tokenizer's own and those of the model's generation settings."""
    source = resolve_source(config)
    declared: list[int | None] = [tokenizer.eos_token_id]
    try:
        settings = GenerationConfig.from_pretrained(source.name, revision=source.revision or "main")
    except OSError:  # a model need not have generation settings
        return frozenset(token for token in declared if token is not None)
    ids = settings.eos_token_id
    declared += ids if isinstance(ids, list) else [ids]
    return frozenset(int(token) for token in declared if token is not None)


def quiet_transformers() -> None:
    """Leave the screen to this program: no bars of its own, and only what is an error."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def _from_pretrained(kind: Any, source: ModelSource, **settings: Any) -> Any:
    quiet_transformers()
    try:
        return kind.from_pretrained(
            source.name, revision=source.revision, trust_remote_code=source.trust_remote_code, **settings
        )
    except UnpicklingError as error:
        raise ModelError(
            f"{kind.__name__} could not read {source.name}: its .bin file holds something else than tensors, which is not "
            "read because that could run code; or the file is damaged. Use a model with .safetensors files."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, RuntimeError, EOFError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(
            f"{kind.__name__} could not read {source.name}: {reason} Check the name and the files, and the network "
            "or the local cache if it is a Hub id."
        ) from error
