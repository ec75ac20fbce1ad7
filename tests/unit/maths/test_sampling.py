from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths.sampling import draw, inverse_cdf, restrict
from tests import restatement

JUST_BELOW_ONE = 1 - 2**-24
VOCABULARIES = (1, 2, 511, 512, 513, 1024, 1537, 49152)


def weights_of(rows: int, vocabulary: int, seed: int) -> Tensor:
    """Whole numbers, many of them 0: every sum is exact, so that every search must agree."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 50, (rows, vocabulary), generator=generator)
    counts = counts * (torch.rand(rows, vocabulary, generator=generator) < 0.4)
    counts[:, int(torch.randint(0, vocabulary, (1,), generator=generator))] += 1
    return counts.float()


def plain_search(weights_BV: Tensor, uniform_B: Tensor) -> Tensor:
    cumulative_BV = weights_BV.double().cumsum(dim=1)
    target_B1 = uniform_B.double().unsqueeze(1) * cumulative_BV[:, -1:]
    return (cumulative_BV <= target_B1).sum(dim=1)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(VOCABULARIES), st.integers(0, 2**32), st.lists(st.floats(0, 1, exclude_max=True, width=32)))
def test_the_index_is_that_of_a_plain_search(vocabulary: int, seed: int, uniforms: list[float]) -> None:
    chosen = [0.0, JUST_BELOW_ONE, 0.5, *uniforms]
    weights_BV = weights_of(len(chosen), vocabulary, seed)
    uniform_B = torch.tensor(chosen)
    found_B = inverse_cdf(weights_BV, uniform_B)
    assert torch.equal(found_B, plain_search(weights_BV, uniform_B))
    assert (weights_BV.gather(1, found_B.unsqueeze(1)) > 0).all()


def test_the_index_is_that_of_a_search_by_hand() -> None:
    weights = [0.0, 2.0, 0.0, 1.0, 1.0, 0.0]
    uniforms = [0.0, 0.25, 0.49, 0.5, 0.74, 0.75, JUST_BELOW_ONE]
    found = inverse_cdf(torch.tensor([weights] * 7), torch.tensor(uniforms)).tolist()
    assert found == [1, 1, 1, 3, 3, 4, 4]
    assert found == [restatement.inverse_cdf(weights, uniform) for uniform in uniforms]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(VOCABULARIES[:-1]), st.integers(0, 2**32), st.floats(0, 1, exclude_max=True))
def test_with_weights_of_any_size_the_index_encloses_the_target(vocabulary: int, seed: int, uniform: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(1, vocabulary, generator=generator) ** 30 * (
        torch.rand(1, vocabulary, generator=generator) < 0.5
    )
    weights[0, seed % vocabulary] += 1e-20
    index = int(inverse_cdf(weights, torch.tensor([uniform], dtype=torch.float64)))
    assert weights[0, index] > 0
    shares = weights[0].double() / weights[0].double().sum()
    before = shares[:index].sum().item()
    assert before - 1e-12 <= uniform <= before + shares[index].item() + 1e-12


@pytest.mark.parametrize("vocabulary", [1, 512, 513, 49152])
@pytest.mark.parametrize("uniform", [0.0, 0.5, JUST_BELOW_ONE, 1 - 2**-53])
def test_an_index_without_weight_is_never_drawn(vocabulary: int, uniform: float) -> None:
    for place in {0, vocabulary // 2, vocabulary - 1}:
        weights = torch.zeros(1, vocabulary)
        weights[0, place] = 1e-30
        assert inverse_cdf(weights, torch.tensor([uniform], dtype=torch.float64)).tolist() == [place]


def test_a_rare_token_at_the_end_of_a_long_row_keeps_its_chance() -> None:
    weights = torch.ones(1, 49152)
    assert inverse_cdf(weights, torch.tensor([1 - 0.5 / 49152], dtype=torch.float64)).tolist() == [49151]
    weights[0, -1] = 2**-12
    assert inverse_cdf(weights, torch.tensor([1 - 2e-9], dtype=torch.float64)).tolist() == [49151]


def test_rows_are_drawn_apart_from_each_other() -> None:
    weights_BV, uniform_B = weights_of(6, 700, 3), torch.rand(6, generator=torch.Generator().manual_seed(4))
    together = inverse_cdf(weights_BV, uniform_B).tolist()
    assert together == [int(inverse_cdf(weights_BV[row : row + 1], uniform_B[row : row + 1])) for row in range(6)]


def test_frequencies_are_those_of_the_weights() -> None:
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.5, 3.5])
    draws = 20_000
    uniform_B = torch.rand(draws, generator=torch.Generator().manual_seed(11))
    counts = torch.bincount(inverse_cdf(weights.expand(draws, -1).contiguous(), uniform_B), minlength=6).double()
    expected = draws * weights.double() / weights.sum()
    assert counts[2] == 0
    there = expected > 0
    chi_square = ((counts - expected)[there] ** 2 / expected[there]).sum().item()
    assert chi_square < 18.47  # the 99.9% point of 4 degrees of freedom


LOGITS = [math.log(0.5), math.log(0.3), math.log(0.15), math.log(0.05)]


def kept(logits: list[float], **settings: float) -> list[int]:
    found = restrict(torch.tensor([logits]), **settings)[0]  # type: ignore[arg-type]
    stays = found > -torch.inf
    assert torch.equal(found[stays], torch.tensor(logits)[stays])
    return stays.nonzero().squeeze(1).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 1}, [0]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"top_p": 0.49}, [0]),
        ({"top_p": 0.7}, [0, 1]),  # 0.5 does not reach it, 0.8 does
        ({"top_p": 0.81}, [0, 1, 2]),
        ({"top_p": 0.99}, [0, 1, 2, 3]),
        ({"top_p": 1e-9}, [0]),
        ({"min_p": 0.05}, [0, 1, 2, 3]),
        ({"min_p": 0.2}, [0, 1, 2]),  # the floor is 0.2 * 0.5 = 0.1
        ({"min_p": 0.5}, [0, 1]),
        ({"min_p": 0.99}, [0]),
        ({"top_k": 2, "top_p": 0.6}, [0]),  # 0.5 of the 0.8 that top-k left is 0.625
        ({"top_k": 3, "min_p": 0.5}, [0, 1]),
    ],
)
def test_what_top_k_top_p_and_min_p_leave(settings: dict[str, float], expected: list[int]) -> None:
    assert kept(LOGITS, **settings) == expected


def test_the_order_of_the_vocabulary_does_not_matter() -> None:
    assert kept([LOGITS[2], LOGITS[0], LOGITS[3], LOGITS[1]], top_p=0.7) == [1, 3]
    assert kept([LOGITS[2], LOGITS[0], LOGITS[3], LOGITS[1]], top_k=3) == [0, 1, 3]


def draw_one(logits: list[float], uniform: float, **settings: float) -> tuple[int, float]:
    tokens, logprobs = draw(torch.tensor([logits]), torch.tensor([uniform]), **settings)  # type: ignore[arg-type]
    return int(tokens), logprobs.item()


def test_temperature_zero_takes_the_likeliest_token_with_certainty() -> None:
    for uniform in (0.0, 0.5, JUST_BELOW_ONE):
        assert draw_one([0.0, 3.0, 2.9], uniform, temperature=0.0) == (1, 0.0)


def test_the_log_probability_is_that_of_the_distribution_that_was_drawn_from() -> None:
    logits = [1.0, -0.5, 2.0, 0.0]
    for uniform in (0.0, 0.3, 0.6, 0.9):
        token, logprob = draw_one(logits, uniform, temperature=0.6)
        assert logprob == pytest.approx(restatement.log_softmax(logits, 0.6)[token], abs=1e-6)
    token, logprob = draw_one(LOGITS, 0.9, temperature=1.0, top_k=2)
    assert (token, logprob) == (1, pytest.approx(math.log(0.3 / 0.8), abs=1e-6))


def test_a_low_temperature_sharpens_and_a_high_one_flattens_what_is_drawn() -> None:
    uniform_B = torch.rand(4000, generator=torch.Generator().manual_seed(2))
    shares = []
    for temperature in (0.5, 1.0, 2.0):
        tokens_B, _ = draw(torch.tensor([LOGITS]).expand(4000, -1), uniform_B, temperature=temperature)
        shares.append((tokens_B == 0).double().mean().item())
    expected = [math.exp(restatement.log_softmax(LOGITS, temperature)[0]) for temperature in (0.5, 1.0, 2.0)]
    assert shares == pytest.approx(expected, abs=0.03)


def test_tokens_that_were_left_out_are_never_drawn() -> None:
    uniform_B = torch.rand(2000, generator=torch.Generator().manual_seed(3))
    tokens_B, logprobs_B = draw(torch.tensor([LOGITS]).expand(2000, -1), uniform_B, temperature=1.0, top_p=0.7)
    assert set(tokens_B.tolist()) == {0, 1}
    assert torch.isfinite(logprobs_B).all()


@pytest.mark.parametrize("fault", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 3, 599])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logits_that_are_not_finite_are_told_in_words(
    fault: float, place: int, temperature: float, top_p: float
) -> None:
    logits_BV = torch.randn(3, 600, generator=torch.Generator().manual_seed(0))
    logits_BV[1, place] = fault
    with pytest.raises(FloatingPointError) as raised:
        draw(logits_BV, torch.tensor([0.1, 0.5, 0.9]), temperature=temperature, top_p=top_p)
    assert "the logits are not finite (NaN or infinity) in 1 of 3 rows" in str(raised.value)
    assert "learning rate that is too high" in str(raised.value)


def test_a_row_without_any_likely_token_is_told_in_words() -> None:
    with pytest.raises(FloatingPointError, match="in 2 of 2 rows"):
        draw(torch.full((2, 700), -math.inf), torch.tensor([0.0, 0.5]), temperature=1.0)


def test_tokens_that_are_ruled_out_are_no_fault() -> None:
    logits_BV = torch.full((2, 700), -math.inf)
    logits_BV[:, 5] = 1.0
    tokens_B, logprobs_B = draw(logits_BV, torch.tensor([0.0, JUST_BELOW_ONE]), temperature=1.0)
    assert (tokens_B.tolist(), logprobs_B.tolist()) == ([5, 5], [0.0, 0.0])
