from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, MistralConfig, PreTrainedModel, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from dapo.models.attention import UnsupportedAttentionError
from dapo.models.load import load_model
from dapo.trainers.forward import Forward, PackedForward, PaddedForward
from dapo.trainers.fused import FusedForward
from dapo.trainers.pick import choose_forward, why_not
from tests.contract.parts import model_config

Tiny = Callable[..., Path]
Rows = tuple[tuple[tuple[int, ...], ...], Tensor, Tensor]

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def randomised(model: PreTrainedModel) -> PreTrainedModel:
    """Every parameter random, biases and norms too, so that none can be left out unseen."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(float("norm" in name) + 0.2 * torch.randn(parameter.shape, generator=generator))
    model.train(False)
    return model


def llama_with_biases() -> PreTrainedModel:
    """Biases in every product, long positions turned by Llama 3's rule, and another epsilon than usual."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    config = LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=rope, rms_norm_eps=1e-2)
    return randomised(LlamaForCausalLM(config))


def yarn_llama() -> PreTrainedModel:
    """A turn that is stretched: cosine and sine are scaled."""
    rope = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
    return randomised(LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope)))


def wide_qwen3() -> PreTrainedModel:
    """Heads that together are wider than the model, biases beside their norms, and one key-value head for all."""
    config = Qwen3Config(**{**SIZES, "num_key_value_heads": 1}, head_dim=16, attention_bias=True, rms_norm_eps=1e-2)
    return randomised(Qwen3ForCausalLM(config))


def mistral(sliding_window: int | None = None) -> PreTrainedModel:
    return randomised(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=sliding_window)))


MADE: dict[str, Callable[[], PreTrainedModel]] = {
    "llama with biases": llama_with_biases,
    "llama with yarn": yarn_llama,
    "wide qwen3": wide_qwen3,
    "mistral": mistral,
}
STORED: dict[str, dict[str, object]] = {
    "llama": {},
    "tied llama": {"tied": True},
    "qwen2": {"kind": "qwen2"},
    "tied qwen3": {"kind": "qwen3", "tied": True},
    "qwen3": {"kind": "qwen3"},
}

every_model = pytest.mark.parametrize("name", [*MADE, *STORED])


def open_model(tiny: Tiny, name: str) -> PreTrainedModel:
    if name in MADE:
        return MADE[name]()
    return load_model(model_config(tiny(**STORED[name])), torch.float32)


def rows() -> Rows:
    """Three groups: prompts of 4, 1 and 9 tokens, replies of 1 to 11, one group of a single reply."""
    generator = torch.Generator().manual_seed(4)
    prompts = ((7, 3, 11, 30),) * 3 + ((5,),) * 2 + ((9, 8, 7, 6, 5, 4, 3, 2, 1),)
    tokens_BT = torch.randint(60, (6, 11), generator=generator)
    return prompts, tokens_BT, torch.tensor([11, 1, 6, 3, 4, 8])


def inside(lengths_B: Tensor) -> Tensor:
    return torch.arange(int(lengths_B.max())) < lengths_B.unsqueeze(1)


def run(forward: Forward, *, temperature: float = 0.7) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Log-probabilities and entropy of each reply token, and the gradients for an upstream that tells tokens apart."""
    prompts, tokens_BT, lengths_B = rows()
    found = forward.logprobs(prompts, tokens_BT, lengths_B, temperature)
    mask = inside(lengths_B)
    logprobs = found.logprobs_BT[mask]
    upstream = torch.linspace(0.5, 9.0, logprobs.numel()).sin().to(logprobs.dtype)
    forward.model.zero_grad()
    (upstream * logprobs).sum().backward()
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in forward.model.named_parameters()
    }
    forward.model.zero_grad()
    return logprobs.detach(), found.entropy_BT[mask].detach(), gradients


def distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


@every_model
def test_log_probabilities_and_gradients_are_the_models_own(tiny: Tiny, name: str) -> None:
    model = open_model(tiny, name)
    wanted = run(PaddedForward(model))

    found = run(FusedForward(model))

    assert (found[0] - wanted[0]).abs().max() < 1e-5 * (1 + wanted[0].abs().max())
    assert (found[1] - wanted[1]).abs().max() < 1e-5 * (1 + wanted[1].abs().max())
    assert found[2].keys() == wanted[2].keys()
    for parameter, gradient in found[2].items():
        own = wanted[2][parameter]
        if parameter.endswith("k_proj.bias") and name != "wide qwen3":
            # Before a turn a bias on all keys shifts scores by what depends on the place: small, but not nothing.
            assert (gradient - own).norm() < 1e-5 * max(float(own.norm()), 1.0), parameter
        else:
            assert bool(own.any()), parameter
            assert distance(gradient, own) < 1e-5, parameter


@pytest.mark.parametrize("name", ["llama with biases", "llama with yarn", "wide qwen3"])
def test_in_float64_they_differ_by_next_to_nothing(tiny: Tiny, name: str) -> None:
    """The norms of transformers are float32 whatever the model is, so its own values are no nearer than that."""
    model = open_model(tiny, name).double()
    wanted, found = run(PaddedForward(model)), run(FusedForward(model))
    assert found[0].dtype == torch.float64
    assert distance(found[0], wanted[0]) < 1e-6
    assert all(distance(found[2][parameter], own) < 1e-5 for parameter, own in wanted[2].items() if own.norm() > 1e-6)


@every_model
def test_running_layers_again_gives_the_very_same_gradient(tiny: Tiny, name: str) -> None:
    model = open_model(tiny, name)
    kept, again = run(FusedForward(model)), run(FusedForward(model, checkpointing=True))
    assert torch.equal(kept[0], again[0]) and torch.equal(kept[1], again[1])
    assert all(torch.equal(gradient, again[2][parameter]) for parameter, gradient in kept[2].items())


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_the_hidden_states_are_those_that_a_critic_would_read_from_the_model(tiny: Tiny, name: str) -> None:
    model = open_model(tiny, name)
    prompts, tokens_BT, lengths_B = rows()

    def spread(forward: Forward) -> Tensor:
        hidden_MD, row_M, column_M = forward.hidden(prompts, tokens_BT, lengths_B)
        whole = hidden_MD.new_zeros(*tokens_BT.shape, hidden_MD.shape[1])
        return whole.index_put((row_M, column_M), hidden_MD)

    with torch.no_grad():
        found, wanted = spread(FusedForward(model)), spread(PaddedForward(model))
    assert (found - wanted).abs().max() < 1e-5 * (1 + wanted.abs().max())
    assert not found[~inside(lengths_B)].any()


def test_a_part_that_is_frozen_gets_no_gradient_and_the_others_theirs(tiny: Tiny) -> None:
    model = open_model(tiny, "qwen3")
    wanted = run(FusedForward(model))[2]
    frozen = [name for name, _ in model.named_parameters() if "layers.0" in name or "embed" in name]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    found = run(FusedForward(model))[2]
    for name, gradient in found.items():
        assert torch.equal(gradient, torch.zeros_like(gradient) if name in frozen else wanted[name])


def test_bfloat16_is_the_models_own_within_rounding(tiny: Tiny) -> None:
    exact = open_model(tiny, "qwen3")
    wanted = run(FusedForward(exact))
    narrow = run(FusedForward(copy.deepcopy(exact).bfloat16()))
    own = run(PaddedForward(copy.deepcopy(exact).bfloat16()))
    whole, whole_own, whole_exact = (
        torch.cat([gradient.float().flatten() for gradient in found[2].values()]) for found in (narrow, own, wanted)
    )
    assert narrow[0].dtype == torch.float32
    assert all(gradient.dtype == torch.bfloat16 for gradient in narrow[2].values())
    assert distance(narrow[0], wanted[0]) < 1.2 * distance(own[0], wanted[0])  # no worse than transformers' own passes
    assert distance(whole, whole_exact) < 1.2 * distance(whole_own, whole_exact)


class Adapted(nn.Linear):
    """As adapters do it: a Linear that adds something of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 0.1 * input.sum(dim=-1, keepdim=True)


def with_an_adapter(tiny: Tiny) -> PreTrainedModel:
    model = open_model(tiny, "llama")
    old = model.model.layers[1].mlp.down_proj
    adapted = Adapted(old.in_features, old.out_features, bias=False)
    adapted.weight = old.weight
    model.model.layers[1].mlp.down_proj = adapted
    return model


def with_a_bias_in_the_head(tiny: Tiny) -> PreTrainedModel:
    model = open_model(tiny, "llama")
    head = nn.Linear(64, model.config.vocab_size, bias=True)
    model.set_output_embeddings(head)
    return model


def with_windows_in_some_layers(tiny: Tiny) -> PreTrainedModel:
    config = Qwen3Config(
        **SIZES, head_dim=16, use_sliding_window=True, sliding_window=4, max_window_layers=1, layer_types=None
    )
    return randomised(Qwen3ForCausalLM(config))


REFUSED: dict[str, tuple[Callable[[Tiny], PreTrainedModel], str]] = {
    "another family": (
        lambda tiny: load_model(model_config(tiny(kind="gemma2")), torch.float32),
        r"Gemma2ForCausalLM is not read as a Llama-like decoder: its type 'gemma2' is none of llama, qwen2, qwen3",
    ),
    "an adapter": (with_an_adapter, r"some of its matrix products are not plain nn\.Linear \(adapters"),
    "a bias in the head": (with_a_bias_in_the_head, "its head has a bias"),
    "windows": (with_windows_in_some_layers, "some of its layers attend through a window"),
    "a window": (lambda tiny: mistral(sliding_window=4), "it attends through a sliding window"),
    "another activation": (
        lambda tiny: randomised(LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu"))),
        "its activation 'gelu' is not silu",
    ),
    "another device": (
        lambda tiny: open_model(tiny, "llama").to("meta"),
        "Fused layers run on the processor; the model is on meta",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_of_another_make_is_refused_with_the_reason(tiny: Tiny, name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(UnsupportedAttentionError, match=reason):
        FusedForward(make(tiny))


@pytest.mark.parametrize("checkpointing", [False, True])
@every_model
def test_a_llama_like_model_is_trained_by_fused_layers(tiny: Tiny, name: str, checkpointing: bool) -> None:
    model = open_model(tiny, name)
    usual = model.config._attn_implementation
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forward = choose_forward(model, checkpointing=checkpointing)(model)
    assert type(forward) is FusedForward
    assert model.config._attn_implementation == usual


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["an adapter", "another activation"])
def test_where_layers_cannot_be_fused_rows_are_packed(tiny: Tiny, name: str, checkpointing: bool) -> None:
    model = REFUSED[name][0](tiny)
    usual = model.config._attn_implementation
    wanted = run(PaddedForward(copy.deepcopy(model)))
    make = choose_forward(model, checkpointing=checkpointing)
    assert model.config._attn_implementation == usual
    forward = make(model)
    assert type(forward) is PackedForward
    found = run(forward)
    assert distance(found[0], wanted[0]) < 1e-5
    assert all(distance(found[2][parameter], own) < 1e-4 for parameter, own in wanted[2].items())


@pytest.mark.parametrize("name", ["another family", "windows", "a window"])
def test_where_rows_cannot_be_packed_they_are_padded_with_a_warning(tiny: Tiny, name: str) -> None:
    model = REFUSED[name][0](tiny)
    usual = model.config._attn_implementation
    with pytest.warns(RuntimeWarning, match=rf"{type(model).__name__} trains on padded rows.*sliding_window"):
        make = choose_forward(model)
    assert type(make(model)) is PaddedForward
    assert model.config._attn_implementation == usual


class OtherScale(FusedForward):
    """A way that gives something else than the model does."""

    def logprobs(self, *rows: object) -> object:  # type: ignore[override]
        found = super().logprobs(*rows)  # type: ignore[arg-type]
        return found._replace(logprobs_BT=found.logprobs_BT * 1.01)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("make", [FusedForward, PackedForward, PaddedForward, OtherScale])
@pytest.mark.parametrize("name", ["llama", "another family"])
def test_asking_why_not_leaves_the_attention_as_it_was(
    tiny: Tiny, name: str, make: type[FusedForward], attention: str
) -> None:
    model = open_model(tiny, name) if name == "llama" else REFUSED[name][0](tiny)
    model.set_attn_implementation(attention)
    before = PaddedForward(model).logprobs(*rows(), 1.0).logprobs_BT

    reason = why_not(model, make)

    assert model.config._attn_implementation == attention
    assert torch.equal(PaddedForward(model).logprobs(*rows(), 1.0).logprobs_BT, before)
    fits = make is PaddedForward or (name == "llama" and make is not OtherScale)
    assert (reason is None) is fits
    if make is OtherScale and name == "llama":
        assert reason is not None and "log-probabilities differ by 0.0" in reason
