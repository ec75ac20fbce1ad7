"""One suite that every trainer passes; the gradient is compared with a plain computation, one reply at a time."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from dapo.algorithms.config import DAPOConfig, GRPOConfig
from dapo.algorithms.value import ADVANTAGES, OLD_LOGPROBS, Algorithm
from dapo.batching import minibatches
from dapo.models.load import load_model
from dapo.ports import Trainer
from dapo.trainers.config import LocalConfig
from dapo.trainers.core import LocalTrainer, OptimizerSettings
from dapo.types import (
    Batch,
    Finish,
    LabelledBatch,
    Message,
    Minibatch,
    Problem,
    Prompt,
    Rollout,
    RolloutGroup,
    Sampling,
)
from tests.contract.parts import model_config, open_engine, pack_groups, prompts_of, renderer_of, with_engine

Tiny = Callable[..., Path]
AlgorithmConfig = DAPOConfig | GRPOConfig
KINDS = ("llama", "qwen2", "qwen3", "gemma2")
"""The last cannot share a prompt's positions among the replies of a group, so it takes the padded way."""
LOSS_MEANS = ("token_mean", "group_token_mean", "sequence_mean", "constant_length")
ALGORITHMS = (DAPOConfig(), GRPOConfig(kl_beta=0.0))


def local_of(config: LocalConfig, model: PreTrainedModel, algorithm: Algorithm, temperature: float) -> LocalTrainer:
    """The local trainer of a given model, in the model's own precision."""
    return LocalTrainer(
        model,
        algorithm.loss,
        OptimizerSettings(learning_rate=config.learning_rate, weight_decay=config.weight_decay),
        temperature=temperature,
        precision=torch.float32,
        micro_batch_tokens=config.micro_batch_tokens,
        critic=algorithm.critic,
        reference=algorithm.reference,
    )


TRAINERS = {
    "local": (LocalConfig(precision="float32"), local_of),
}
"""Every trainer by name: its config in float32, and how it is made of a model. A new trainer is one more line."""

MAX_TOKENS = 16
SAME = 3e-6
"""The plain computation goes through the model's own norms, which are float32 also where its weights are float64."""
TEMPERATURE = 0.8

pytestmark = pytest.mark.filterwarnings("ignore:Gemma2ForCausalLM trains on")

every_trainer = pytest.mark.parametrize("name", list(TRAINERS))
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda config: config.type)
every_loss_mean = pytest.mark.parametrize("loss_mean", LOSS_MEANS)


def open_trainer(
    name: str, folder: Path, algorithm: AlgorithmConfig, *, temperature: float = TEMPERATURE, **settings: Any
) -> Any:
    config = TRAINERS[name][0].model_copy(update=settings)
    return config.build(model_config(folder), algorithm.build(MAX_TOKENS), temperature)


def open_exact_trainer(name: str, folder: Path, algorithm: AlgorithmConfig, **settings: Any) -> Any:
    """A trainer of float64 weights, where sums in another order differ by next to nothing."""
    config, make = TRAINERS[name]
    model = load_model(model_config(folder), torch.float32).double()
    return make(config.model_copy(update=settings), model, algorithm.build(MAX_TOKENS), TEMPERATURE)


def made_batch(seed: int = 0, *, groups: int = 4, size: int = 3) -> Batch:
    """Random replies of random lengths to prompts of random lengths; in one the policy did not write every token."""
    draw = random.Random(seed)
    made = []
    for number in range(groups):
        prompt = Prompt(
            problem=Problem(id=f"problem-{number}", messages=(Message(role="user", content="?"),), answer="2"),
            text="?",
            token_ids=tuple(draw.randrange(9, 90) for _ in range(draw.randrange(2, 20))),
        )
        rollouts = []
        for index in range(size):
            length = draw.randrange(1, MAX_TOKENS + 1)
            has_tool = (number, index) == (1, 1)
            mask = tuple(not (has_tool and 1 <= place <= 2) for place in range(length))
            rollouts.append(
                Rollout(
                    token_ids=tuple(draw.randrange(9, 90) for _ in range(length)),
                    mask=mask,
                    logprobs=tuple(-4.0 if wrote else 0.0 for wrote in mask),
                    text="?",
                    finish=Finish.LENGTH if length == MAX_TOKENS else Finish.STOP,
                    policy_version=0,
                )
            )
        made.append(RolloutGroup(prompt=prompt, rollouts=tuple(rollouts)))
    return pack_groups(made)


def labelled_batch(folder: Path, algorithm: Algorithm, batch: Batch) -> LabelledBatch:
    """The batch with old log-probabilities around the model's own, so that some ratios lie beyond each bound."""
    old_BT = plain_logprobs(load_model(model_config(folder), torch.float32), batch)
    noise_BT = 0.4 * torch.randn(old_BT.shape, generator=torch.Generator().manual_seed(1))
    return algorithm.label(batch, {OLD_LOGPROBS: torch.where(batch.mask_BT, old_BT + noise_BT, 0.0)})


def one_minibatch(folder: Path, algorithm: AlgorithmConfig, *, seed: int = 0) -> Minibatch:
    built = algorithm.build(MAX_TOKENS)
    (minibatch,) = minibatches(labelled_batch(folder, built, made_batch(seed)), built.weigh, 1)
    return minibatch


def plain_logprobs(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Log-probabilities [B, T] at the temperature, row by row without padding."""
    found_BT = torch.zeros(batch.tokens_BT.shape)
    with torch.no_grad():
        for row, prompt in enumerate(batch.prompt_ids):
            length = int(batch.lengths_B[row])
            found_BT[row, :length] = row_logprobs(model, prompt, batch.tokens_BT[row, :length].tolist())[0]
    return found_BT


def row_logprobs(model: PreTrainedModel, prompt: Sequence[int], reply: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Log-probability of each reply token and entropy at its place, both [T]: one row, no padding, no cache."""
    logits = model(input_ids=torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
    logprobs_TV = (logits / TEMPERATURE).log_softmax(dim=-1)
    entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(dim=-1)
    return logprobs_TV.gather(1, torch.tensor(reply).unsqueeze(1)).squeeze(1), entropy_T


def plain_weights(trained_BT: Tensor, group_size: int, loss_mean: str) -> list[list[float]]:
    """What each token weighs, written out by counting."""
    rows = [[bool(trains) for trains in row] for row in trained_BT]
    tokens = [sum(row) for row in rows]
    groups = [rows[start : start + group_size] for start in range(0, len(rows), group_size)]
    group_tokens = [sum(sum(row) for row in group) for group in groups]
    weights = []
    for number, row in enumerate(rows):
        by_name = {
            "token_mean": 1 / sum(tokens),
            "sequence_mean": 1 / (sum(count > 0 for count in tokens) * max(tokens[number], 1)),
            "group_token_mean": 1 / (sum(count > 0 for count in group_tokens) * group_tokens[number // group_size]),
            "constant_length": 1 / (sum(count > 0 for count in tokens) * MAX_TOKENS),
        }
        weights.append([by_name[loss_mean] if trains else 0.0 for trains in row])
    return weights


def plain_gradient(
    folder: Path, minibatch: Minibatch, loss_mean: str, *, clip_low: float, clip_high: float, dual_clip: float | None
) -> tuple[dict[str, Tensor], float]:
    """Gradient by parameter name and the loss, in float64: token by token, as the formula reads."""
    model = load_model(model_config(folder), torch.float32).double()
    weights = plain_weights(minibatch.trained_BT, group_size=3, loss_mean=loss_mean)
    total = torch.zeros((), dtype=torch.float64)
    for row, prompt in enumerate(minibatch.prompt_ids):
        reply = minibatch.tokens_BT[row, : int(minibatch.lengths_B[row])].tolist()
        logprobs_T, _ = row_logprobs(model, prompt, reply)
        for place, logprob in enumerate(logprobs_T):
            if not minibatch.trained_BT[row, place]:
                continue
            advantage = float(minibatch.columns[ADVANTAGES][row, place])
            ratio = (logprob - float(minibatch.columns[OLD_LOGPROBS][row, place])).exp()
            objective = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
            if dual_clip is not None and advantage < 0:
                objective = objective.clamp(min=dual_clip * advantage)
            total = total - weights[row][place] * objective
    total.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}, total.item()


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Norm of the difference over the norm, of all tensors together."""
    assert one.keys() == other.keys()
    difference = sum(float((one[name].double() - other[name].double()).square().sum()) for name in one)
    return math.sqrt(difference / sum(float(tensor.double().square().sum()) for tensor in other.values()))


def clips(algorithm: AlgorithmConfig) -> dict[str, Any]:
    low, high = (
        (algorithm.clip_low, algorithm.clip_high)
        if isinstance(algorithm, DAPOConfig)
        else (algorithm.clip, algorithm.clip)
    )
    return {"clip_low": low, "clip_high": high, "dual_clip": algorithm.dual_clip}


@pytest.mark.parametrize(
    ("kind", "loss_mean"),
    [
        *(("llama", loss_mean) for loss_mean in LOSS_MEANS),
        ("qwen2", "token_mean"),
        ("qwen3", "sequence_mean"),
        ("gemma2", "group_token_mean"),
    ],
)
@every_algorithm
@every_trainer
def test_the_gradient_is_that_of_a_plain_computation_one_reply_at_a_time(
    tiny: Tiny, name: str, kind: str, algorithm: AlgorithmConfig, loss_mean: str
) -> None:
    folder = tiny(kind=kind)
    algorithm = algorithm.model_copy(update={"loss_mean": loss_mean})
    minibatch = one_minibatch(folder, algorithm)
    expected, loss = plain_gradient(folder, minibatch, loss_mean, **clips(algorithm))

    trainer = open_trainer(name, folder, algorithm)

    exact = open_exact_trainer(name, folder, algorithm).gradient(minibatch)
    assert distance(exact, expected) < SAME
    assert distance(trainer.gradient(minibatch), expected) < 3e-5
    assert trainer.step(minibatch).stats["optim/loss"].value == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize(
    "algorithm",
    [
        DAPOConfig(dual_clip=1.1),
        DAPOConfig(overlong_filtering=True),
        DAPOConfig(overlong_filtering=True, overlong_in_statistics=False),
    ],
    ids=["dual clip", "overlong filtering", "overlong out of the statistics"],
)
@every_trainer
def test_the_gradient_is_the_plain_one_with_each_switch(tiny: Tiny, name: str, algorithm: DAPOConfig) -> None:
    folder = tiny()
    minibatch = one_minibatch(folder, algorithm)
    expected, _ = plain_gradient(folder, minibatch, "token_mean", **clips(algorithm))
    unswitched, _ = plain_gradient(folder, one_minibatch(folder, DAPOConfig()), "token_mean", **clips(DAPOConfig()))

    assert distance(open_exact_trainer(name, folder, algorithm).gradient(minibatch), expected) < SAME
    assert distance(expected, unswitched) > 1e-3


@pytest.mark.parametrize(
    ("kind", "loss_mean"), [*(("llama", loss_mean) for loss_mean in LOSS_MEANS), ("gemma2", "token_mean")]
)
@every_algorithm
@every_trainer
def test_the_gradient_does_not_depend_on_micro_batches(
    tiny: Tiny, name: str, algorithm: AlgorithmConfig, kind: str, loss_mean: str
) -> None:
    folder = tiny(kind=kind)
    algorithm = algorithm.model_copy(update={"loss_mean": loss_mean})
    minibatch = one_minibatch(folder, algorithm)
    whole = open_exact_trainer(name, folder, algorithm, micro_batch_tokens=100_000).gradient(minibatch)

    for micro_batch_tokens in (1, 40, 100, 250):
        exact = open_exact_trainer(name, folder, algorithm, micro_batch_tokens=micro_batch_tokens)
        single = open_trainer(name, folder, algorithm, micro_batch_tokens=micro_batch_tokens)
        assert distance(exact.gradient(minibatch), whole) < SAME
        assert distance(single.gradient(minibatch), whole) < 3e-5


def take_rows(minibatch: Minibatch, rows: Sequence[int]) -> Minibatch:
    index = torch.tensor(rows)
    return replace(
        minibatch,
        prompt_ids=tuple(minibatch.prompt_ids[row] for row in rows),
        **{
            field: getattr(minibatch, field)[index]
            for field in ("tokens_BT", "lengths_B", "version_B", "sampled_logprobs_BT", "trained_BT", "weight_BT")
        },
        columns={column: tensor[index] for column, tensor in minibatch.columns.items()},
    )


def widen(minibatch: Minibatch, extra: int) -> Minibatch:
    """The same replies with padding behind them that holds what would hurt if it were looked at."""

    def padded(tensor_BT: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(tensor_BT, (0, extra), value=value)

    return replace(
        minibatch,
        tokens_BT=padded(minibatch.tokens_BT, 50),
        sampled_logprobs_BT=padded(minibatch.sampled_logprobs_BT, -1e30),
        trained_BT=padded(minibatch.trained_BT, False),
        weight_BT=padded(minibatch.weight_BT, 0.0),
        columns={column: padded(tensor, 1e30) for column, tensor in minibatch.columns.items()},
    )


def with_a_long_row(minibatch: Minibatch, length: int) -> Minibatch:
    """One row more, much longer than the others, that does not train."""
    wide = widen(minibatch, length - minibatch.tokens_BT.shape[1])
    more = take_rows(wide, [*range(wide.num_rows), 0])
    for column in (more.trained_BT, more.weight_BT):
        column[-1] = 0
    more.lengths_B[-1] = length
    return more


@pytest.mark.parametrize(
    ("kind", "loss_mean"), [*(("llama", loss_mean) for loss_mean in LOSS_MEANS), ("gemma2", "token_mean")]
)
@every_algorithm
@every_trainer
def test_the_gradient_does_not_depend_on_row_order_or_padding(
    tiny: Tiny, name: str, algorithm: AlgorithmConfig, kind: str, loss_mean: str
) -> None:
    folder = tiny(kind=kind)
    algorithm = algorithm.model_copy(update={"loss_mean": loss_mean})
    minibatch = one_minibatch(folder, algorithm)
    trainer = open_exact_trainer(name, folder, algorithm)
    plain = trainer.gradient(minibatch)
    shuffled = random.Random(1).sample(range(minibatch.num_rows), minibatch.num_rows)

    assert distance(trainer.gradient(take_rows(minibatch, shuffled)), plain) < SAME
    assert distance(trainer.gradient(widen(minibatch, 100)), plain) < SAME
    assert distance(trainer.gradient(with_a_long_row(minibatch, 120)), plain) < SAME


@every_trainer
def test_what_is_measured_is_that_of_the_plain_computation_for_every_split(tiny: Tiny, name: str) -> None:
    folder = tiny()
    algorithm = DAPOConfig()
    minibatch = one_minibatch(folder, algorithm)
    model = load_model(model_config(folder), torch.float32).double()
    entropies: list[float] = []
    probabilities: list[float] = []
    ratios: list[float] = []
    low = high = 0
    with torch.no_grad():
        for row, prompt in enumerate(minibatch.prompt_ids):
            length = int(minibatch.lengths_B[row])
            logprobs_T, entropy_T = row_logprobs(model, prompt, minibatch.tokens_BT[row, :length].tolist())
            for place in range(length):
                if not minibatch.trained_BT[row, place]:
                    continue
                advantage = float(minibatch.columns[ADVANTAGES][row, place])
                ratio = math.exp(float(logprobs_T[place]) - float(minibatch.columns[OLD_LOGPROBS][row, place]))
                entropies.append(float(entropy_T[place]))
                probabilities.append(math.exp(float(logprobs_T[place])))
                ratios.append(ratio)
                low += advantage < 0 and ratio < 0.8
                high += advantage > 0 and ratio > 1.28
    count = len(ratios)
    assert count == int(minibatch.trained_BT.sum())
    assert low > 0
    assert high > 0
    gradient, loss = plain_gradient(folder, minibatch, "token_mean", **clips(algorithm))
    expected = {
        "policy/entropy": sum(entropies) / count,
        "policy/prob_mean": sum(probabilities) / count,
        "policy/ratio_mean": sum(ratios) / count,
        "policy/ratio_max": max(ratios),
        "policy/clip_low": low / count,
        "policy/clip_high": high / count,
        "tokens/trained": count,
        "optim/loss": loss,
        "optim/grad_norm": math.sqrt(sum(float(tensor.square().sum()) for tensor in gradient.values())),
        "optim/lr": 1e-6,
        "optim/updates": 1,
    }

    for micro_batch_tokens in (1, 100, 100_000):
        update = open_trainer(name, folder, algorithm, micro_batch_tokens=micro_batch_tokens).step(minibatch)
        found = {metric: update.stats[metric].value for metric in expected}
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert update.policy_version == 1


@pytest.mark.parametrize("kind", KINDS)
@every_trainer
def test_annotated_log_probabilities_are_the_plain_ones(tiny: Tiny, name: str, kind: str) -> None:
    folder = tiny(kind=kind)
    batch = made_batch()
    expected_BT = plain_logprobs(load_model(model_config(folder), torch.float32), batch)

    for micro_batch_tokens in (1, 100, 100_000):
        trainer = open_trainer(name, folder, DAPOConfig(), micro_batch_tokens=micro_batch_tokens)
        found_BT = trainer.annotate(batch, frozenset({OLD_LOGPROBS}))[OLD_LOGPROBS]
        assert found_BT.shape == batch.tokens_BT.shape
        assert (found_BT - expected_BT)[batch.mask_BT].abs().max() < 1e-5
        assert trainer.annotate(batch, frozenset()) == {}


@pytest.mark.parametrize("old", ["trainer", "engine"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@every_trainer
def test_the_ratio_is_one_before_the_first_update(tiny: Tiny, name: str, temperature: float, old: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    sampling = Sampling(temperature=temperature, max_tokens=MAX_TOKENS)
    prompts = prompts_of(renderer)
    groups = with_engine(
        open_engine("hf", folder, renderer),
        lambda engine: asyncio.gather(*(engine.sample(prompt, 4, sampling, 1) for prompt in prompts)),
    )
    batch = pack_groups(groups)
    trainer = open_trainer(name, folder, DAPOConfig(), temperature=temperature, learning_rate=1e-2)
    algorithm = DAPOConfig().build(MAX_TOKENS)
    notes = (
        trainer.annotate(batch, frozenset({OLD_LOGPROBS}))
        if old == "trainer"
        else {OLD_LOGPROBS: batch.sampled_logprobs_BT}
    )
    first, second = minibatches(algorithm.label(batch, notes), algorithm.weigh, 2)

    stats, later = trainer.step(first).stats, trainer.step(second).stats

    assert stats["policy/ratio_mean"].value == pytest.approx(1.0, abs=1e-4)
    assert stats["policy/ratio_max"].value == pytest.approx(1.0, abs=1e-3)
    assert (stats["policy/clip_low"].value, stats["policy/clip_high"].value) == (0.0, 0.0)
    assert stats["mismatch/kl"].value < 1e-6
    assert stats["mismatch/max_ratio"].value == pytest.approx(1.0, abs=1e-3)
    assert later["policy/ratio_max"].value > 1.01  # the policy has moved since, and the ratio shows it
    assert not any(metric.startswith("mismatch/") for metric in later)  # another version drew these tokens


@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("qwen3", True), ("gemma2", True)])
@every_trainer
def test_bfloat16_gives_about_the_same_gradient_and_the_same_for_each_split(
    tiny: Tiny, name: str, kind: str, tied: bool
) -> None:
    folder = tiny(kind=kind, tied=tied, spread=0.05)
    minibatch = one_minibatch(folder, DAPOConfig())
    # Without old log-probabilities: a ratio beside its bound would be clipped on one side and not on the other.
    minibatch = replace(minibatch, columns={ADVANTAGES: minibatch.columns[ADVANTAGES]})
    exact = open_trainer(name, folder, DAPOConfig()).gradient(minibatch)

    for micro_batch_tokens in (1, 100, 100_000):
        trainer = open_trainer(name, folder, DAPOConfig(), precision="bfloat16", micro_batch_tokens=micro_batch_tokens)
        found = trainer.gradient(minibatch)
        assert {tensor.dtype for tensor in found.values()} == {torch.float32}
        assert distance(found, exact) < 0.03
        assert all(tensor.dtype is torch.float32 for tensor in published(trainer).values())


@every_trainer
def test_the_learning_rate_warms_up_over_updates(tiny: Tiny, name: str) -> None:
    folder = tiny()
    trainer = open_trainer(name, folder, DAPOConfig(), learning_rate=1e-3, warmup_updates=4, weight_decay=0.0)
    minibatch = one_minibatch(folder, DAPOConfig())
    moved, rates, counts, versions = [], [], [], []
    for _ in range(6):
        before = published(trainer)
        update = trainer.step(minibatch)
        after = published(trainer)
        moved.append(max(float((after[key] - before[key]).abs().max()) for key in before))
        rates.append(update.stats["optim/lr"].value)
        counts.append(update.stats["optim/updates"].value)
        versions.append(update.policy_version)

    assert rates == pytest.approx([2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3])
    assert moved[0] == pytest.approx(2e-4, rel=1e-2)  # AdamW's first step has the size of the rate
    assert counts == versions == [1, 2, 3, 4, 5, 6]
    assert trainer.publish().policy_version == 6


def published(trainer: Trainer) -> dict[str, Tensor]:
    source = trainer.publish().source
    assert not isinstance(source, Path)
    return {key: tensor.clone() for key, tensor in source.items()}


@every_algorithm
@every_trainer
def test_a_minibatch_in_which_nothing_trains_has_loss_and_gradient_zero(
    tiny: Tiny, name: str, algorithm: AlgorithmConfig
) -> None:
    folder = tiny()
    trainer = open_trainer(name, folder, algorithm, weight_decay=0.0, learning_rate=1e-2)
    minibatch = one_minibatch(folder, algorithm)
    nothing = torch.zeros_like(minibatch.trained_BT)
    masked = replace(
        minibatch,
        trained_BT=nothing,
        weight_BT=algorithm.build(MAX_TOKENS).weigh(nothing, torch.arange(minibatch.num_rows) // 3),
    )
    before = published(trainer)

    gradient = trainer.gradient(masked)
    update = trainer.step(masked)

    assert all(bool((tensor == 0).all()) for tensor in gradient.values())
    assert update.stats["optim/loss"].value == 0.0
    assert update.stats["optim/grad_norm"].value == 0.0
    assert update.stats["tokens/trained"].value == 0.0
    assert all(math.isfinite(stat.value) for stat in update.stats.values())
    assert all(torch.equal(tensor, before[key]) for key, tensor in published(trainer).items())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("settings", [{}, {"kind": "qwen3", "tied": True}], ids=["llama", "tied qwen3"])
@every_trainer
def test_save_restore_and_step_is_step_and_step(
    tiny: Tiny, name: str, settings: dict[str, Any], precision: str, tmp_path: Path
) -> None:
    folder = tiny(**settings)
    one, two = one_minibatch(folder, DAPOConfig(), seed=1), one_minibatch(folder, DAPOConfig(), seed=2)
    options = {"learning_rate": 1e-3, "warmup_updates": 5, "precision": precision}
    straight = open_trainer(name, folder, DAPOConfig(), **options)
    straight.step(one)
    straight.save(tmp_path / "checkpoint")
    expected = straight.step(two)

    resumed = open_trainer(name, folder, DAPOConfig(), **options)
    resumed.step(two)  # whatever it has done before is forgotten
    resumed.restore(tmp_path / "checkpoint")
    found = resumed.step(two)

    assert found == expected
    assert found.policy_version == 2
    weights = published(straight)
    assert all(torch.equal(tensor, weights[key]) for key, tensor in published(resumed).items())


@pytest.mark.parametrize(
    ("kind", "tied"), [("llama", False), ("llama", True), ("qwen2", False), ("qwen3", True), ("gemma2", True)]
)
@every_trainer
def test_a_saved_policy_loads_in_transformers_with_equal_weights(
    tiny: Tiny, name: str, kind: str, tied: bool, tmp_path: Path
) -> None:
    folder = tiny(kind=kind, tied=tied)
    trainer = open_trainer(name, folder, DAPOConfig(), learning_rate=1e-3)
    trainer.step(one_minibatch(folder, DAPOConfig()))
    trainer.save(tmp_path / "checkpoint")

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")

    weights = published(trainer)
    assert model.dtype is torch.float32
    assert model.config.tie_word_embeddings is tied
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())
    assert model.generation_config.eos_token_id == [2, 3]  # an engine ends replies by it
    first = published(open_trainer(name, folder, DAPOConfig()))
    assert not torch.equal(first["model.norm.weight"], weights["model.norm.weight"])


@every_trainer
def test_a_new_trainer_publishes_the_models_own_weights_as_version_zero(tiny: Tiny, name: str) -> None:
    folder = tiny()
    trainer = open_trainer(name, folder, DAPOConfig())
    assert isinstance(trainer, Trainer)

    weights = trainer.publish()

    assert weights.policy_version == 0
    expected = load_model(model_config(folder), torch.float32).state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in published(trainer).items())
    trainer.close()


@every_trainer
def test_buffers_are_published_saved_and_restored_like_parameters(tiny: Tiny, name: str, tmp_path: Path) -> None:
    config, make = TRAINERS[name]

    def opened(value: float) -> tuple[PreTrainedModel, Trainer]:
        model = load_model(model_config(tiny()), torch.float32)
        model.register_buffer("note", torch.full((3,), value))
        return model, make(config, model, DAPOConfig().build(MAX_TOKENS), TEMPERATURE)

    model, trainer = opened(1.0)
    model.note.fill_(7.0)
    assert published(trainer)["note"].tolist() == [7.0, 7.0, 7.0]
    trainer.step(one_minibatch(tiny(), DAPOConfig()))
    trainer.save(tmp_path / "checkpoint")

    other, resumed = opened(1.0)
    resumed.restore(tmp_path / "checkpoint")

    assert other.note.tolist() == [7.0, 7.0, 7.0]
    assert published(resumed)["note"].tolist() == [7.0, 7.0, 7.0]
