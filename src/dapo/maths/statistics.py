"""Intervals for measured accuracies. Plain numbers and numpy; no torch, so that reports need none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959963984540054


class Interval(NamedTuple):
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float


def wilson(successes: float, trials: int) -> Interval:
    """Wilson's score interval of a share. Source: E. B. Wilson, JASA 22 (1927).

    >>> tuple(round(x, 4) for x in wilson(0, 10))
    (0.0, 0.0, 0.2775)
    """
    if trials <= 0:
        raise ValueError(f"an interval of {trials} trials was asked for; it needs at least one")
    share = successes / trials
    spread = Z_95**2 / trials
    centre = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    # At 0 and at 1 a bound is the share itself, and rounding would put it a hair past it.
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def mean_over_problems(scores: Sequence[float], *, seed: int = 0, resamples: int = 10_000) -> Interval:
    """Mean of one score a problem (each in [0, 1]), with a 95% interval over the draw of problems.

    The interval is the percentile bootstrap over problems: the samples of one problem are not independent, so the
    problem is the unit. Where every problem scored the same, resampling shows no spread at all; Wilson's interval
    with one trial a problem stands in.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.size == 0:
        raise ValueError("an interval over no problem was asked for; it needs at least one")
    mean = float(values.mean())
    if float(np.ptp(values)) == 0.0:
        return wilson(mean * values.size, int(values.size))
    return Interval(mean, *_ends(_resampled_means(values, seed, resamples)))


def mean_over_samples(
    correct_by_problem: Sequence[Sequence[bool]], *, seed: int = 0, resamples: int = 10_000
) -> Interval:
    """Mean over problems of the share of right samples, with a 95% interval over the draw of samples alone.

    The problems are held fixed: how far would `avg` move if the same problems were asked again? The samples of each
    problem are resampled among themselves, and the spread is widened by sqrt(k / (k - 1)), since k samples about their
    own mean spread too little. Where no spread can be seen (one sample a problem, or every problem all right or all
    wrong), Wilson's interval with one trial a sample stands in; it is never too narrow here, because samples of problems
    of different difficulty vary less than samples of one mean difficulty.
    """
    if not correct_by_problem or not all(correct_by_problem):
        raise ValueError("an interval over no sample was asked for; every problem needs at least one")
    counts = Counter((len(correct), sum(correct)) for correct in correct_by_problem)
    mean = sum(many * right / size for (size, right), many in counts.items()) / len(correct_by_problem)
    if any(size == 1 for size, _ in counts) or all(right in (0, size) for size, right in counts):
        samples = sum(size * many for (size, _), many in counts.items())
        return wilson(mean * samples, samples)
    rng = np.random.default_rng(seed)
    moved = np.zeros(resamples)
    for (size, right), many in sorted(counts.items()):
        # Problems with equally many right samples add up to one binomial draw.
        drawn = rng.binomial(size * many, right / size, resamples)
        moved += (drawn / size - many * right / size) * math.sqrt(size / (size - 1))
    low, high = _ends(np.clip(mean + moved / len(correct_by_problem), 0.0, 1.0))
    return Interval(mean, low, high)


def paired_difference(a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 10_000) -> Interval:
    """Mean of b - a over the same problems in the same order, with a 95% interval over the draw of problems.

    Scores lie in [0, 1]. The interval is the percentile bootstrap over the problems' differences: what is hard for both
    cancels. Where all differences are equal, resampling shows no spread; then the share w of problems that may have been
    different, were there others, is taken from Wilson's interval of none among them, each by up to 1 either way.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} scores were paired with {len(b)}; a pair is two scores of one problem")
    differences = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    if differences.size == 0:
        raise ValueError("an interval over no problem was asked for; it needs at least one")
    mean = float(differences.mean())
    if float(np.ptp(differences)) == 0.0:
        unseen = wilson(0, int(differences.size)).high
        return Interval(mean, max(-1.0, mean - unseen * (1 + mean)), min(1.0, mean + unseen * (1 - mean)))
    return Interval(mean, *_ends(_resampled_means(differences, seed, resamples)))


def _resampled_means(values: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    chunk = max(1, 4_000_000 // values.size)  # bounds the memory of the index matrix
    for start in range(0, resamples, chunk):
        stop = min(resamples, start + chunk)
        means[start:stop] = values[rng.integers(0, values.size, (stop - start, values.size))].mean(axis=1)
    return means


def _ends(means: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased chance that at least one of k draws is right. Source: arXiv 2107.03374, Eq. 1.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} of {num_samples} samples: k must lie between 1 and the number of samples")
    if num_samples - num_correct < k:
        return 1.0
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)
