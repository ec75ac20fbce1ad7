from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.ppo import PPOConfig
from dapo.algorithms.relatives import ClipCovConfig, KLCovConfig, ReinforcePlusPlusConfig
from dapo.algorithms.token_labels import explained_variance
from dapo.batching import pack
from dapo.types import Batch, Finish, LabelledBatch
from tests.fakes import scored, scored_group

MAX_TOKENS = 8


def batch_of(*lengths_and_rewards: tuple[int, float], finish: Finish = Finish.STOP) -> Batch:
    replies = [scored(reward, length=length) for length, reward in lengths_and_rewards[:-1]]
    length, reward = lengths_and_rewards[-1]
    return pack([scored_group(*replies, scored(reward, length=length, finish=finish))])


def label(config: Any, batch: Batch, **notes: Tensor) -> LabelledBatch:
    return config.build(MAX_TOKENS).label(batch, notes)  # type: ignore[no-any-return]


PLAIN = PPOConfig(whiten_advantages=False, decay=0.5)


def test_a_critic_s_labels_by_hand() -> None:
    """Values 0.5, 0.5 and reward 1 at the end: errors 0 and 0.5, advantages 0.25 and 0.5, returns 0.75 and 1."""
    values_BT = torch.tensor([[0.5, 0.5, 77.0], [0.0, -1.0, -1.0]])
    labelled = label(PLAIN, batch_of((2, 1.0), (3, -1.0)), values=values_BT)
    assert labelled.columns["advantages"].tolist() == [[0.25, 0.5, 0.0], [-1.0, 0.0, 0.0]]
    assert labelled.columns["returns"].tolist() == [[0.75, 1.0, 0.0], [-1.0, -1.0, -1.0]]
    assert labelled.columns["values"].tolist() == [[0.5, 0.5, 0.0], [0.0, -1.0, -1.0]]
    assert set(labelled.columns) == {"advantages", "returns", "values"}


def test_a_group_of_one_has_something_to_learn_from_with_a_critic() -> None:
    labelled = label(PLAIN, batch_of((1, 1.0)), values=torch.tensor([[0.25]]))
    assert labelled.columns["advantages"].tolist() == [[0.75]]


def test_advantages_are_whitened_over_the_tokens_of_the_step_and_returns_are_not() -> None:
    config = PPOConfig(decay=1.0)
    labelled = label(config, batch_of((1, 1.0), (3, -1.0)), values=torch.zeros(2, 3))
    inside = labelled.columns["advantages"][labelled.trained_BT]
    # One token of +1 and three of -1: mean -1/2, sample deviation 1
    assert inside.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert labelled.columns["returns"][labelled.trained_BT].tolist() == [1.0, -1.0, -1.0, -1.0]


def test_the_divergence_is_taken_from_the_reward_of_each_token() -> None:
    """k1 of 0.5 and -0.25 at beta 0.1, and the reward 1 on the last token: -0.05, and 1.025."""
    notes = {"old_logprobs": torch.tensor([[-1.0, -1.0]]), "reference_logprobs": torch.tensor([[-1.5, -0.75]])}
    config = PPOConfig(whiten_advantages=False, decay=0.0, kl_beta=0.1)
    labelled = label(config, batch_of((2, 1.0)), values=torch.zeros(1, 2), **notes)
    assert labelled.columns["advantages"].tolist() == [pytest.approx([-0.05, 1.025])]
    assert labelled.stats["policy/kl"].value == pytest.approx(0.125)
    nothing = label(PLAIN, batch_of((2, 1.0)), values=torch.zeros(1, 2))
    assert "policy/kl" not in nothing.stats


def test_reinforce_plus_plus_by_hand() -> None:
    """Rewards to go with k1 of 1 on every token at beta 0.5, reward 2: 0.5, 1, 1.5; whitened -1, 0, 1."""
    config = ReinforcePlusPlusConfig(kl_beta=0.5)
    notes = {"old_logprobs": torch.full((1, 3), -1.0), "reference_logprobs": torch.full((1, 3), -2.0)}
    labelled = label(config, batch_of((3, 2.0)), **notes)
    assert labelled.columns["advantages"].tolist() == [pytest.approx([-1.0, 0.0, 1.0], abs=1e-5)]


def test_without_a_divergence_every_token_of_a_reply_has_its_whole_reward_to_go() -> None:
    labelled = label(ReinforcePlusPlusConfig(kl_beta=0.0), batch_of((1, 1.0), (3, -1.0)))
    assert labelled.columns["advantages"][labelled.trained_BT].tolist() == pytest.approx(
        [1.5, -0.5, -0.5, -0.5], abs=1e-5
    )


def test_the_group_s_mean_may_be_taken_from_the_reward_first() -> None:
    """Two groups, one that is right more often: without the baseline its wrong reply is not worse than the other's."""
    batch = pack([scored_group(scored(3), scored(1)), scored_group(scored(-1), scored(-3))])
    plain = label(ReinforcePlusPlusConfig(kl_beta=0.0), batch).columns["advantages"][:, 0].tolist()
    against = (
        label(ReinforcePlusPlusConfig(kl_beta=0.0, group_baseline=True), batch).columns["advantages"][:, 0].tolist()
    )
    deviation = math.sqrt(20 / 3)
    assert plain == pytest.approx([3 / deviation, 1 / deviation, -1 / deviation, -3 / deviation], abs=1e-5)
    size = 1 / math.sqrt(4 / 3)
    assert against == pytest.approx([size, -size, size, -size], abs=1e-5)


@pytest.mark.parametrize("config", [PLAIN, ReinforcePlusPlusConfig(kl_beta=0.0)], ids=["ppo", "reinforce_plus_plus"])
def test_a_filtered_reply_trains_no_token_and_is_in_no_mean(config: Any) -> None:
    batch = batch_of((2, 1.0), (3, -1.0), (2, 5.0), finish=Finish.LENGTH)
    alone = batch_of((2, 1.0), (3, -1.0))
    notes = {"values": torch.zeros(3, 3)} if config is PLAIN else {}
    filtered = label(config.model_copy(update={"overlong_filtering": True}), batch, **notes)
    without = label(config, alone, **{name: column[:2] for name, column in notes.items()})
    assert filtered.trained_BT.sum(dim=1).tolist() == [2, 3, 0]
    assert torch.equal(filtered.columns["advantages"][:2], without.columns["advantages"])
    assert not filtered.columns["advantages"][2].any()


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_counts_as_none(reward: float) -> None:
    for config in (
        PLAIN,
        ReinforcePlusPlusConfig(kl_beta=0.0),
        ReinforcePlusPlusConfig(kl_beta=0.0, group_baseline=True),
    ):
        notes = {"values": torch.zeros(2, 2)} if config is PLAIN else {}
        columns = label(config, batch_of((2, 1.0), (2, reward)), **notes).columns
        assert all(bool(torch.isfinite(column).all()) for column in columns.values())


def test_the_explained_variance_by_hand() -> None:
    returns_BT, mask_BT = torch.tensor([[1.0, -1.0, 9.0]]), torch.tensor([[True, True, False]])
    for values, expected in (
        ([1.0, -1.0, 0.0], 1.0),
        ([0.0, 0.0, 0.0], 0.0),
        ([0.5, -0.5, 0.0], 0.75),
        ([-1, 1, 0], -3.0),
    ):
        found = explained_variance(torch.tensor([values]), returns_BT, mask_BT)
        assert (found.value, found.count) == (pytest.approx(expected), 1.0)
    for mask in ([True, False, False], [False] * 3):  # no variance is there to be explained
        assert explained_variance(returns_BT, returns_BT, torch.tensor([mask])).count == 0.0


def spread_out() -> tuple[Batch, Tensor]:
    batch = batch_of((8, 1.0), (8, -1.0), (4, -1.0))
    old_BT = -torch.arange(1.0, 25.0).view(3, 8) / 6
    return batch, old_BT


def test_the_tokens_that_pay_are_those_of_the_largest_covariance_of_the_whole_step() -> None:
    batch, old_BT = spread_out()
    labelled = label(KLCovConfig(share=0.1), batch, old_logprobs=old_BT)
    # 20 tokens, so two. The first reply is likely and right: its first two tokens.
    assert labelled.columns["chosen"].nonzero().tolist() == [[0, 0], [0, 1]]
    assert labelled.columns["chosen"].dtype is torch.float32


def test_the_choice_follows_a_reply_to_wherever_it_stands() -> None:
    batch, old_BT = spread_out()
    turned = batch_of((8, -1.0), (4, -1.0), (8, 1.0))
    order = torch.tensor([1, 2, 0])
    one = label(KLCovConfig(share=0.2), batch, old_logprobs=old_BT).columns["chosen"]
    other = label(KLCovConfig(share=0.2), turned, old_logprobs=old_BT[order]).columns["chosen"]
    assert torch.equal(other, one[order])


def test_the_tokens_whose_gradient_stops_are_drawn_anew_for_each_version() -> None:
    config = ClipCovConfig(share=0.2, covariance_low=-100, covariance_high=100)
    chosen = []
    for version in (0, 0, 1):
        batch = pack([scored_group(*(scored(reward, length=8, version=version) for reward in (1.0, -1.0, -1.0)))])
        chosen.append(
            label(config, batch, old_logprobs=-torch.rand(3, 8, generator=torch.Generator())).columns["chosen"]
        )
    assert [int(one.sum()) for one in chosen] == [4, 4, 4]  # a fifth of 24
    assert torch.equal(chosen[0], chosen[1]) and not torch.equal(chosen[0], chosen[2])
