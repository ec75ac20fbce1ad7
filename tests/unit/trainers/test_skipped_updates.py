"""An update whose numbers are not finite changes nothing, says at which rows it was seen, and leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.config import DAPOConfig, PPOConfig
from dapo.algorithms.ppo import CriticConfig
from dapo.algorithms.value import ADVANTAGES, OLD_LOGPROBS, RETURNS, VALUES, Algorithm, Loss
from dapo.models.load import load_model
from dapo.trainers.core import LocalTrainer, OptimizerSettings
from dapo.types import Columns, Minibatch, TokenLoss, Total
from tests.contract.parts import model_config

Tiny = Callable[..., Path]
ROWS, WIDTH = 6, 7
LENGTHS = (7, 2, 5, 1, 6, 3)
PROMPTS = ((20, 21, 22), (20, 21, 22), (30,), (30,), (30,), (40, 41, 42, 43))

pytestmark = pytest.mark.filterwarnings("ignore:Gemma2ForCausalLM trains on")


def minibatch(seed: int = 0) -> Minibatch:
    """Six rows of a policy-gradient step with every column that DAPO's and PPO's losses read."""
    generator = torch.Generator().manual_seed(seed)

    def drawn() -> Tensor:
        return torch.randn(ROWS, WIDTH, generator=generator)

    lengths_B = torch.tensor(LENGTHS)
    trained_BT = torch.arange(WIDTH) < lengths_B.unsqueeze(1)
    return Minibatch(
        prompt_ids=PROMPTS,
        tokens_BT=torch.randint(9, 90, (ROWS, WIDTH), generator=generator),
        lengths_B=lengths_B,
        version_B=torch.zeros(ROWS, dtype=torch.long),
        sampled_logprobs_BT=drawn() - 4.0,
        trained_BT=trained_BT,
        weight_BT=trained_BT / trained_BT.sum(),
        columns={ADVANTAGES: drawn(), OLD_LOGPROBS: drawn() - 4.0, VALUES: drawn(), RETURNS: drawn()},
    )


def spoilt(column: str, value: float, *rows: int) -> Minibatch:
    """The same with a value in the last token of some rows."""
    whole = minibatch()
    tensor = (whole.weight_BT if column == "weight" else whole.columns[column]).clone()
    for row in rows:
        tensor[row, LENGTHS[row] - 1] = value
    if column == "weight":
        return replace(whole, weight_BT=tensor)
    return replace(whole, columns={**whole.columns, column: tensor})


def opened(
    tiny: Tiny,
    algorithm: Algorithm,
    *,
    kind: str = "llama",
    loss: Loss | None = None,
    precision: torch.dtype = torch.float32,
    micro_batch_tokens: int = 12,
    skips: bool = False,
) -> LocalTrainer:
    return LocalTrainer(
        load_model(model_config(tiny(kind=kind)), torch.float32),
        loss or algorithm.loss,
        OptimizerSettings(learning_rate=1e-3, warmup_updates=3),
        temperature=0.9,
        precision=precision,
        micro_batch_tokens=micro_batch_tokens,
        skips_zero_advantage=skips,
        critic=algorithm.critic,
    )


def dapo() -> Algorithm:
    return DAPOConfig().build(WIDTH)


def ppo(**settings: Any) -> Algorithm:
    return PPOConfig(critic=CriticConfig(learning_rate=1e-3, **settings)).build(WIDTH)


def state(trainer: LocalTrainer) -> dict[str, Tensor]:
    """Copies of everything that a checkpoint holds: weights, moments and counters, the critic's too."""
    snapshot = trainer.snapshot()
    found = {f"policy/{name}": tensor.clone() for name, tensor in snapshot.policy.items()}
    for file, tensors in snapshot.parts.items():
        found |= {f"{file}/{name}": tensor.clone() for name, tensor in tensors.items()}
    return found | {"updates": torch.tensor(snapshot.updates)}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def check_skipped(trainer: LocalTrainer, bad: Minibatch, suspects: tuple[int, ...]) -> None:
    """A bad step between two good ones is as if it had not been."""
    trainer.step(minibatch(1))
    before = state(trainer)

    update = trainer.step(bad)

    assert update.is_skipped
    assert update.suspect_rows == suspects
    assert update.policy_version == trainer.policy_version == 1
    assert update.stats == {"optim/skipped": Total(value=1.0)}
    assert same(state(trainer), before)
    assert any("exp_avg" in name for name in before)


def check_goes_on(trainer: LocalTrainer, straight: LocalTrainer) -> None:
    """The next good step is that of a trainer which has never met a bad one."""
    straight.step(minibatch(1))
    expected, found = straight.step(minibatch(2)), trainer.step(minibatch(2))
    assert found == expected
    assert not found.is_skipped and found.suspect_rows == ()
    assert found.policy_version == 2
    assert found.stats["optim/skipped"].value == 0.0
    assert all(math.isfinite(stat.value) for stat in found.stats.values())
    assert same(state(trainer), state(straight))


@pytest.mark.parametrize("micro_batch_tokens", [12, 1000])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])  # in order, and by length
@pytest.mark.parametrize(
    ("column", "value", "rows"),
    [
        (ADVANTAGES, math.nan, (3,)),
        (ADVANTAGES, math.inf, (0,)),
        (ADVANTAGES, -math.inf, (5,)),
        (OLD_LOGPROBS, math.nan, (2,)),
        ("weight", math.nan, (1,)),
        (ADVANTAGES, math.nan, (1, 4)),
    ],
)
def test_a_number_that_is_none_in_a_row_skips_the_update_and_names_the_row(
    tiny: Tiny, column: str, value: float, rows: tuple[int, ...], kind: str, micro_batch_tokens: int
) -> None:
    trainer = opened(tiny, dapo(), kind=kind, micro_batch_tokens=micro_batch_tokens)
    check_skipped(trainer, spoilt(column, value, *rows), rows)
    if micro_batch_tokens == 12:
        check_goes_on(trainer, opened(tiny, dapo(), kind=kind))


def unbounded(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
    """A loss that takes the ratio as it comes."""
    return TokenLoss(loss_BT=-columns[ADVANTAGES] * (logprobs_BT - columns[OLD_LOGPROBS]).exp(), watch={}, peaks={})


def test_an_infinite_old_log_probability_skips_a_loss_without_bounds_and_not_daposs(tiny: Tiny) -> None:
    """exp(logprob + inf) is infinite, and its token's row is named; DAPO's log-ratio is bounded before `exp`."""
    check_skipped(opened(tiny, dapo(), loss=unbounded), spoilt(OLD_LOGPROBS, -math.inf, 4), (4,))
    for value in (math.inf, -math.inf):
        trainer = opened(tiny, dapo())
        update = trainer.step(spoilt(OLD_LOGPROBS, value, 4))
        assert not update.is_skipped and update.policy_version == 1
        assert all(bool(tensor.isfinite().all()) for tensor in state(trainer).values())


def root(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
    """0 everywhere, with a slope that is no number."""
    return TokenLoss(loss_BT=(0.0 * logprobs_BT).sqrt(), watch={}, peaks={})


def steep(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
    """Finite, with a gradient whose norm is beyond float32."""
    return TokenLoss(loss_BT=logprobs_BT * 3e37, watch={}, peaks={})


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", [root, steep])
def test_a_gradient_that_is_not_finite_though_the_loss_is_makes_every_row_a_suspect(
    tiny: Tiny, loss: Loss, precision: torch.dtype
) -> None:
    def switched(logprobs_BT: Tensor, columns: Columns) -> TokenLoss:
        return (loss if bool((columns[ADVANTAGES] == 77.0).any()) else dapo().loss)(logprobs_BT, columns)

    trainer = opened(tiny, dapo(), loss=switched, precision=precision, micro_batch_tokens=1000)
    check_skipped(trainer, spoilt(ADVANTAGES, 77.0, 2), (0, 1, 2, 3, 4, 5))
    check_goes_on(trainer, opened(tiny, dapo(), precision=precision, micro_batch_tokens=1000))


def test_in_bfloat16_nothing_of_a_skipped_gradient_is_left_in_the_memory_that_is_used_again(tiny: Tiny) -> None:
    trainer = opened(tiny, dapo(), precision=torch.bfloat16)
    check_skipped(trainer, spoilt(ADVANTAGES, math.nan, 3), (3,))
    check_goes_on(trainer, opened(tiny, dapo(), precision=torch.bfloat16))


def test_the_row_is_named_also_where_rows_of_advantage_zero_are_left_out(tiny: Tiny) -> None:
    bad = spoilt(ADVANTAGES, math.nan, 3)
    bad.columns[ADVANTAGES][0] = 0.0
    bad.columns[ADVANTAGES][2] = 0.0
    check_skipped(opened(tiny, dapo(), skips=True), bad, (3,))


def test_what_does_not_train_may_hold_anything(tiny: Tiny) -> None:
    """Padding, and a reply that was masked."""
    whole = minibatch()
    whole.trained_BT[2] = False
    whole.weight_BT[2] = 0.0
    wanted = opened(tiny, dapo()).step(whole)
    columns = {name: torch.where(whole.trained_BT, column, math.nan) for name, column in whole.columns.items()}
    trainer = opened(tiny, dapo())
    assert trainer.step(replace(whole, columns=columns)) == wanted
    assert not wanted.is_skipped


@pytest.mark.parametrize("backbone", ["own", "shared"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("column", "rows"), [(ADVANTAGES, (3,)), (RETURNS, (0, 1, 2, 3, 4, 5))], ids=["the policy's", "the critic's"]
)
def test_policy_and_critic_are_skipped_together(
    tiny: Tiny, column: str, rows: tuple[int, ...], precision: torch.dtype, backbone: str
) -> None:
    """Whichever of the two it is. Where the policy's own losses are finite no single row is named."""
    algorithm = ppo(backbone=backbone)
    trainer = opened(tiny, algorithm, precision=precision)
    check_skipped(trainer, spoilt(column, math.nan, 3), rows)
    assert any(name.startswith("critic") for name in state(trainer))
    check_goes_on(trainer, opened(tiny, algorithm, precision=precision))


def test_while_the_critic_warms_up_a_bad_step_is_no_step_of_its_warm_up(tiny: Tiny) -> None:
    algorithm = ppo(warmup_updates=2)
    trainer, straight = opened(tiny, algorithm), opened(tiny, algorithm)
    for one in (trainer, straight):
        assert one.step(minibatch(1)).policy_version == 0
    before = state(trainer)

    update = trainer.step(spoilt(RETURNS, math.inf, 2))

    assert update.is_skipped and update.policy_version == 0
    assert same(state(trainer), before)
    for seed, version in ((2, 0), (3, 1)):
        found = trainer.step(minibatch(seed))
        assert found == straight.step(minibatch(seed))
        assert (found.policy_version, found.is_skipped) == (version, False)
        assert found.stats["optim/skipped"].value == 0.0


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_the_gradient_is_the_steps_also_after_a_skipped_one_and_updates_nothing(
    tiny: Tiny, precision: torch.dtype
) -> None:
    wanted = opened(tiny, ppo(), precision=precision).gradient(minibatch())
    trainer = opened(tiny, ppo(), precision=precision)
    trainer.step(spoilt(ADVANTAGES, math.nan, 3))
    before = state(trainer)

    found = trainer.gradient(minibatch())
    again = trainer.gradient(minibatch())

    assert found.keys() == wanted.keys() == again.keys()
    assert any(name.startswith("critic.") for name in found)
    assert all(torch.equal(gradient, wanted[name]) for name, gradient in found.items())
    assert all(torch.equal(gradient, again[name]) for name, gradient in found.items())
    assert same(state(trainer), before)
    norm = math.sqrt(
        sum(float(gradient.double().square().sum()) for name, gradient in found.items() if "critic." not in name)
    )
    assert trainer.step(minibatch()).stats["optim/grad_norm"].value == pytest.approx(norm, rel=1e-5)
