from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.algorithms.config import DAPOConfig, GRPOConfig
from dapo.algorithms.policy import clipped_loss, judge_everything, judge_mixed, overlong_penalty
from dapo.algorithms.value import Algorithm
from dapo.batching import pack
from dapo.types import Batch, Finish, LabelledBatch, Reason, ScoredRollout
from tests import restatement
from tests.fakes import rollout, scored, scored_group

MAX_TOKENS = 8


def dapo(**settings: Any) -> Algorithm:
    return DAPOConfig.model_validate(settings).build(MAX_TOKENS)


def label(algorithm: Algorithm, *replies: ScoredRollout) -> LabelledBatch:
    return algorithm.label(pack([scored_group(*replies)]), {})


def loss_and_gradient(algorithm: Algorithm, batch: Batch, labelled: LabelledBatch) -> tuple[float, torch.Tensor]:
    """Loss of the batch as one step, and its gradient by the log-probabilities."""
    logprobs_BT = torch.full(batch.tokens_BT.shape, -1.0, requires_grad=True)
    weight_BT = algorithm.weigh(labelled.trained_BT, batch.group_B)
    loss = (weight_BT * algorithm.loss(logprobs_BT, labelled.columns).loss_BT).sum()
    loss.backward()
    assert logprobs_BT.grad is not None
    return loss.item(), logprobs_BT.grad


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=16))
def test_a_group_is_kept_only_with_both_right_and_wrong_replies(right: list[bool]) -> None:
    reason = judge_mixed(scored_group(*(scored(restatement.rule_reward(one)) for one in right)))
    assert (reason is Reason.KEPT) == restatement.is_informative(right)
    assert reason is not Reason.ALL_RIGHT or all(right)
    assert reason is not Reason.ALL_WRONG or not any(right)
    assert judge_everything(scored_group(*(scored(1) for _ in right))) is Reason.KEPT


def test_the_filter_looks_at_correctness_and_never_at_the_shaped_reward() -> None:
    """All wrong, at lengths that are punished differently: the rewards differ, and there is nothing to learn."""
    wrong = scored_group(*(scored(reward, correct=False) for reward in (-1.0, -1.25, -1.5, -2.0)))
    right = scored_group(*(scored(reward, correct=True) for reward in (1.0, 0.75, 0.5, -0.5)))
    assert judge_mixed(wrong) is Reason.ALL_WRONG
    assert judge_mixed(right) is Reason.ALL_RIGHT
    mixed_at_one_reward = scored_group(scored(0.0, correct=True), scored(0.0, correct=False))
    assert judge_mixed(mixed_at_one_reward) is Reason.KEPT


def test_the_punishment_is_a_part_of_the_reward_beside_correctness() -> None:
    penalise = overlong_penalty(100, 20, 2.0)
    assert penalise(rollout(length=80)) == {"overlong": 0.0}
    assert penalise(rollout(length=90)) == {"overlong": -1.0}
    assert dapo(soft_overlong={"enabled": False}).penalise(rollout(length=10**6)) == {}
    assert GRPOConfig().build(MAX_TOKENS).penalise(rollout(length=10**6)) == {}


def test_the_paper_s_slope_is_a_fifth_of_the_limit_and_ends_at_it() -> None:
    penalise = DAPOConfig().build(100).penalise
    found = [penalise(rollout(length=length))["overlong"] for length in (80, 81, 90, 100)]
    assert found == pytest.approx([0.0, -0.05, -0.5, -1.0])


def test_every_token_of_a_reply_has_the_advantage_of_its_reply() -> None:
    labelled = label(dapo(), scored(1, length=2), scored(-1, length=4), scored(-1, length=1), scored(-1, length=3))
    assert labelled.trained_BT.tolist() == [
        [True, True, False, False],
        [True] * 4,
        [True, False, False, False],
        [True, True, True, False],
    ]
    expected = torch.tensor([[1.5], [-0.5], [-0.5], [-0.5]]) * labelled.trained_BT
    assert torch.allclose(labelled.columns["advantages"], expected, atol=1e-5)


def test_columns_of_the_trainer_are_passed_on() -> None:
    notes = {"old_logprobs": torch.full((2, 1), -0.25)}
    labelled = dapo().label(pack([scored_group(scored(1), scored(-1))]), notes)
    assert set(labelled.columns) == {"old_logprobs", "advantages"}
    assert labelled.columns["old_logprobs"] is notes["old_logprobs"]


FILTERED = {"overlong_filtering": True, "soft_overlong": {"enabled": False}}


def test_a_truncated_reply_is_known_by_its_finish_reason_and_not_by_its_width() -> None:
    """Two replies fill the limit, and one of them ended by itself there: that one trains."""
    replies = (
        scored(1, length=3),
        scored(-1, length=MAX_TOKENS),
        scored(-1, length=MAX_TOKENS, finish=Finish.LENGTH),
    )
    trained_BT = label(dapo(**FILTERED), *replies).trained_BT
    assert trained_BT.sum(dim=1).tolist() == [3, MAX_TOKENS, 0]
    assert label(dapo(), *replies).trained_BT.sum(dim=1).tolist() == [3, MAX_TOKENS, MAX_TOKENS]


def test_a_filtered_reply_stays_in_its_group_s_statistics_or_leaves_them() -> None:
    replies = (scored(1, length=2, finish=Finish.LENGTH), *(scored(-1, length=2) for _ in range(3)))
    stays = label(dapo(**FILTERED), *replies).columns["advantages"]
    assert torch.allclose(stays, torch.tensor([[0.0] * 2] + [[-0.5] * 2] * 3), atol=1e-5)
    leaves = label(dapo(**FILTERED, overlong_in_statistics=False), *replies).columns["advantages"]
    assert not leaves.any()


def test_the_tokens_of_a_truncated_reply_leave_the_denominator_too() -> None:
    """Two replies of 4 tokens, one truncated and filtered: the loss is the other's sum over 4, not over 8."""
    replies = (scored(1, length=4), scored(-1, length=4, finish=Finish.LENGTH))
    size = 1 / (math.sqrt(2) + 1e-6)
    for mean in ("token_mean", "sequence_mean", "group_token_mean"):
        algorithm = dapo(**FILTERED, loss_mean=mean)
        loss, gradient = loss_and_gradient(algorithm, pack([scored_group(*replies)]), label(algorithm, *replies))
        assert loss == pytest.approx(-size, abs=1e-6)
        assert gradient.tolist() == [pytest.approx([-size / 4] * 4, abs=1e-6), [0.0] * 4]


@pytest.mark.parametrize("mean", ["token_mean", "sequence_mean", "group_token_mean", "constant_length"])
def test_with_every_reply_filtered_loss_and_gradient_are_zero(mean: str) -> None:
    algorithm = dapo(**FILTERED, loss_mean=mean)
    replies = (scored(1, length=4, finish=Finish.LENGTH), scored(-1, length=4, finish=Finish.LENGTH))
    loss, gradient = loss_and_gradient(algorithm, pack([scored_group(*replies)]), label(algorithm, *replies))
    assert loss == 0.0 and gradient.tolist() == [[0.0] * 4] * 2


def test_filtering_and_punishment_together_mask_the_reply_and_punish_it_through_its_group() -> None:
    algorithm = dapo(overlong_filtering=True)
    truncated, ended = rollout(length=8, finish=Finish.LENGTH), rollout(length=2)
    rewards = [-1 + algorithm.penalise(truncated)["overlong"], 1 + algorithm.penalise(ended)["overlong"]]
    assert rewards == [-2.0, 1.0]
    labelled = label(algorithm, scored(-2, length=8, finish=Finish.LENGTH), scored(1, length=2), scored(-1, length=2))
    assert labelled.trained_BT.sum(dim=1).tolist() == [0, 2, 2]
    advantages = labelled.columns["advantages"][:, 0].tolist()
    assert advantages == pytest.approx([0.0, *restatement.group_advantages([-2, 1, -1], [0, 0, 0])[1:]], abs=1e-6)


def test_without_old_log_probabilities_the_ratio_is_one_and_the_gradient_the_policy_gradient() -> None:
    loss = clipped_loss(clip_low=0.2, clip_high=0.28, dual_clip=None)
    logprobs_BT = torch.tensor([[-0.3, -4.0]], requires_grad=True)
    advantages_BT = torch.tensor([[2.0, -1.0]])
    found = loss(logprobs_BT, {"advantages": advantages_BT})
    found.loss_BT.sum().backward()
    assert found.watch["policy/ratio_mean"].tolist() == [[1.0, 1.0]]
    assert logprobs_BT.grad is not None and torch.equal(logprobs_BT.grad, -advantages_BT)


def test_what_the_loss_watches() -> None:
    columns = {
        "advantages": torch.tensor([[1.0, -1.0, -1.0, 1.0]]),
        "old_logprobs": torch.log(torch.tensor([[1 / 1.5, 1 / 0.5, 1 / 4.0, 1.0]])),
    }
    found = clipped_loss(clip_low=0.2, clip_high=0.28, dual_clip=3.0)(torch.zeros(1, 4), columns)
    assert found.watch["policy/ratio_mean"].tolist() == [pytest.approx([1.5, 0.5, 4.0, 1.0])]
    assert found.watch["policy/clip_high"].tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert found.watch["policy/clip_low"].tolist() == [[0.0, 1.0, 0.0, 0.0]]
    assert found.watch["policy/clip_dual"].tolist() == [[0.0, 0.0, 1.0, 0.0]]
    assert found.peaks["policy/ratio_max"].max().item() == pytest.approx(4.0)
    assert found.loss_BT.tolist() == [pytest.approx([-1.28, 0.8, 3.0, -1.0])]
