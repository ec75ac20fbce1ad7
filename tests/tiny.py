"""Tiny random models in Hugging Face format, made in a moment: 2 layers, 64 wide, one token a character."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    Gemma2Config,
    GenerationConfig,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.gemma2.modeling_gemma2 import Gemma2ForCausalLM
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM
from transformers.utils import logging

Kind = Literal["llama", "qwen2", "qwen3", "gemma2"]

BEGIN, END, USER, ASSISTANT = "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"
TURN = "<|turn|>"
"""A second end token, which the generation settings alone name."""
THINK, END_THINK = "<think>", "</think>"
UNKNOWN = "<|unknown|>"
SPECIAL = (UNKNOWN, BEGIN, END, TURN, USER, ASSISTANT, "<|system|>", THINK, END_THINK)
CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Writes the begin token itself, as Llama's templates do, while the tokenizer would put one in front too."""

_KINDS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM),
}
_OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "gemma2": {
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
    },  # soft caps, and a window that is felt
}


def make_tiny(
    folder: Path,
    *,
    kind: Kind = "llama",
    template: Literal["chat"] | None = "chat",
    characters: str = CHARACTERS,
    seed: int = 0,
    spread: float = 0.2,
    positions: int = 512,
    tied: bool = False,
    eos: bool = True,
    generation: tuple[tuple[str, Any], ...] = (),
) -> Path:
    """Write a random model with its tokenizer and generation settings into `folder`; the same seed gives the same one.

    `spread` is the standard deviation of the weights: at 0.02 the next token is nearly uniform, at 0.2 some tokens are
    much likelier than others. Norms and biases are random too, so that nothing may be left out unseen. `generation`
    holds more of the model's generation settings, e.g. `(("repetition_penalty", 1.1),)`.
    """
    logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(template=template, characters=characters, eos=eos)
    tokenizer.save_pretrained(str(folder))
    model = make_model(kind, vocab_size=len(tokenizer), seed=seed, spread=spread, positions=positions, tied=tied)
    model.generation_config = GenerationConfig(
        bos_token_id=SPECIAL.index(BEGIN),
        eos_token_id=[SPECIAL.index(END), SPECIAL.index(TURN)] if eos else None,
        **dict(generation),
    )
    model.save_pretrained(str(folder))
    return folder


def make_tokenizer(
    *, template: Literal["chat"] | None = "chat", characters: str = CHARACTERS, eos: bool = True
) -> PreTrainedTokenizerFast:
    """A tokenizer of one token a character, which puts a begin token in front unless it is told not to."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *map(_as_byte, characters)])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, vocabulary[BEGIN])]
    )
    others = [token for token in SPECIAL if token not in (BEGIN, END, UNKNOWN)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=BEGIN,
        eos_token=END if eos else None,
        unk_token=UNKNOWN,
        pad_token=UNKNOWN,
        additional_special_tokens=others if eos else [*others, END],
    )
    tokenizer.chat_template = CHAT_TEMPLATE if template == "chat" else None
    return tokenizer


def _as_byte(character: str) -> str:
    """How a byte-level vocabulary spells an ASCII character."""
    return {" ": "Ġ", "\n": "Ċ"}.get(character, character)


def make_model(
    kind: Kind, *, vocab_size: int, seed: int = 0, spread: float = 0.2, positions: int = 512, tied: bool = False
) -> PreTrainedModel:
    """A random model of a kind, float32, in evaluation mode; torch's own random state is left as it was."""
    make_config, make = _KINDS[kind]
    config = make_config(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        tie_word_embeddings=tied,
        bos_token_id=SPECIAL.index(BEGIN),
        eos_token_id=SPECIAL.index(END),
        **_OWN_SETTINGS.get(kind, {}),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = make(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                centre = 1.0 if "norm" in name else 0.0
                parameter.copy_(centre + spread * torch.randn(parameter.shape))
    model.train(False)
    return model
