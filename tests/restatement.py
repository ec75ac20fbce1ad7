"""The formulas again, as slow plain Python over lists: one function a formula, nothing shared with the package.

A batch is a list of replies; a reply is a list of tokens; `trains[i][t]` says whether token t of reply i trains.
Sources: DAPO (arXiv 2503.14476), GRPO (arXiv 2402.03300), Dr. GRPO (arXiv 2503.20783), dual clip (arXiv 1912.09729).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]
Mask = Sequence[Sequence[bool]]


def rule_reward(right: bool) -> float:
    """DAPO, Eq. 7."""
    return 1.0 if right else -1.0


def is_informative(right: Sequence[bool]) -> bool:
    """DAPO, Eq. 8, the condition: 0 < number of right replies < G."""
    number = 0
    for one in right:
        if one:
            number = number + 1
    return 0 < number < len(right)


def soft_overlong(length: int, longest: int, cache: int) -> float:
    """DAPO, Eq. 13, case by case."""
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def sample_deviation(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def group_advantages(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """DAPO, Eq. 9, with the authors' 1e-6; 0 where a group has nothing to compare."""
    advantages = []
    for reward, group in zip(rewards, groups, strict=True):
        own = [other for other, number in zip(rewards, groups, strict=True) if number == group]
        if len(own) == 1 or min(own) == max(own):
            advantages.append(0.0)
        else:
            advantages.append((reward - mean(own)) / (sample_deviation(own) + 1e-6))
    return advantages


def token_objective(
    logprob: float, old_logprob: float, advantage: float, low: float, high: float, dual: float | None = None
) -> float:
    """The clipped term of one token: DAPO, Eq. 8, and the bound of the dual clip, Eq. 5 of arXiv 1912.09729."""
    ratio = math.exp(logprob - old_logprob)
    held = ratio
    if held < 1 - low:
        held = 1 - low
    if held > 1 + high:
        held = 1 + high
    objective = min(ratio * advantage, held * advantage)
    if dual is not None and advantage < 0:
        objective = max(objective, dual * advantage)
    return objective


def token_objective_slope(
    logprob: float, old_logprob: float, advantage: float, low: float, high: float, dual: float | None = None
) -> float:
    """The derivative of `token_objective` by the log-probability, away from the kinks."""
    ratio = math.exp(logprob - old_logprob)
    if advantage > 0 and ratio > 1 + high:
        return 0.0
    if advantage < 0 and ratio < 1 - low:
        return 0.0
    if dual is not None and advantage < 0 and ratio > dual:
        return 0.0
    return ratio * advantage


def token_mean(losses: Rows, trains: Mask) -> float:
    """DAPO, section 3.3: the sum over all tokens of the step, over the number of tokens of the step."""
    total, count = 0.0, 0
    for row, mask in zip(losses, trains, strict=True):
        for loss, is_trained in zip(row, mask, strict=True):
            if is_trained:
                total, count = total + loss, count + 1
    return total / count if count else 0.0


def sequence_mean(losses: Rows, trains: Mask) -> float:
    """GRPO, Eq. 3: the mean over replies of the mean over each reply's tokens."""
    means = []
    for row, mask in zip(losses, trains, strict=True):
        own = [loss for loss, is_trained in zip(row, mask, strict=True) if is_trained]
        if own:
            means.append(mean(own))
    return mean(means) if means else 0.0


def group_token_mean(losses: Rows, trains: Mask, groups: Sequence[int]) -> float:
    """DAPO, Eq. 8 to the letter: the expectation over prompts of each group's token mean."""
    means = []
    for group in sorted(set(groups)):
        rows = [number for number, own in enumerate(groups) if own == group]
        if any(any(trains[number]) for number in rows):
            means.append(token_mean([losses[number] for number in rows], [trains[number] for number in rows]))
    return mean(means) if means else 0.0


def constant_length(losses: Rows, trains: Mask, length: int) -> float:
    """Dr. GRPO, section 3.2: each reply's sum over a constant, and the mean of that over replies."""
    sums = []
    for row, mask in zip(losses, trains, strict=True):
        own = [loss for loss, is_trained in zip(row, mask, strict=True) if is_trained]
        if own:
            sums.append(math.fsum(own) / length)
    return mean(sums) if sums else 0.0


def log_softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    scaled = [logit / temperature for logit in logits]
    largest = max(scaled)
    total = math.fsum(math.exp(value - largest) for value in scaled)
    return [value - largest - math.log(total) for value in scaled]


def entropy(logits: Sequence[float], temperature: float = 1.0) -> float:
    return -math.fsum(math.exp(logprob) * logprob for logprob in log_softmax(logits, temperature))


def inverse_cdf(weights: Sequence[float], uniform: float) -> int:
    """The first index whose cumulated weight exceeds the drawn share of the whole."""
    target = uniform * math.fsum(weights)
    reached = 0.0
    for index, weight in enumerate(weights):
        reached += weight
        if reached > target:
            return index
    raise AssertionError(f"{uniform} lies beyond the weights")
