from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.batching import minibatches, pack, packed_micro_batches, padded_micro_batches, select_rows
from dapo.maths.weights import constant_length, group_token_mean, sequence_mean, token_mean
from dapo.types import Batch, Finish, LabelledBatch, Minibatch, Rollout, ScoredGroup, ScoredRollout
from tests.fakes import problem, render, scored, scored_group


def labelled_of(*groups: ScoredGroup, trained_BT: torch.Tensor | None = None) -> LabelledBatch:
    """Advantages that name their row: row + 1."""
    batch = pack(groups)
    trained_BT = batch.mask_BT if trained_BT is None else trained_BT
    advantages_BT = (torch.arange(batch.num_rows) + 1.0).unsqueeze(1) * trained_BT
    return LabelledBatch(batch=batch, trained_BT=trained_BT, columns={"advantages": advantages_BT})


def group_of(name: str, *lengths: int) -> ScoredGroup:
    return scored_group(*(scored((-1.0) ** place, length=length) for place, length in enumerate(lengths)), name=name)


def test_rows_are_laid_out_in_group_order_with_padding_that_is_no_part_of_the_mask() -> None:
    """With one reply cut at the limit and one short, what is not a token is masked, whatever ids it holds."""
    made = (
        Rollout(
            token_ids=(5, 0),
            mask=(True, False),
            logprobs=(-0.5, 0.0),
            text="a",
            finish=Finish.STOP,
            policy_version=3,
        ),
        Rollout(
            token_ids=(7, 0, 9),
            mask=(True, True, True),
            logprobs=(-1.0, -2.0, -3.0),
            text="b",
            finish=Finish.LENGTH,
            policy_version=4,
        ),
    )
    rows = tuple(
        ScoredRollout(rollout=one, score=scored(1).score, parts={"correctness": 1.0, "overlong": -0.25 * place})
        for place, one in enumerate(made)
    )
    first = ScoredGroup(prompt=render(problem("p0", "ab")), rollouts=rows)
    second = ScoredGroup(prompt=render(problem("p1", "c")), rollouts=(scored(-1, length=1),))
    batch = pack([first, second])
    assert batch.num_rows == 3
    assert batch.prompt_ids == ((97, 98), (97, 98), (99,))
    assert batch.tokens_BT.tolist() == [[5, 0, 0], [7, 0, 9], [1, 0, 0]]
    assert batch.mask_BT.tolist() == [[True, False, False], [True, True, True], [True, False, False]]
    assert batch.lengths_B.tolist() == [2, 3, 1]
    assert batch.sampled_logprobs_BT.tolist() == [[-0.5, 0.0, 0.0], [-1.0, -2.0, -3.0], [-0.5, 0.0, 0.0]]
    assert batch.rewards_B.tolist() == [1.0, 0.75, -1.0]
    assert batch.group_B.tolist() == [0, 0, 1]
    assert batch.truncated_B.tolist() == [False, True, False]
    assert batch.version_B.tolist() == [3, 4, 0]


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one group"):
        pack([])


def test_rewards_that_a_task_gives_as_whole_numbers_are_floats_in_the_batch() -> None:
    rewards_B = pack([scored_group(scored(1), scored(-1))]).rewards_B
    assert rewards_B.dtype is torch.float32 and rewards_B.tolist() == [1.0, -1.0]


def test_groups_of_different_size_are_packed() -> None:
    batch = pack([group_of("a", 1, 2, 3), group_of("b", 4), group_of("c", 1, 1)])
    assert batch.group_B.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.tokens_BT.shape == (6, 4)


def rows_of(part: Minibatch) -> list[int]:
    """The rows of a part, read from its advantages."""
    return [int(value) - 1 for value in part.columns["advantages"].amax(dim=1)]


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [(4, 2, [2, 2]), (5, 2, [3, 2]), (5, 3, [2, 2, 1]), (2, 16, [1, 1]), (3, 1, [3]), (7, 4, [2, 2, 2, 1])],
)
def test_a_step_is_cut_into_updates_of_whole_groups_as_evenly_as_they_go(
    groups: int, count: int, expected: list[int]
) -> None:
    parts = minibatches(labelled_of(*(group_of(f"p{number}", 2, 3) for number in range(groups))), token_mean, count)
    assert [part.num_rows for part in parts] == [2 * number for number in expected]
    assert [row for part in parts for row in rows_of(part)] == list(range(2 * groups))


def test_the_weights_of_each_update_are_those_of_its_own_tokens() -> None:
    parts = minibatches(labelled_of(group_of("a", 2, 2), group_of("b", 5, 1), group_of("c", 3, 3)), token_mean, 2)
    assert [part.weight_BT.sum().item() for part in parts] == pytest.approx([1.0, 1.0])
    assert [part.weight_BT.max().item() for part in parts] == pytest.approx([1 / 10, 1 / 6])
    per_group = minibatches(
        labelled_of(group_of("a", 2, 2), group_of("b", 5, 1), group_of("c", 3, 3)), group_token_mean, 2
    )
    assert per_group[0].weight_BT[:, 0].tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 12, 1 / 12])
    assert per_group[1].weight_BT[:, 0].tolist() == pytest.approx([1 / 6, 1 / 6])


def test_every_field_of_an_update_has_the_same_rows_in_the_same_order() -> None:
    groups = (group_of("a", 2, 4), group_of("b", 3, 1), group_of("c", 1, 5))
    labelled = labelled_of(*groups)
    batch = labelled.batch
    rows = 0
    for part in minibatches(labelled, sequence_mean, 3):
        chosen = rows_of(part)
        assert part.prompt_ids == tuple(batch.prompt_ids[row] for row in chosen)
        for name in ("tokens_BT", "lengths_B", "version_B", "sampled_logprobs_BT"):
            assert torch.equal(getattr(part, name), getattr(batch, name)[chosen]), name
        assert torch.equal(part.trained_BT, labelled.trained_BT[chosen])
        rows += len(chosen)
    assert rows == batch.num_rows


def test_an_update_in_which_no_token_trains_is_left_out() -> None:
    groups = (group_of("a", 2, 2), group_of("b", 2, 2))
    trained_BT = torch.tensor([[True, True]] * 2 + [[False, False]] * 2)
    parts = minibatches(labelled_of(*groups, trained_BT=trained_BT), token_mean, 2)
    assert [rows_of(part) for part in parts] == [[0, 1]]
    assert minibatches(labelled_of(*groups, trained_BT=torch.zeros(4, 2, dtype=torch.bool)), token_mean, 2) == []


def test_chosen_rows_come_with_all_that_they_need_and_no_more_width() -> None:
    (part,) = minibatches(labelled_of(group_of("a", 2, 4), group_of("b", 3, 1)), token_mean, 1)
    chosen = select_rows(part, [3, 0])
    assert rows_of(chosen) == [3, 0]
    assert chosen.lengths_B.tolist() == [1, 2]
    assert chosen.prompt_ids == (part.prompt_ids[3], part.prompt_ids[0])
    assert chosen.version_B.tolist() == part.version_B[[3, 0]].tolist()
    for name in ("tokens_BT", "sampled_logprobs_BT", "trained_BT", "weight_BT"):
        assert torch.equal(getattr(chosen, name), getattr(part, name)[[3, 0], :2]), name
    assert chosen.columns["advantages"].shape == (2, 2)


LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_each_row_is_in_one_padded_micro_batch_that_fits_the_budget_or_holds_nothing_else(
    lengths: list[tuple[int, int]], budget: int
) -> None:
    prompts = [(0,) * prompt for prompt, _ in lengths]
    parts = padded_micro_batches(prompts, torch.tensor([reply for _, reply in lengths]), budget)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    for part in parts:
        width = max(lengths[row][0] for row in part) + max(lengths[row][1] for row in part)
        assert len(part) == 1 or len(part) * width <= budget


def test_a_budget_for_all_gives_one_micro_batch_and_rows_of_like_length_share_one() -> None:
    prompts = [(0,) * 2] * 6
    lengths_B = torch.tensor([30, 2, 29, 3, 28, 1])
    assert len(padded_micro_batches(prompts, lengths_B, 10_000)) == 1
    parts = padded_micro_batches(prompts, lengths_B, 3 * 32)
    assert [sorted(part) for part in parts] == [[0, 2, 4], [1, 3, 5]]


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
def test_packed_micro_batches_keep_the_order_and_count_a_prompt_once_for_its_neighbours(
    lengths: list[tuple[int, int]], budget: int, size: int
) -> None:
    prompts = [(row // size,) * lengths[row - row % size][0] for row in range(len(lengths))]
    parts = packed_micro_batches(prompts, torch.tensor([reply for _, reply in lengths]), budget)
    assert [row for part in parts for row in part] == list(range(len(lengths)))
    for part in parts:
        prompt_positions = sum(len(prompt) for prompt in {prompts[row] for row in part})
        assert len(part) == 1 or prompt_positions + sum(lengths[row][1] for row in part) <= budget


def test_replies_that_share_their_prompt_fit_where_padding_would_not() -> None:
    prompts, lengths_B = [(7,) * 20] * 4, torch.tensor([5, 1, 1, 1])
    assert packed_micro_batches(prompts, lengths_B, 28) == [[0, 1, 2, 3]]
    assert packed_micro_batches(prompts, lengths_B, 27) == [[0, 1, 2], [3]]
    assert len(padded_micro_batches(prompts, lengths_B, 28)) > 1


@settings(deadline=None)
@given(
    st.sampled_from([padded_micro_batches, packed_micro_batches]),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_micro_batches_carry_each_token_s_weight_once(split: Any, groups: list[list[int]], budget: int) -> None:
    """Whatever the split, the weights over all micro-batches are those of the whole step, token for token."""
    labelled = labelled_of(*(group_of(f"p{number}", *lengths) for number, lengths in enumerate(groups)))
    for weigh in (
        token_mean,
        sequence_mean,
        group_token_mean,
        lambda mask_BT, group_B: constant_length(mask_BT, group_B, length=9),
    ):
        (whole,) = minibatches(labelled, weigh, 1)
        seen_BT = torch.zeros_like(whole.weight_BT)
        for rows in split(whole.prompt_ids, whole.lengths_B, budget):
            part = select_rows(whole, rows)
            seen_BT[rows, : part.weight_BT.shape[1]] += part.weight_BT
        assert torch.equal(seen_BT, whole.weight_BT)


def test_no_value_holds_a_field_that_a_row_choice_could_forget() -> None:
    """Every field of a batch but those the step itself is made from reaches the update."""
    carried = {field.name for field in fields(Minibatch)}
    settled = {
        "mask_BT",
        "rewards_B",
        "group_B",
        "truncated_B",
    }  # what they say is in trained_BT, weight_BT and columns
    assert {field.name for field in fields(Batch)} - settled <= carried
