"""Intervals for measured accuracies. Plain numbers and numpy; no torch, so that reports need none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    chunk = max(1, 4_000_000 // values.size)  # bounds the memory of the index matrix
    for start in range(0, resamples, chunk):
        stop = min(resamples, start + chunk)
        means[start:stop] = values[rng.integers(0, values.size, (stop - start, values.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(mean, float(low), float(high))


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
