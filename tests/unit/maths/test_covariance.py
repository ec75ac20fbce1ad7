from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.covariance import largest, token_covariance, within_bounds
from tests import restatement

number = st.floats(-5, 5, width=32)
rows_of_tokens = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.tuples(number, number, st.booleans()), min_size=width, max_size=width), min_size=1, max_size=4
    )
)


def test_by_hand() -> None:
    """log-probs -1, -3 (mean -2) and advantages 1, -2 (mean -1/2): 1 * 3/2 and -1 * -3/2. The third lies outside."""
    found_BT = token_covariance(
        torch.tensor([[-1.0, -3.0, math.nan]]),
        torch.tensor([[1.0, -2.0, math.inf]]),
        torch.tensor([[True, True, False]]),
    )
    assert found_BT.tolist() == [[1.5, 1.5, 0.0]]


@settings(deadline=None)
@given(rows_of_tokens)
def test_it_is_the_formula(rows: list[list[tuple[float, float, bool]]]) -> None:
    columns = [[[token[part] for token in row] for row in rows] for part in range(3)]
    logprobs_BT, advantages_BT = (torch.tensor(column, dtype=torch.float64) for column in columns[:2])
    found_BT = token_covariance(logprobs_BT, advantages_BT, torch.tensor(columns[2]))
    expected = restatement.covariances(columns[0], columns[1], columns[2])
    for found, wanted in zip(found_BT.tolist(), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-9)


def test_the_largest_are_chosen_and_never_one_outside_the_mask() -> None:
    covariance_BT = torch.tensor([[9.0, 1.0, 5.0], [-2.0, 4.0, 3.0]])
    mask_BT = torch.tensor([[False, True, True], [True, True, True]])
    assert largest(covariance_BT, mask_BT, share=0.4).tolist() == [[False, False, True], [False, True, False]]
    assert largest(covariance_BT, mask_BT, share=0.999).sum() == 4
    assert not largest(covariance_BT, mask_BT, share=0.19).any()
    assert not largest(covariance_BT, torch.zeros_like(mask_BT), share=0.9).any()


def test_those_within_the_bounds_are_chosen_by_the_seed_alone() -> None:
    covariance_BT = torch.linspace(0, 10, 200).view(4, 50)
    mask_BT = torch.ones(4, 50, dtype=torch.bool)
    mask_BT[0, :40] = False

    def chosen(seed: int, share: float = 0.1) -> torch.Tensor:
        return within_bounds(covariance_BT, mask_BT, low=1.0, high=5.0, share=share, seed=seed)

    candidates = mask_BT & (covariance_BT >= 1.0) & (covariance_BT <= 5.0)
    assert int(chosen(0).sum()) == 16  # a tenth of the 160 tokens in the mask
    assert not (chosen(0) & ~candidates).any()
    assert torch.equal(chosen(0), chosen(0))
    assert not torch.equal(chosen(0), chosen(1))
    assert torch.equal(chosen(3, share=0.9), candidates)  # there are no more
    assert not within_bounds(covariance_BT, mask_BT, low=11.0, high=12.0, share=0.5, seed=0).any()


def test_each_candidate_is_chosen_about_as_often() -> None:
    covariance_BT, mask_BT = torch.ones(1, 10), torch.ones(1, 10, dtype=torch.bool)
    counts = sum(
        within_bounds(covariance_BT, mask_BT, low=0.0, high=2.0, share=0.3, seed=seed).int() for seed in range(400)
    )
    assert isinstance(counts, torch.Tensor)
    assert counts.sum() == 1200
    assert counts.min() > 80 and counts.max() < 160  # 120 each, deviation 9
