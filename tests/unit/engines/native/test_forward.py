from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from dapo.engines.native import forward as forward_module
from dapo.engines.native import products
from dapo.engines.native.forward import FusedForward
from dapo.engines.native.rows import new_row
from dapo.engines.native.runner import Runner
from dapo.errors import RunError
from dapo.models.attention import UnsupportedAttentionError
from dapo.models.load import load_model
from dapo.types import Sampling
from tests.contract.parts import model_config, weights_of

Tiny = Callable[..., Path]
PROMPTS = [[20, 30, 40, 50, 60], [33], [*range(10, 80)]]
STEPS = 3
KINDS = ("llama", "qwen2", "qwen3")

every_kind = pytest.mark.parametrize("kind", KINDS)
tied_or_not = pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])


@pytest.fixture(params=["laid out", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name: str = request.param
    if name == "plain":
        for module in (products, forward_module):
            monkeypatch.setattr(module, "lays_out_weights", lambda device, dtype: False)
    yield name


def open_model(folder: Path) -> PreTrainedModel:
    return load_model(model_config(folder), torch.float32)


def written(forward: FusedForward) -> tuple[list[list[int]], list[Tensor]]:
    """Two greedy replies to each of three prompts: prompt and reply token by token, and the logits [T, V] of each."""
    runner = Runner(forward, max_rows=8)
    cells = runner.read_prompts(PROMPTS)
    rows = [
        new_row(None, number, cell, len(PROMPTS[cell]), Sampling(temperature=0.0, max_tokens=STEPS + 1), number)
        for number, cell in enumerate(cells * 2)
    ]
    logits = [[runner.first_logits(row.prompt)] for row in rows]
    draw = runner._logits

    def spying(*arguments: object) -> Tensor:
        found = draw(*arguments)  # type: ignore[arg-type]
        for kept, one in zip(logits, found, strict=True):
            kept.append(one)
        return found

    runner.start(rows)
    runner._logits = spying  # type: ignore[method-assign]
    for _ in range(STEPS):
        runner.step()
    return [PROMPTS[row.prompt] + row.tokens for row in rows], [torch.stack(kept) for kept in logits]


def check_is(forward: FusedForward, model: PreTrainedModel, *, bound: float = 1e-5) -> None:
    """Prompt and steps give the logits of the model's own plain forward over the whole row."""
    for tokens, found_TV in zip(*written(forward), strict=True):
        with torch.no_grad():
            wanted = model(torch.tensor([tokens[:-1]]), use_cache=False).logits[0, -STEPS - 1 :]
        assert found_TV.shape == wanted.shape
        assert (found_TV - wanted).norm() < bound * wanted.norm()
        assert tokens[-STEPS - 1 :] == found_TV.argmax(dim=1).tolist()


@tied_or_not
@every_kind
def test_its_logits_are_the_models_own(tiny: Tiny, kind: str, tied: bool, way: str) -> None:
    model = open_model(tiny(kind=kind, tied=tied))
    forward = FusedForward(model)
    assert (forward.dtype, forward.device, forward.layers) == (torch.float32, model.device, 2)
    check_is(forward, model)


def test_biases_everywhere_are_added(way: str) -> None:
    config = LlamaConfig(
        vocab_size=90,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
        mlp_bias=True,
        rms_norm_eps=1e-2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(float("norm" in name) + 0.2 * torch.randn(parameter.shape))
    model.train(False)
    check_is(FusedForward(model), model)


@every_kind
def test_in_bfloat16_its_logits_are_no_further_off_than_the_models_own(tiny: Tiny, kind: str, way: str) -> None:
    folder = tiny(kind=kind)
    exact, own = open_model(folder), load_model(model_config(folder), torch.bfloat16)
    for tokens, found_TV in zip(*written(FusedForward(own)), strict=True):
        with torch.no_grad():
            rows = torch.tensor([tokens[:-1]])
            wanted, narrow = (model(rows, use_cache=False).logits[0, -STEPS - 1 :] for model in (exact, own))
        assert found_TV.dtype == torch.bfloat16
        assert (found_TV - wanted).norm() < 1.5 * (narrow - wanted).norm() + 0.01 * wanted.norm()


@tied_or_not
@every_kind
def test_loading_takes_over_all_weights(tiny: Tiny, kind: str, tied: bool, way: str) -> None:
    forward = FusedForward(open_model(tiny(kind=kind, tied=tied)))
    folder = tiny(kind=kind, tied=tied, seed=1)
    forward.load(weights_of(folder), what="The policy")
    check_is(forward, open_model(folder))
    back = tiny(kind=kind, tied=tied)
    forward.load(back, what="The policy")  # a folder, this time
    check_is(forward, open_model(back))
    fresh = FusedForward(open_model(back))
    assert all(torch.equal(one, other) for one, other in zip(written(forward)[1], written(fresh)[1], strict=True))


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])  # biases, and norms of heads
def test_every_single_weight_is_taken_over(tiny: Tiny, kind: str) -> None:
    """One weight changed at a time: none may be read from the weights before."""
    folder = tiny(kind=kind)
    model = open_model(folder)
    forward = FusedForward(model)
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.mul_(1.5).add_(0.05)
        forward.load({other: tensor.clone() for other, tensor in model.state_dict().items()}, what="The policy")
        try:
            check_is(forward, model)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight"])
def test_a_tied_weight_may_come_under_one_of_its_names(tiny: Tiny, name: str, tmp_path: Path, way: str) -> None:
    forward = FusedForward(open_model(tiny(kind="qwen3", tied=True)))
    folder = tiny(kind="qwen3", tied=True, seed=1)
    weights = weights_of(folder)
    other = {"lm_head.weight": "model.embed_tokens.weight", "model.embed_tokens.weight": "lm_head.weight"}[name]
    weights.pop(other)
    save_file(weights, tmp_path / "model.safetensors")
    for source in (weights, tmp_path):
        forward.load(source, what="The policy")
        check_is(forward, open_model(folder))


def test_an_untied_head_is_missed(tiny: Tiny) -> None:
    forward = FusedForward(open_model(tiny()))
    weights = weights_of(tiny(seed=1))
    weights.pop("lm_head.weight")
    with pytest.raises(RunError, match=r"The policy does not fit the model: 1 weights missing \['lm_head.weight'\]"):
        forward.load(weights, what="The policy")


SPOILT: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "a missing one": (lambda weights: weights.pop("model.norm.weight"), r"1 weights missing \['model.norm.weight'\]"),
    "a stranger": (lambda weights: weights.update(stranger=torch.zeros(2)), r"1 unknown \['stranger'\]"),
    "another shape": (
        lambda weights: weights.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(97, 64)}),
        r"1 of another shape \['model.layers.1.mlp.up_proj.weight'\]",
    ),
    "a transposed one": (
        lambda weights: weights.update({"model.layers.0.mlp.down_proj.weight": torch.zeros(96, 64)}),
        r"1 of another shape",
    ),
    "none at all": (lambda weights: weights.clear(), r"21 weights missing"),
}


@pytest.mark.parametrize("released", [False, True], ids=["whole model", "released model"])
@pytest.mark.parametrize("name", SPOILT)
def test_a_misfit_is_refused_and_the_weights_before_go_on_working(
    tiny: Tiny, name: str, released: bool, way: str
) -> None:
    folder = tiny()
    forward = FusedForward(open_model(folder))
    if released:
        forward.release()
    before = written(forward)
    weights = weights_of(tiny(seed=1))
    spoil, message = SPOILT[name]
    spoil(weights)

    with pytest.raises(RunError, match=rf"The policy of version 3 does not fit the model: .*{message}"):
        forward.load(weights, what="The policy of version 3")

    after = written(forward)
    assert after[0] == before[0]
    assert all(torch.equal(one, other) for one, other in zip(after[1], before[1], strict=True))
    check_is(forward, open_model(folder))


@tied_or_not
@every_kind
def test_release_empties_the_model_and_the_forward_goes_on(tiny: Tiny, kind: str, tied: bool, way: str) -> None:
    folder, other = tiny(kind=kind, tied=tied), tiny(kind=kind, tied=tied, seed=1)
    model = open_model(folder)
    forward = FusedForward(model)
    before = written(forward)

    forward.release()

    assert sum(parameter.numel() for parameter in model.parameters()) == 0
    after = written(forward)
    assert all(torch.equal(one, two) for one, two in zip(after[1], before[1], strict=True))
    check_is(forward, open_model(folder))
    forward.load(weights_of(other), what="The policy")
    check_is(forward, open_model(other))


def test_the_models_own_weights_may_change_after_they_were_read(tiny: Tiny, way: str) -> None:
    folder = tiny(kind="qwen2")
    model = open_model(folder)
    forward = FusedForward(model)
    source = weights_of(folder)
    forward.load(source, what="The policy")
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), source.values()):
            tensor.fill_(torch.nan)
    check_is(forward, open_model(folder))


def test_weights_of_another_precision_are_cast(tiny: Tiny) -> None:
    folder = tiny()
    forward = FusedForward(load_model(model_config(tiny(seed=1)), torch.bfloat16))
    forward.load(weights_of(folder), what="The policy")
    fresh = FusedForward(load_model(model_config(folder), torch.bfloat16))
    assert forward.dtype == torch.bfloat16
    assert all(torch.equal(one, other) for one, other in zip(written(forward)[1], written(fresh)[1], strict=True))


@every_kind
def test_running_it_changes_none_of_its_weights(tiny: Tiny, kind: str, way: str) -> None:
    """Steps work in place on what they made, and on nothing else."""
    forward = FusedForward(open_model(tiny(kind=kind)))
    first, second = written(forward)[1], written(forward)[1]
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_model_of_another_family_is_refused(tiny: Tiny) -> None:
    with pytest.raises(UnsupportedAttentionError, match="Gemma2ForCausalLM is not read as a Llama-like decoder"):
        FusedForward(open_model(tiny(kind="gemma2")))
