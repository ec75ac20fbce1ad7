"""The soft punishment of replies that come near the limit. Plain numbers, no tensors."""

from __future__ import annotations


def soft_overlong_punishment(length: int, max_length: int, cache: int, factor: float = 1.0) -> float:
    """The length part of the reward. Source: arXiv 2503.14476, Eq. 13 (Lmax = max_length, Lcache = cache).

    0 up to max_length - cache, then linear down to -factor at max_length, and -factor beyond. Lengths are in tokens.

    >>> [soft_overlong_punishment(n, 100, 20) for n in (80, 81, 90, 100, 110)]
    [0.0, -0.05, -0.5, -1.0, -1.0]
    """
    excess = length - (max_length - cache)
    if excess <= 0:
        return 0.0
    return -factor * min(1.0, excess / cache)
