"""Every algorithm through the trainer: its gradient is the formula's, and the same however a step is cut up."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.algorithms.config import AlgorithmConfig, DAPOConfig, GRPOConfig, PPOConfig
from dapo.algorithms.parts import ReferenceConfig
from dapo.algorithms.ppo import CriticConfig
from dapo.algorithms.relatives import (
    CISPOConfig,
    ClipCovConfig,
    DrGRPOConfig,
    GSPOConfig,
    KLCovConfig,
    ReinforcePlusPlusConfig,
    RLOOConfig,
)
from dapo.algorithms.value import ADVANTAGES, CHOSEN, OLD_LOGPROBS, REFERENCE_LOGPROBS, RETURNS, VALUES
from dapo.batching import minibatches, select_rows
from dapo.models.load import load_model
from dapo.trainers import pick
from dapo.trainers.config import LocalConfig
from dapo.trainers.core import LocalTrainer, OptimizerSettings
from dapo.types import Batch, Columns, LabelledBatch, Minibatch
from tests import restatement
from tests.contract.parts import model_config
from tests.contract.test_trainers import (
    MAX_TOKENS,
    TEMPERATURE,
    made_batch,
    plain_logprobs,
    published,
    row_logprobs,
    take_rows,
    widen,
)
from tests.tiny import make_tiny

SAME = 1e-6
"""Relative distance of gradients of float64 weights that differ in the order of sums: norms, attention scores and the
weights of tokens are float32 whatever the model is."""

CONFIGS: dict[str, Any] = {
    "dapo": DAPOConfig(),
    "dapo, dual clip": DAPOConfig(dual_clip=1.1),
    "dapo, filtering": DAPOConfig(overlong_filtering=True, overlong_in_statistics=False),
    "grpo": GRPOConfig(kl_beta=0.3),
    "grpo, k1": GRPOConfig(kl_beta=0.3, kl_estimator="k1"),
    "grpo, k2": GRPOConfig(kl_beta=0.3, kl_estimator="k2"),
    "ppo": PPOConfig(),
    "ppo, kl": PPOConfig(kl_beta=0.2, decay=0.9, discount=0.98, whiten_advantages=False, critic=CriticConfig(clip=0)),
    "ppo, shared": PPOConfig(critic=CriticConfig(backbone="shared", coefficient=0.7)),
    "dr_grpo": DrGRPOConfig(),
    "gspo": GSPOConfig(clip_low=0.05, clip_high=0.08),
    "cispo": CISPOConfig(clip_low=0.3, clip_high=0.4),
    "rloo": RLOOConfig(),
    "reinforce_plus_plus": ReinforcePlusPlusConfig(kl_beta=0.2),
    "reinforce_plus_plus, baseline": ReinforcePlusPlusConfig(kl_beta=0.0, group_baseline=True),
    "clip_cov": ClipCovConfig(share=0.2, covariance_low=0.0),
    "kl_cov": KLCovConfig(share=0.2),
}
LOSS_MEANS = ("token_mean", "group_token_mean", "sequence_mean", "sequence_sum", "constant_length", "micro_batch_mean")
NEEDS_LONG_REPLIES = {"clip_cov", "kl_cov"}

every_algorithm = pytest.mark.parametrize("name", list(CONFIGS))
CASES = [
    (name, loss_mean)
    for name, config in CONFIGS.items()
    for loss_mean in (LOSS_MEANS if "," not in name and hasattr(config, "loss_mean") else (None,))
]
every_algorithm_and_mean = pytest.mark.parametrize(
    ("name", "loss_mean"), CASES, ids=[f"{name} {loss_mean or 'own mean'}" for name, loss_mean in CASES]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("algorithms"))


def config_of(name: str, loss_mean: str | None = None) -> AlgorithmConfig:
    config = CONFIGS[name]
    return config if loss_mean is None else config.model_copy(update={"loss_mean": loss_mean})  # type: ignore[no-any-return]


@cache
def step_batch() -> Batch:
    """Eleven replies: groups of three, of two with equal rewards, and of one; two truncated; one with a hole in its mask."""
    batch = made_batch(groups=5)
    rows = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12]
    index = torch.tensor(rows)
    tensors = (
        "tokens_BT",
        "mask_BT",
        "lengths_B",
        "sampled_logprobs_BT",
        "rewards_B",
        "group_B",
        "truncated_B",
        "version_B",
    )
    chosen = replace(
        batch,
        prompt_ids=tuple(batch.prompt_ids[row] for row in rows),
        **{field: getattr(batch, field)[index] for field in tensors},
    )
    return replace(
        chosen,
        rewards_B=torch.tensor([1.0, -1.0, 0.5, -1.0, 0.25, 1.0, 1.0, 1.0, -2.0, 1.0, -1.0]),
        group_B=torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 4]),
        prompt_ids=(*chosen.prompt_ids[:8], chosen.prompt_ids[0][:3], *chosen.prompt_ids[9:]),
        truncated_B=torch.arange(11).remainder(7) == 4,
    )


@cache
def notes_of(folder: Path) -> Columns:
    """Old and reference log-probabilities around the policy's own, so that ratios lie beyond each bound; values at random."""
    own_BT = plain_logprobs(load_model(model_config(folder), torch.float32), step_batch())
    generator = torch.Generator().manual_seed(1)
    noise = [torch.randn(own_BT.shape, generator=generator) for _ in range(3)]
    mask_BT = step_batch().mask_BT
    columns = {OLD_LOGPROBS: own_BT + 0.4 * noise[0], REFERENCE_LOGPROBS: own_BT + 0.5 * noise[1], VALUES: noise[2]}
    return {name: torch.where(mask_BT, column, 0.0) for name, column in columns.items()}


def labelled_of(folder: Path, config: AlgorithmConfig) -> LabelledBatch:
    algorithm = config.build(MAX_TOKENS)
    needs = algorithm.needs | {OLD_LOGPROBS}
    return algorithm.label(step_batch(), {name: notes_of(folder)[name] for name in needs})


def minibatch_of(folder: Path, config: AlgorithmConfig) -> Minibatch:
    (minibatch,) = minibatches(labelled_of(folder, config), config.build(MAX_TOKENS).weigh, 1)
    return minibatch


def exact_trainer(folder: Path, config: AlgorithmConfig, *, micro_batch_tokens: int = 4096) -> LocalTrainer:
    """A trainer of float64 weights; its critic's head is stirred, since at zero no gradient goes through it."""
    algorithm = config.build(MAX_TOKENS)
    trainer = LocalTrainer(
        load_model(model_config(folder), torch.float32).double(),
        algorithm.loss,
        OptimizerSettings(learning_rate=1e-3),
        temperature=TEMPERATURE,
        precision=torch.float32,
        micro_batch_tokens=micro_batch_tokens,
        critic=algorithm.critic,
        reference=algorithm.reference,
    )
    if trainer._critic is not None:
        stir(trainer)
    return trainer


def stir(trainer: LocalTrainer) -> None:
    assert trainer._critic is not None
    weight = trainer._critic.head.weight
    with torch.no_grad():
        weight.copy_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))


@cache
def cached_trainer(folder: Path, name: str, micro_batch_tokens: int) -> LocalTrainer:
    """The gradient changes nothing in a trainer, so one serves many tests; the mean over tokens is not the trainer's."""
    return exact_trainer(folder, config_of(name), micro_batch_tokens=micro_batch_tokens)


def distances(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, float]:
    """Norm of the difference over the norm, apart for the policy and its critic. Nothing for nothing is no distance."""
    assert found.keys() == wanted.keys()
    parts: dict[str, float] = {}
    for part in {name.partition(".")[0] for name in wanted}:
        names = [name for name in wanted if name.partition(".")[0] == part]
        difference = math.fsum(float((found[name].double() - wanted[name].double()).square().sum()) for name in names)
        whole = math.fsum(float(wanted[name].double().square().sum()) for name in names)
        parts[part] = math.sqrt(difference / whole) if whole else math.inf if difference else 0.0
    return parts


def check_same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], tolerance: float = SAME) -> None:
    gaps = distances(found, wanted)
    assert max(gaps.values()) < tolerance, gaps


def test_every_algorithm_of_a_recipe_is_among_those_that_are_proved() -> None:
    import typing

    kinds = typing.get_args(typing.get_args(AlgorithmConfig)[0])
    assert {kind.model_fields["type"].default for kind in kinds} - {"custom"} == {c.type for c in CONFIGS.values()}


# The formula, in plain Python, from rewards and notes to what every token's log-probability is pushed by.


def slow_advantages(config: Any, notes: Mapping[str, list[list[float]]]) -> list[list[float]]:
    batch = step_batch()
    rewards, groups = batch.rewards_B.tolist(), batch.group_B.tolist()
    trains = slow_trains(config)
    if config.type in ("ppo", "reinforce_plus_plus"):
        if config.type == "reinforce_plus_plus" and config.group_baseline:
            rewards = [
                reward - restatement.mean([other for other, own in zip(rewards, groups, strict=True) if own == group])
                for reward, group in zip(rewards, groups, strict=True)
            ]
        per_token = slow_token_rewards(config, rewards, trains, notes)
        if config.type == "ppo":
            made = [
                restatement.generalised_advantages(row, values, mask, config.discount, config.decay)
                for row, values, mask in zip(per_token, notes[VALUES], trains, strict=True)
            ]
            return restatement.whitened(made, trains) if config.whiten_advantages else made
        made = [restatement.rewards_to_go(row, mask) for row, mask in zip(per_token, trains, strict=True)]
        return restatement.whitened(made, trains)
    counted = [any(row) or config.overlong_in_statistics for row in trains]
    advantages = [0.0] * len(rewards)
    inside = [row for row, is_counted in enumerate(counted) if is_counted]
    own_rewards, own_groups = [rewards[row] for row in inside], [groups[row] for row in inside]
    by_type = {
        "dr_grpo": lambda: [
            reward
            - restatement.mean([other for other, number in zip(own_rewards, own_groups, strict=True) if number == own])
            for reward, own in zip(own_rewards, own_groups, strict=True)
        ],
        "rloo": lambda: restatement.leave_one_out(own_rewards, own_groups),
    }
    found = by_type.get(config.type, lambda: restatement.group_advantages(own_rewards, own_groups))()
    for row, advantage in zip(inside, found, strict=True):
        advantages[row] = advantage
    return [[advantages[row] if is_in else 0.0 for is_in in mask] for row, mask in enumerate(trains)]


def slow_trains(config: Any) -> list[list[bool]]:
    batch = step_batch()
    return [
        [is_in and not (truncated and config.overlong_filtering) for is_in in row]
        for row, truncated in zip(batch.mask_BT.tolist(), batch.truncated_B.tolist(), strict=True)
    ]


def slow_token_rewards(
    config: Any, rewards: Sequence[float], trains: restatement.Mask, notes: Mapping[str, list[list[float]]]
) -> list[list[float]]:
    found = []
    for row, mask in enumerate(trains):
        last = max(place for place, is_in in enumerate(mask) if is_in)
        tokens = [rewards[row] if place == last else 0.0 for place in range(len(mask))]
        if config.kl_beta:
            for place, is_in in enumerate(mask):
                if is_in:
                    old, reference = notes[OLD_LOGPROBS][row][place], notes[REFERENCE_LOGPROBS][row][place]
                    tokens[place] -= config.kl_beta * restatement.kl_estimate(config.kl_estimator, old, reference)
        found.append(tokens)
    return found


def slow_weights(config: Any, loss_mean: str | None) -> list[list[float]]:
    """What a token weighs: the mean of a loss that is 1 there and 0 elsewhere."""
    trains, groups = slow_trains(config), step_batch().group_B.tolist()
    name = loss_mean or getattr(config, "loss_mean", "sequence_mean")
    means: dict[str, Callable[[restatement.Rows], float]] = {
        "token_mean": lambda losses: restatement.token_mean(losses, trains),
        "sequence_mean": lambda losses: restatement.sequence_mean(losses, trains),
        "group_token_mean": lambda losses: restatement.group_token_mean(losses, trains, groups),
        "constant_length": lambda losses: restatement.constant_length(losses, trains, MAX_TOKENS),
        "sequence_sum": lambda losses: restatement.constant_length(losses, trains, 1),
        "micro_batch_mean": lambda losses: restatement.micro_batch_mean(losses, trains, 1),
    }
    zeros = [[0.0] * len(row) for row in trains]
    weights = [list(row) for row in zeros]
    for row, mask in enumerate(trains):
        for place, is_in in enumerate(mask):
            if is_in:
                zeros[row][place] = 1.0
                weights[row][place] = means[name](zeros)
                zeros[row][place] = 0.0
    return weights


def slow_slopes(
    config: Any, logprobs: list[list[float]], advantages: list[list[float]], notes: Mapping[str, list[list[float]]]
) -> list[list[float]]:
    """The derivative of each token's loss by its log-probability."""
    trains = slow_trains(config)
    chosen = slow_choice(config, advantages, notes) if config.type == "kl_cov" else None
    found = [[0.0] * len(mask) for mask in trains]
    for row, mask in enumerate(trains):
        for place, is_in in enumerate(mask):
            if not is_in:
                continue
            own, old, advantage = logprobs[row][place], notes[OLD_LOGPROBS][row][place], advantages[row][place]
            token = (own, old, advantage)
            if config.type == "rloo":
                slope = advantage
            elif config.type == "cispo":
                slope = restatement.clipped_weight_slope(*token, config.clip_low, config.clip_high)
            elif config.type == "kl_cov":
                assert chosen is not None
                slope = math.exp(own - old) * advantage
                slope -= config.kl_beta * chosen[row][place] * math.copysign(1.0, own - old)
            elif config.type in ("dapo", "clip_cov"):
                dual = getattr(config, "dual_clip", None)
                slope = restatement.token_objective_slope(*token, config.clip_low, config.clip_high, dual)
            elif config.type == "gspo":
                places = [number for number, inside in enumerate(mask) if inside]
                ratio = math.exp(restatement.mean([logprobs[row][p] - notes[OLD_LOGPROBS][row][p] for p in places]))
                slope = restatement.token_objective_slope(
                    math.log(ratio), 0.0, advantage, config.clip_low, config.clip_high
                )
            else:
                slope = restatement.token_objective_slope(*token, config.clip, config.clip)
            if config.type == "grpo":
                difference = notes[REFERENCE_LOGPROBS][row][place] - own
                by_estimator = {"k1": 1.0, "k2": -difference, "k3": 1.0 - math.exp(difference)}
                slope -= config.kl_beta * by_estimator[config.kl_estimator]
            found[row][place] = -slope
    return found


def slow_choice(config: Any, advantages: list[list[float]], notes: Mapping[str, list[list[float]]]) -> list[list[bool]]:
    """KL-Cov's: the tokens of the largest covariance, by sorting all of them."""
    trains = slow_trains(config)
    covariances = restatement.covariances(notes[OLD_LOGPROBS], advantages, trains)
    places = [(row, place) for row, mask in enumerate(trains) for place, is_in in enumerate(mask) if is_in]
    places.sort(key=lambda at: covariances[at[0]][at[1]], reverse=True)
    best = set(places[: int(config.share * len(places))])
    return [[(row, place) in best for place in range(len(mask))] for row, mask in enumerate(trains)]


@cache
def graph(folder: Path) -> tuple[Any, list[Tensor]]:
    """The policy in float64, and each reply's log-probabilities, one row at a time, with their graph."""
    model = load_model(model_config(folder), torch.float32).double()
    batch = step_batch()
    rows = [
        row_logprobs(model, prompt, batch.tokens_BT[row, : int(batch.lengths_B[row])].tolist())[0]
        for row, prompt in enumerate(batch.prompt_ids)
    ]
    return model, rows


@every_algorithm_and_mean
def test_the_gradient_is_that_of_the_formula(folder: Path, name: str, loss_mean: str | None) -> None:
    config: Any = config_of(name, loss_mean)
    notes = {column: tensor.double().tolist() for column, tensor in notes_of(folder).items()}
    model, rows = graph(folder)
    logprobs = [row.tolist() + [0.0] * (step_batch().tokens_BT.shape[1] - len(row)) for row in rows]
    advantages = slow_advantages(config, notes)
    weights, slopes = slow_weights(config, loss_mean), slow_slopes(config, logprobs, advantages, notes)
    minibatch = minibatch_of(folder, config)
    if config.type == "clip_cov":  # which tokens are drawn is chance; that they push nothing is not
        slopes = [
            [0.0 if chosen else slope for slope, chosen in zip(*both, strict=True)]
            for both in zip(slopes, minibatch.columns[CHOSEN].tolist(), strict=True)
        ]
        assert 0 < minibatch.columns[CHOSEN].sum() <= 0.2 * minibatch.trained_BT.sum()
    total = sum(
        (row * torch.tensor([w * s for w, s in zip(*both, strict=True)][: len(row)], dtype=torch.float64)).sum()
        for row, *both in zip(rows, weights, slopes, strict=True)
    )
    assert isinstance(total, Tensor)
    named = dict(model.named_parameters())
    wanted = dict(zip(named, torch.autograd.grad(total, list(named.values()), retain_graph=True), strict=True))

    found_advantages = minibatch.columns[ADVANTAGES]
    assert (found_advantages.double() - torch.tensor(advantages, dtype=torch.float64)).abs().max() < 1e-5
    found = cached_trainer(folder, without_value_loss(name), 4096).gradient(minibatch)
    check_same({key: found[key] for key in wanted}, wanted, 5e-6)


def without_value_loss(name: str) -> str:
    """A shared backbone has the value loss in its gradient too; the policy's share of it is that of a critic apart."""
    return "ppo" if name == "ppo, shared" else name


@pytest.mark.parametrize("name", ["ppo", "ppo, kl", "ppo, shared"])
def test_the_critic_s_gradient_is_that_of_the_formula(folder: Path, name: str) -> None:
    """Of its head, by hand: weight * slope of the value loss * the hidden state before the token."""
    config: Any = config_of(name)
    minibatch = minibatch_of(folder, config)
    trainer = cached_trainer(folder, name, 4096)
    assert trainer._critic is not None
    head_D = trainer._critic.head.weight.detach()[0].double()
    model = load_model(model_config(folder), torch.float32).double()
    expected = torch.zeros_like(head_D)
    bias = 0.0
    count = int(minibatch.trained_BT.sum())
    for row, prompt in enumerate(minibatch.prompt_ids):
        reply = minibatch.tokens_BT[row, : int(minibatch.lengths_B[row])].tolist()
        with torch.no_grad():
            hidden_TD = model.base_model(input_ids=torch.tensor([[*prompt, *reply]])).last_hidden_state[0]
        for place in range(len(reply)):
            if not minibatch.trained_BT[row, place]:
                continue
            before_D = hidden_TD[len(prompt) - 1 + place]
            value = float(before_D @ head_D)
            old, target = (float(minibatch.columns[column][row, place]) for column in (VALUES, RETURNS))
            step = 1e-6
            slope = (
                restatement.value_loss(value + step, old, target, config.critic.clip or None)
                - restatement.value_loss(value - step, old, target, config.critic.clip or None)
            ) / (2 * step)
            scale = config.critic.coefficient if config.critic.backbone == "shared" else 1.0
            expected += scale * slope / count * before_D
            bias += scale * slope / count

    found = trainer.gradient(minibatch)

    assert (found["critic.head.weight"][0].double() - expected).norm() < 1e-5 * expected.norm()
    assert found["critic.head.bias"].item() == pytest.approx(bias, rel=1e-4)


@every_algorithm_and_mean
@settings(deadline=None, max_examples=4, derandomize=True)
@given(st.sampled_from([1, 30, 90, 250]), st.permutations(range(11)), st.integers(0, 60).map(lambda extra: extra // 2))
def test_the_gradient_does_not_depend_on_micro_batches_row_order_or_padding(
    folder: Path, name: str, loss_mean: str | None, micro_batch_tokens: int, order: list[int], extra: int
) -> None:
    minibatch = minibatch_of(folder, config_of(name, loss_mean))
    whole = whole_gradient(folder, name, loss_mean)

    cut_up = widen(take_rows(minibatch, order), extra)

    check_same(cached_trainer(folder, name, micro_batch_tokens).gradient(cut_up), whole)


@cache
def whole_gradient(folder: Path, name: str, loss_mean: str | None) -> Mapping[str, Tensor]:
    return cached_trainer(folder, name, 100_000).gradient(minibatch_of(folder, config_of(name, loss_mean)))


@every_algorithm
def test_packed_and_padded_rows_give_one_gradient(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    minibatch = minibatch_of(folder, config_of(name))
    monkeypatch.setattr(pick, "why_not", lambda model, make: "the test asks for padding")
    with pytest.warns(RuntimeWarning, match="the test asks for padding"):
        padded = exact_trainer(folder, config_of(name), micro_batch_tokens=100)

    # Padded rows go through the model's own norms, which are float32 also where its weights are float64.
    check_same(padded.gradient(minibatch), whole_gradient(folder, name, None), 3e-6)


@every_algorithm
def test_single_precision_gives_it_to_a_few_parts_in_a_million(folder: Path, name: str) -> None:
    minibatch = minibatch_of(folder, config_of(name))
    for micro_batch_tokens in (40, 100_000):
        trainer = open_trainer(folder, config_of(name), micro_batch_tokens=micro_batch_tokens)
        if trainer._critic is not None:
            stir(trainer)
        check_same(trainer.gradient(minibatch), whole_gradient(folder, name, None), 1e-5)


def open_trainer(folder: Path, config: AlgorithmConfig, **changes: Any) -> LocalTrainer:
    local = LocalConfig(precision="float32", learning_rate=1e-3).model_copy(update=changes)
    return local.build(model_config(folder), config.build(MAX_TOKENS), TEMPERATURE)


@every_algorithm
def test_a_step_in_which_nothing_trains_has_loss_and_gradient_zero(folder: Path, name: str) -> None:
    config = config_of(name)
    algorithm = config.build(MAX_TOKENS)
    batch = step_batch()
    nothing = replace(batch, mask_BT=torch.zeros_like(batch.mask_BT))
    labelled = algorithm.label(
        nothing, {column: notes_of(folder)[column] for column in algorithm.needs | {OLD_LOGPROBS}}
    )
    assert not labelled.trained_BT.any()
    assert all(math.isfinite(stat.value) for stat in labelled.stats.values())
    assert minibatches(labelled, algorithm.weigh, 1) == []
    minibatch = minibatch_of(folder, config)
    empty = replace(
        minibatch,
        trained_BT=labelled.trained_BT,
        weight_BT=algorithm.weigh(labelled.trained_BT, batch.group_B),
        columns={column: tensor.clone() for column, tensor in labelled.columns.items()},
    )

    found = cached_trainer(folder, name, 100).gradient(empty)
    stats = open_trainer(folder, config).step(empty).stats

    assert all(not tensor.any() for tensor in found.values())
    assert stats["optim/loss"].value == 0.0 and stats["optim/grad_norm"].value == 0.0
    assert all(math.isfinite(stat.value) for stat in stats.values())


@every_algorithm
def test_equal_rewards_in_every_group_push_nothing(folder: Path, name: str) -> None:
    """Without a critic and a KL: where no reply is better than its siblings there is nothing to learn."""
    config: Any = config_of(name)
    if config.type == "ppo":
        pytest.skip("a critic compares a reply with what was expected of it")
    if config.type == "reinforce_plus_plus":
        config = config.model_copy(update={"kl_beta": 0.0})
    algorithm = config.build(MAX_TOKENS)
    batch = replace(step_batch(), rewards_B=torch.full((11,), -1.2))
    labelled = algorithm.label(batch, {column: notes_of(folder)[column] for column in algorithm.needs | {OLD_LOGPROBS}})
    assert not labelled.columns[ADVANTAGES].any()


# Two processes


def two_ranks_main(rank: int, folder: Path, store: Path) -> None:
    """One of two ranks: its rows' gradient, added to the other's. Rank 0 writes how far the sum is from the whole."""
    import torch.distributed as dist  # noqa: TID251 - the ranks of this test are its own

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store / 'meeting'}", rank=rank, world_size=2)
    try:
        report: dict[str, Any] = {}
        for name in CONFIGS:
            minibatch = minibatch_of(folder, config_of(name))
            mine = select_rows(minibatch, ([0, 9, 2, 5, 8, 4], [10, 3, 1, 7, 6])[rank])
            found = {
                key: tensor.double() for key, tensor in exact_trainer(folder, config_of(name)).gradient(mine).items()
            }
            tokens = torch.zeros(2)
            tokens[rank] = float(mine.trained_BT.sum())
            for tensor in (*found.values(), tokens):
                dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
            if rank == 0:
                wanted = exact_trainer(folder, config_of(name)).gradient(minibatch)
                report[name] = {"distances": distances(found, wanted), "tokens": tokens.tolist()}
        if rank == 0:
            (store / "report.json").write_text(json.dumps(report), encoding="utf-8")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    store = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.start_processes(two_ranks_main, args=(folder, store), nprocs=2, start_method="spawn")
    report: dict[str, Any] = json.loads((store / "report.json").read_text(encoding="utf-8"))
    return report


@every_algorithm
def test_two_ranks_add_up_to_the_gradient_of_one(two_ranks: dict[str, Any], name: str) -> None:
    """The ranks have different numbers of replies and tokens, and neither divides by its own."""
    first, second = two_ranks[name]["tokens"]
    assert first != second and min(first, second) > 0
    assert max(two_ranks[name]["distances"].values()) < SAME, two_ranks[name]


# Reference


def test_the_divergence_is_zero_at_the_reference(folder: Path) -> None:
    config = GRPOConfig()
    trainer = open_trainer(folder, config)
    algorithm = config.build(MAX_TOKENS)
    columns = trainer.annotate(step_batch(), frozenset({OLD_LOGPROBS, REFERENCE_LOGPROBS}))
    assert torch.equal(columns[OLD_LOGPROBS], columns[REFERENCE_LOGPROBS])
    (minibatch,) = minibatches(algorithm.label(step_batch(), columns), algorithm.weigh, 1)

    first, second = trainer.step(minibatch).stats, trainer.step(minibatch).stats

    assert first["policy/kl"].value == pytest.approx(0.0, abs=1e-9)
    assert second["policy/kl"].value > 1e-5


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_a_larger_beta_raises_the_loss_by_the_divergence_and_no_more(folder: Path, estimator: Any) -> None:
    losses, kl = [], math.nan
    for beta in (0.0, 0.1, 0.5):
        config = GRPOConfig(kl_beta=beta, kl_estimator=estimator, loss_mean="token_mean")
        stats = open_trainer(folder, config).step(minibatch_of(folder, config)).stats
        losses.append(stats["optim/loss"].value)
        kl = stats["policy/kl"].value if beta else math.nan
    assert kl > 0.01
    assert losses[0] < losses[1] < losses[2]
    assert [loss - losses[0] for loss in losses] == pytest.approx([0.0, 0.1 * kl, 0.5 * kl], abs=1e-6)


@pytest.mark.parametrize(
    "config", [GRPOConfig(kl_beta=0.0), PPOConfig(), ReinforcePlusPlusConfig(kl_beta=0.0), DAPOConfig()]
)
def test_without_a_beta_no_reference_is_loaded(folder: Path, config: Any) -> None:
    trainer = open_trainer(folder, config)
    assert trainer._reference is None
    with pytest.raises(ValueError, match=r"asked for the columns \['reference_logprobs'\]"):
        trainer.annotate(step_batch(), frozenset({REFERENCE_LOGPROBS}))


@pytest.mark.parametrize("every", [None, 2])
def test_the_reference_stays_or_takes_over_the_policy_after_every_so_many_updates(
    folder: Path, every: int | None
) -> None:
    config = GRPOConfig(reference=ReferenceConfig(refresh_updates=every))
    trainer = open_trainer(folder, config)
    minibatch = minibatch_of(folder, config)

    def gap() -> tuple[float, Tensor]:
        columns = trainer.annotate(step_batch(), frozenset({OLD_LOGPROBS, REFERENCE_LOGPROBS}))
        difference_BT = columns[OLD_LOGPROBS] - columns[REFERENCE_LOGPROBS]
        return float(difference_BT.abs().max()), columns[REFERENCE_LOGPROBS]

    gaps, references = [], []
    for _ in range(5):
        found, reference = gap()
        gaps.append(found > 0)
        references.append(reference)
        trainer.step(minibatch)
    assert gaps == ([False, True, False, True, False] if every else [False, True, True, True, True])
    assert torch.equal(references[0], references[1])
    assert torch.equal(references[1], references[2]) == (every is None)


# Critic


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_while_the_critic_warms_up_the_policy_stays_and_then_it_trains(folder: Path, backbone: Any) -> None:
    config = PPOConfig(critic=CriticConfig(backbone=backbone, warmup_updates=2, learning_rate=1e-3))
    trainer = open_trainer(folder, config)
    minibatch = minibatch_of(folder, config)
    before = published(trainer)
    values = [trainer.annotate(step_batch(), frozenset({VALUES}))[VALUES]]
    versions, moved = [], []
    for _ in range(3):
        update = trainer.step(minibatch)
        versions.append(update.policy_version)
        moved.append(any(not torch.equal(tensor, before[key]) for key, tensor in published(trainer).items()))
        values.append(trainer.annotate(step_batch(), frozenset({VALUES}))[VALUES])
        assert ("optim/loss" in update.stats) == (update.policy_version > 0)
        assert update.stats["value/loss"].value > 0 and update.stats["value/grad_norm"].value > 0
    assert versions == [0, 0, 1]
    assert moved == [False, False, True]
    assert not values[0].any()  # an untrained critic says 0 everywhere
    assert all(not torch.equal(one, two) for one, two in itertools.pairwise(values))


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_the_critic_learns_what_is_to_be_expected(folder: Path, backbone: Any) -> None:
    """First a return that is the same everywhere; then one that depends on the prompt, which explains its variance."""
    config = PPOConfig(
        decay=1.0, critic=CriticConfig(backbone=backbone, warmup_updates=1000, learning_rate=3e-3, clip=0)
    )
    algorithm = config.build(MAX_TOKENS)

    def learn(rewards_B: Tensor, updates: int) -> tuple[list[float], list[float], Tensor]:
        trainer = open_trainer(folder, config)
        batch = replace(step_batch(), rewards_B=rewards_B)
        losses, explained = [], []
        for _ in range(updates):
            labelled = algorithm.label(batch, trainer.annotate(batch, algorithm.needs))
            (minibatch,) = minibatches(labelled, algorithm.weigh, 1)
            losses.append(trainer.step(minibatch).stats["value/loss"].value)
            explained.append(labelled.stats["value/explained_variance"].value)
        return losses, explained, trainer.annotate(batch, algorithm.needs)[VALUES][batch.mask_BT]

    losses, _, values = learn(torch.full((11,), 0.7), 60)
    assert losses[0] == pytest.approx(0.245, abs=1e-4)
    assert losses[-1] < 0.02
    assert values.mean().item() == pytest.approx(0.7, abs=0.15)
    by_prompt_B = torch.where(step_batch().group_B % 2 == 0, 1.0, -1.0)
    _, explained, _ = learn(by_prompt_B, 60)
    assert explained[0] == pytest.approx(0.0, abs=1e-6)
    assert explained[-1] > 0.8


@pytest.mark.parametrize(("precision", "steps_before"), [("float32", 1), ("float32", 0), ("bfloat16", 1)])
@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_with_critic_and_refreshed_reference_save_restore_and_step_is_step_and_step(
    folder: Path, backbone: Any, precision: str, steps_before: int, tmp_path: Path
) -> None:
    config = PPOConfig(
        kl_beta=0.1,
        reference=ReferenceConfig(refresh_updates=2),
        critic=CriticConfig(backbone=backbone, warmup_updates=1, learning_rate=1e-3),
    )
    minibatch = minibatch_of(folder, config)
    needs = config.build(MAX_TOKENS).needs
    straight = open_trainer(folder, config, precision=precision)
    for _ in range(4):  # one of warm-up; the reference was taken over after two of the policy's three
        straight.step(minibatch)
    straight.save(tmp_path / "checkpoint")
    columns = straight.annotate(step_batch(), needs)

    resumed = open_trainer(folder, config, precision=precision)
    for _ in range(steps_before):  # whatever it has done before is forgotten
        resumed.step(minibatch)
    resumed.restore(tmp_path / "checkpoint")

    again = resumed.annotate(step_batch(), needs)
    assert all(torch.equal(again[name], column) for name, column in columns.items())
    for _ in range(2):
        assert resumed.step(minibatch) == straight.step(minibatch)
    weights = published(straight)
    assert all(torch.equal(tensor, weights[key]) for key, tensor in published(resumed).items())
    one, two = (trainer.annotate(step_batch(), needs) for trainer in (straight, resumed))
    assert all(torch.equal(two[name], column) for name, column in one.items())
    assert not torch.equal(one[REFERENCE_LOGPROBS], columns[REFERENCE_LOGPROBS])  # it was taken over once more


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_a_reply_of_three_in_a_batch_of_five_has_three_values(folder: Path, backbone: Any) -> None:
    """Each is the head on the state before its token: the first on the prompt's last."""
    config = PPOConfig(critic=CriticConfig(backbone=backbone))
    trainer = exact_trainer(folder, config)
    assert trainer._critic is not None
    prompts = ((20, 30, 40), (50, 60))
    tokens_BT = torch.tensor([[11, 12, 13, 0, 0], [21, 22, 23, 24, 25]])
    with torch.no_grad():
        values_BT = trainer._critic.values(prompts, tokens_BT, torch.tensor([3, 5]))
        model = load_model(model_config(folder), torch.float32).double()
        hidden_TD = model.base_model(input_ids=torch.tensor([[20, 30, 40, 11, 12, 13]])).last_hidden_state[0]
        expected_T = hidden_TD @ trainer._critic.head.weight[0].double()
    assert (values_BT != 0).tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert values_BT[0, :3].tolist() == pytest.approx(expected_T[2:5].tolist(), abs=1e-5)


def test_the_value_loss_is_taken_over_the_tokens_that_train_and_no_others(folder: Path) -> None:
    config = PPOConfig()
    minibatch = minibatch_of(folder, config)
    stats = open_trainer(folder, config).step(minibatch).stats
    count = int(minibatch.trained_BT.sum())
    old_BT, returns_BT = (minibatch.columns[name][minibatch.trained_BT] for name in (VALUES, RETURNS))
    losses = [
        restatement.value_loss(0.0, *pair, 0.2) for pair in zip(old_BT.tolist(), returns_BT.tolist(), strict=True)
    ]
    assert stats["value/loss"].value == pytest.approx(math.fsum(losses) / count, rel=1e-5)
    assert getattr(stats["value/loss"], "count") == count  # noqa: B009 - only a Mean has it


def test_the_mean_of_a_shuffled_step_is_taken_once_and_by_its_rows(folder: Path) -> None:
    """Weights are data: a step's rows in any order carry the weights that they had."""
    minibatch = minibatch_of(folder, GRPOConfig())
    order = random.Random(3).sample(range(11), 11)
    assert torch.equal(take_rows(minibatch, order).weight_BT, minibatch.weight_BT[torch.tensor(order)])
    assert float(minibatch.weight_BT.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["dapo", "dr_grpo", "gspo", "cispo", "rloo"])
def test_replies_of_advantage_zero_are_left_out_and_stay_in_the_denominator(folder: Path, name: str) -> None:
    minibatch = minibatch_of(folder, config_of(name))
    without = dict(minibatch.columns)
    without[ADVANTAGES] = without[ADVANTAGES].clone()
    without[ADVANTAGES][[0, 2]] = 0.0
    minibatch = replace(minibatch, columns=without)
    algorithm = config_of(name).build(MAX_TOKENS)
    assert algorithm.skips_zero_advantage
    whole = open_trainer(folder, config_of(name))
    whole._skips_zero_advantage = False
    skipping = open_trainer(folder, config_of(name))
    left = sorted(row for rows in skipping._training_rows(minibatch) for row in rows)

    assert left == [row for row in range(minibatch.num_rows) if bool((without[ADVANTAGES][row] != 0).any())]
    assert not {0, 2} & set(left)
    check_same(skipping.gradient(minibatch), whole.gradient(minibatch))
    found, wanted = skipping.step(minibatch).stats, whole.step(minibatch).stats
    assert found["tokens/trained"] == wanted["tokens/trained"]
    assert found["optim/loss"].value == pytest.approx(wanted["optim/loss"].value, rel=1e-5)


@pytest.mark.parametrize("name", ["grpo", "ppo", "kl_cov"])
def test_no_reply_is_left_out_where_something_else_pulls_on_it(name: str) -> None:
    assert not config_of(name).build(MAX_TOKENS).skips_zero_advantage
