from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.maths.statistics import (
    mean_over_problems,
    mean_over_samples,
    paired_difference,
    pass_at_k,
    wilson,
)


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


def test_the_interval_over_samples_has_the_width_that_theory_gives() -> None:
    """30 problems with 16 of 32 right: the mean has standard error sqrt(0.25 / 31 / 30)."""
    found = mean_over_samples([[True] * 16 + [False] * 16] * 30)
    half = 1.959964 * (0.25 / 31 / 30) ** 0.5
    assert found.mean == 0.5
    assert (found.low, found.high) == (pytest.approx(0.5 - half, abs=0.002), pytest.approx(0.5 + half, abs=0.002))


def test_the_two_intervals_differ_where_problems_differ() -> None:
    """Half of the problems nearly always right, half nearly never: other problems would move the mean, other samples not."""
    correct = [[True] * 31 + [False], [False] * 31 + [True]] * 15
    over_samples = mean_over_samples(correct)
    over_problems = mean_over_problems([sum(row) / 32 for row in correct])
    assert over_samples.mean == over_problems.mean == 0.5
    assert over_samples.high - over_samples.low < 0.03
    assert over_problems.high - over_problems.low > 0.3


def test_the_interval_over_samples_covers_what_the_same_problems_would_give_again() -> None:
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 1.0, 40)
    covered = 0
    for _ in range(200):
        correct = rng.random((40, 3)) < chances[:, None]
        interval = mean_over_samples(correct.tolist(), resamples=400)
        covered += interval.low <= chances.mean() <= interval.high
    assert 0.90 <= covered / 200 <= 0.985


@pytest.mark.parametrize(
    ("correct", "right", "samples"),
    [
        ([[True], [False], [False], [True]], 2, 4),  # one sample a problem
        ([[True]], 1, 1),  # one problem, one sample
        ([[True] * 4], 4, 4),  # one problem, always right
        ([[True] * 4, [False] * 4], 4, 8),  # always right and never right
        ([[False] * 2] * 5, 0, 10),
    ],
)
def test_where_samples_show_no_spread_the_interval_is_not_a_point(
    correct: list[list[bool]], right: int, samples: int
) -> None:
    assert mean_over_samples(correct) == wilson(right, samples)


def test_one_problem_of_two_samples_may_be_anything() -> None:
    assert mean_over_samples([[True, False]]) == (0.5, 0.0, 1.0)


def test_intervals_over_samples_are_repeatable_and_refuse_a_problem_without_one() -> None:
    correct = [[True, False, True], [False, False, True]]
    assert mean_over_samples(correct, seed=1) == mean_over_samples(correct, seed=1)
    for nothing in ([], [[True], []]):
        with pytest.raises(ValueError, match="at least one"):
            mean_over_samples(nothing)


def test_the_paired_difference_is_narrower_than_two_intervals_apart() -> None:
    """Problems from hopeless to easy; b is right a little more often on each."""
    a = [number / 40 for number in range(32)]
    b = [score + (0.05 if number % 2 else 0.1) for number, score in enumerate(a)]
    found = paired_difference(a, b)
    assert found.mean == pytest.approx(0.075)
    assert 0.06 < found.low < 0.075 < found.high < 0.09
    assert mean_over_problems(a).high > mean_over_problems(b).low, "their own intervals overlap"
    turned = paired_difference(b, a)
    assert tuple(turned) == pytest.approx((-found.mean, -found.high, -found.low), abs=0.002)


def test_the_paired_difference_of_noise_holds_zero_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 1.0, 50)
    held = 0
    for _ in range(200):
        a, b = rng.binomial(4, chances) / 4, rng.binomial(4, chances) / 4
        interval = paired_difference(a.tolist(), b.tolist(), resamples=400)
        held += interval.low <= 0 <= interval.high
    assert 0.90 <= held / 200 <= 0.99


@pytest.mark.parametrize(
    ("difference", "problems", "low", "high"),
    [  # w = z^2 / (n + z^2), Wilson's upper end of none among n
        (0.0, 30, -0.11351, 0.11351),
        (1.0, 1, -0.58690, 1.0),
        (-1.0, 1, -1.0, 0.58690),
        (1.0, 10, 0.44493, 1.0),
    ],
)
def test_equal_differences_are_no_certainty(difference: float, problems: int, low: float, high: float) -> None:
    before = [0.0 if difference >= 0 else 1.0] * problems
    found = paired_difference(before, [score + difference for score in before])
    assert found == (difference, pytest.approx(low, abs=1e-5), pytest.approx(high, abs=1e-5))


def test_scores_that_make_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="one problem"):
        paired_difference([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="at least one"):
        paired_difference([], [])
