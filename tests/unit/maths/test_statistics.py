from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.statistics import mean_over_problems, pass_at_k, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_score_interval_has_its_published_values(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert found.mean == pytest.approx(successes / trials)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@settings(deadline=None)
@given(st.integers(1, 500), st.data())
def test_the_score_interval_holds_its_mean_lies_in_0_to_1_and_is_the_same_from_the_other_end(
    trials: int, data: st.DataObject
) -> None:
    successes = data.draw(st.integers(0, trials))
    found, mirrored = wilson(successes, trials), wilson(trials - successes, trials)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low), abs=1e-9)


def test_intervals_over_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="at least one"):
        mean_over_problems([])


def test_the_interval_over_problems_is_repeatable_by_its_seed() -> None:
    scores = [number / 40 for number in range(40)]
    first = mean_over_problems(scores, seed=3)
    assert first == mean_over_problems(scores, seed=3)
    assert first != mean_over_problems(scores, seed=4)
    assert first.mean == pytest.approx(0.4875)
    assert 0 <= first.low < first.mean < first.high <= 1


def test_the_interval_over_problems_covers_the_truth_about_as_often_as_it_says() -> None:
    """Problems of very different difficulty, four samples each: 200 draws of 50 problems."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        chances = rng.beta(0.5, 1.0, 50)  # its mean is 1/3
        scores = rng.binomial(4, chances) / 4
        interval = mean_over_problems(scores.tolist(), resamples=400)
        covered += interval.low <= 1 / 3 <= interval.high
    assert 0.90 <= covered / 200 <= 0.985


def test_many_samples_of_few_problems_do_not_narrow_the_interval() -> None:
    """Half of 30 problems always right, half never: 32 samples of each say no more than one does."""
    found = mean_over_problems([0.0, 1.0] * 15)
    as_if_all_were_apart = wilson(15 * 32, 30 * 32)
    assert found.high - found.low > 0.3
    assert found.high - found.low > 4 * (as_if_all_were_apart.high - as_if_all_were_apart.low)


@pytest.mark.parametrize("score", [0.0, 1.0, 0.5])
def test_where_all_problems_score_alike_the_interval_is_not_a_point(score: float) -> None:
    assert mean_over_problems([score] * 30) == wilson(score * 30, 30)


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(samples: int) -> None:
    for correct, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        draws = list(itertools.combinations([True] * correct + [False] * (samples - correct), k))
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    assert pass_at_k(1024, 1, 512) == 0.5
    assert pass_at_k(1024, 0, 1024) == 0.0


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_of_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="between 1 and the number of samples"):
        pass_at_k(4, 2, k)
