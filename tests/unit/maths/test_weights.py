from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.losses import clipped
from dapo.maths.weights import (
    constant_length,
    group_token_mean,
    micro_batch_mean,
    sequence_mean,
    sequence_sum,
    token_mean,
)
from tests import restatement

Weigh = Callable[[Tensor, Tensor], Tensor]
Restated = Callable[[restatement.Rows, restatement.Mask, list[int]], float]

MEANS: dict[str, tuple[Weigh, Restated]] = {
    "token_mean": (token_mean, lambda losses, trains, groups: restatement.token_mean(losses, trains)),
    "sequence_mean": (sequence_mean, lambda losses, trains, groups: restatement.sequence_mean(losses, trains)),
    "group_token_mean": (group_token_mean, restatement.group_token_mean),
    "constant_length": (
        partial(constant_length, length=7),
        lambda losses, trains, groups: restatement.constant_length(losses, trains, 7),
    ),
    "sequence_sum": (sequence_sum, lambda losses, trains, groups: restatement.constant_length(losses, trains, 1)),
}
every_mean = pytest.mark.parametrize("name", MEANS)


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)


def loss_at_ratio_one(weigh: Weigh, lengths: tuple[int, ...], advantages: tuple[float, ...]) -> float:
    mask_BT = mask_of(*lengths)
    logprobs_BT = torch.full(mask_BT.shape, -1.5, dtype=torch.float64)
    advantages_BT = torch.tensor(advantages, dtype=torch.float64).unsqueeze(1) * mask_BT
    loss_BT = clipped(logprobs_BT, logprobs_BT, advantages_BT, clip_low=0.2, clip_high=0.28).loss_BT
    return float((weigh(mask_BT, torch.zeros(len(lengths), dtype=torch.long)) * loss_BT).sum())


def test_the_mean_per_reply_and_the_mean_per_token_differ_on_replies_of_different_length() -> None:
    """Lengths 2 and 6, advantages +1 and -1, ratio 1: (-1 + 1) / 2 = 0, and (-2 + 6) / 8 = 0.5."""
    assert loss_at_ratio_one(sequence_mean, (2, 6), (1, -1)) == pytest.approx(0, abs=1e-7)
    assert loss_at_ratio_one(token_mean, (2, 6), (1, -1)) == pytest.approx(0.5, abs=1e-7)
    assert loss_at_ratio_one(group_token_mean, (2, 6), (1, -1)) == pytest.approx(0.5, abs=1e-7)
    assert loss_at_ratio_one(partial(constant_length, length=8), (2, 6), (1, -1)) == pytest.approx(0.25, abs=1e-7)


def test_groups_weigh_alike_or_by_their_tokens() -> None:
    mask_BT, group_B = mask_of(2, 2, 6, 6), torch.tensor([0, 0, 1, 1])
    assert group_token_mean(mask_BT, group_B)[:, 0].tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 24, 1 / 24])
    assert token_mean(mask_BT, group_B)[:, 0].tolist() == pytest.approx([1 / 16] * 4)


def test_the_tokens_of_a_filtered_reply_leave_numerator_and_denominator() -> None:
    """Two replies of 4 tokens, one of them filtered: the sum of the other's is divided by 4 and not by 8."""
    mask_BT = mask_of(4, 4) & torch.tensor([[True], [False]])
    group_B = torch.tensor([0, 0])
    for weigh in (token_mean, sequence_mean, group_token_mean, partial(constant_length, length=4)):
        assert weigh(mask_BT, group_B).tolist() == [[0.25] * 4, [0.0] * 4]


@every_mean
@pytest.mark.parametrize("shape", [(2, 4), (1, 1), (3, 0)])
def test_a_step_in_which_no_token_trains_has_loss_and_gradient_zero(name: str, shape: tuple[int, int]) -> None:
    weight_BT = MEANS[name][0](torch.zeros(shape, dtype=torch.bool), torch.zeros(shape[0], dtype=torch.long))
    assert weight_BT.shape == shape and not weight_BT.any()
    logprobs_BT = torch.full(shape, -2.0, requires_grad=True)
    terms = clipped(logprobs_BT, torch.zeros(shape), torch.ones(shape), clip_low=0.2, clip_high=0.28)
    loss = (weight_BT * terms.loss_BT).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert logprobs_BT.grad is not None and not logprobs_BT.grad.any()


@every_mean
def test_a_group_of_which_nothing_trains_is_no_part_of_the_mean(name: str) -> None:
    weigh = MEANS[name][0]
    mask_BT = mask_of(3, 2, 3, 1)
    masked_BT = mask_BT & torch.tensor([[True], [True], [False], [False]])
    with_it = weigh(masked_BT, torch.tensor([0, 0, 1, 1]))
    without_it = weigh(mask_BT[:2], torch.tensor([0, 0]))
    assert torch.equal(with_it[:2], without_it) and not with_it[2:].any()


@every_mean
@settings(deadline=None)
@given(data=st.data())
def test_the_weighed_sum_is_the_mean_of_the_formula(name: str, data: st.DataObject) -> None:
    weigh, restated = MEANS[name]
    rows, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    cells = st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows)
    trains = data.draw(cells)
    groups = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    losses = torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(rows * 7 + width))
    found = (weigh(torch.tensor(trains), torch.tensor(groups)).double() * losses).sum().item()
    assert found == pytest.approx(restated(losses.tolist(), trains, groups), abs=1e-6)


# The gradient of one step, however it is cut up. Rows: lengths 5, 1, 3, 4, 2 of two groups, one reply filtered.
LENGTHS, GROUPS, FILTERED = (5, 1, 3, 4, 2), (0, 0, 1, 1, 1), 3


def partitions(rows: list[int]) -> Iterator[list[list[int]]]:
    """Every way to spread rows over micro-batches."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for parts in partitions(rest):
        yield [[first], *parts]
        for place in range(len(parts)):
            yield [*parts[:place], [first, *parts[place]], *parts[place + 1 :]]


class Step:
    """Random tokens under a policy that is one row of logits a position, so that replies share its gradient."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.mask_BT = mask_of(*LENGTHS) & (torch.arange(5) != FILTERED).unsqueeze(1)
        self.group_B = torch.tensor(GROUPS)
        self.tokens_BT = torch.randint(0, 6, (5, 5), generator=generator)
        self.old_BT = -2 * torch.rand(5, 5, generator=generator, dtype=torch.float64) - 0.3
        self.advantages_BT = torch.randn(5, 1, generator=generator, dtype=torch.float64).expand(5, 5) * self.mask_BT
        self.policy_TV = torch.randn(5, 6, generator=generator, dtype=torch.float64)

    def gradient(self, weigh: Weigh, parts: list[list[int]], *, extra: int = 0) -> Tensor:
        """Weigh the whole step once, then add up the gradients of its parts, each padded by `extra` columns."""
        order = [row for part in parts for row in part]
        weight_BT = weigh(self.mask_BT[order], self.group_B[order])
        policy_TV = self.policy_TV.clone().requires_grad_()
        place = 0
        for part in parts:
            width = int(max(LENGTHS[row] for row in part))
            logprobs_TV = policy_TV.log_softmax(dim=1)
            logprobs_BT = logprobs_TV[torch.arange(width), self.tokens_BT[part, :width]]
            columns = [logprobs_BT, self.old_BT[part, :width], self.advantages_BT[part, :width]]
            weights = weight_BT[place : place + len(part), :width]
            # What stands in the padding is not 0: only the weights keep it out.
            padded = [torch.nn.functional.pad(column, (0, extra), value=-0.7) for column in columns]
            loss_BT = clipped(*padded, clip_low=0.2, clip_high=0.28, dual_clip=3.0).loss_BT
            (torch.nn.functional.pad(weights, (0, extra)) * loss_BT).sum().backward()
            place += len(part)
        assert policy_TV.grad is not None
        return policy_TV.grad

    def restated_gradient(self, restated: Restated) -> Tensor:
        """The slope of the formula by each token's log-probability, carried through the softmax by hand."""
        found = torch.zeros(5, 6, dtype=torch.float64)
        probabilities = [[math.exp(value) for value in restatement.log_softmax(row)] for row in self.policy_TV.tolist()]
        trains = self.mask_BT.tolist()
        for row, position in itertools.product(range(5), range(5)):
            alone = [[1.0 if (r, t) == (row, position) else 0.0 for t in range(5)] for r in range(5)]
            share = restated(alone, trains, list(GROUPS))
            token = int(self.tokens_BT[row, position])
            slope = -restatement.token_objective_slope(
                math.log(probabilities[position][token]),
                self.old_BT[row, position].item(),
                self.advantages_BT[row, position].item(),
                0.2,
                0.28,
                3.0,
            )
            for entry in range(6):
                direction = (1.0 if entry == token else 0.0) - probabilities[position][entry]
                found[position, entry] += share * slope * direction
        return found


@every_mean
def test_the_gradient_is_that_of_the_formula(name: str) -> None:
    weigh, restated = MEANS[name]
    step = Step()
    whole = step.gradient(weigh, [[0, 1, 2, 3, 4]])
    assert whole.abs().max() > 0.01
    assert torch.allclose(whole, step.restated_gradient(restated), atol=1e-6, rtol=0)


@every_mean
def test_the_gradient_does_not_depend_on_how_a_step_is_split_into_micro_batches(name: str) -> None:
    weigh, step = MEANS[name][0], Step()
    whole = step.gradient(weigh, [[0, 1, 2, 3, 4]])
    splits = list(partitions([0, 1, 2, 3, 4]))
    assert len(splits) == 52  # Bell's number of five: every split there is
    for parts in splits:
        assert torch.allclose(step.gradient(weigh, parts), whole, atol=1e-6, rtol=0), parts


@every_mean
def test_the_gradient_does_not_depend_on_the_order_of_rows_or_the_width_of_the_padding(name: str) -> None:
    weigh, step = MEANS[name][0], Step()
    whole = step.gradient(weigh, [[0, 1, 2, 3, 4]])
    for order in itertools.permutations(range(5)):
        assert torch.allclose(step.gradient(weigh, [list(order)]), whole, atol=1e-6, rtol=0), order
    for extra in (1, 2, 7):
        assert torch.allclose(step.gradient(weigh, [[4, 0], [3, 1, 2]], extra=extra), whole, atol=1e-6, rtol=0), extra


def test_the_paper_era_mean_by_hand() -> None:
    """Lengths 1, 3 and 2 in runs of two rows: 2/3 of the mean of 4 tokens, and 1/3 of the mean of 2."""
    mask_BT, group_B = mask_of(1, 3, 2), torch.tensor([0, 0, 1])
    weight_BT = micro_batch_mean(mask_BT, group_B, rows=2)
    assert weight_BT.tolist() == [
        pytest.approx([1 / 6, 0, 0]),
        pytest.approx([1 / 6] * 3),
        pytest.approx([1 / 6, 1 / 6, 0]),
    ]
    assert torch.allclose(micro_batch_mean(mask_BT, group_B, rows=3), token_mean(mask_BT, group_B))
    assert torch.allclose(micro_batch_mean(mask_BT, group_B, rows=1), sequence_mean(mask_BT, group_B))


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=7), st.integers(1, 8))
def test_the_paper_era_mean_is_the_formula(trains: list[list[bool]], rows: int) -> None:
    losses = torch.randn(len(trains), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
    weight_BT = micro_batch_mean(torch.tensor(trains), torch.zeros(len(trains), dtype=torch.long), rows=rows)
    expected = restatement.micro_batch_mean(losses.tolist(), trains, rows)
    assert (weight_BT.double() * losses).sum().item() == pytest.approx(expected, abs=1e-6)


def test_the_paper_era_mean_of_nothing_is_nothing() -> None:
    assert not micro_batch_mean(torch.zeros(3, 2, dtype=torch.bool), torch.tensor([0, 0, 1]), rows=2).any()
