"""Estimates of KL(p || q) from tokens that p sampled. `logprobs` are p's, `other_logprobs` q's; any shape.

Source: J. Schulman, "Approximating KL divergence" (2020). With d = log q - log p:

| name | term            | estimate                                         |
|------|-----------------|--------------------------------------------------|
| k1   | -d              | unbiased; terms of either sign                   |
| k2   | d^2 / 2         | biased, never negative; its gradient is the KL's |
| k3   | exp(d) - d - 1  | unbiased, never negative; GRPO's                 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

LIMIT = 20.0
"""d is clamped to +-20, so that no estimate overflows."""

Estimator = Literal["k1", "k2", "k3"]


def kl_k1(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """-d."""
    return -_difference(logprobs, other_logprobs)


def kl_k2(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """d^2 / 2."""
    return _difference(logprobs, other_logprobs).square() / 2


def kl_k3(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """exp(d) - d - 1."""
    difference = _difference(logprobs, other_logprobs)
    return difference.exp() - difference - 1


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}


def _difference(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    return (other_logprobs - logprobs).clamp(-LIMIT, LIMIT)
