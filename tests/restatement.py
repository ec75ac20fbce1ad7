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


def micro_batch_mean(losses: Rows, trains: Mask, rows: int) -> float:
    """The paper-era mean: each run of rows has its token mean, times its share of all rows."""
    total = 0.0
    for start in range(0, len(losses), rows):
        part = losses[start : start + rows]
        total += token_mean(part, trains[start : start + rows]) * len(part) / len(losses)
    return total


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


def leave_one_out(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """RLOO (arXiv 2402.14740): the reward minus the mean of the other replies; 0 without another."""
    advantages = []
    for place, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        others = [
            other
            for number, (other, own) in enumerate(zip(rewards, groups, strict=True))
            if own == group and number != place
        ]
        advantages.append(reward - mean(others) if others else 0.0)
    return advantages


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], mask: Sequence[bool], discount: float, decay: float
) -> list[float]:
    """GAE (arXiv 1506.02438, Eq. 16) of one reply, as the sum over all later errors; masked places do not exist."""
    places = [place for place, inside in enumerate(mask) if inside]
    errors = []
    for number, place in enumerate(places):
        is_last = number == len(places) - 1
        following = 0.0 if is_last else values[places[number + 1]]
        errors.append(rewards[place] + discount * following - values[place])
    advantages = [0.0] * len(mask)
    for number, place in enumerate(places):
        later = errors[number:]
        advantages[place] = math.fsum((discount * decay) ** ahead * error for ahead, error in enumerate(later))
    return advantages


def rewards_to_go(rewards: Sequence[float], mask: Sequence[bool]) -> list[float]:
    """REINFORCE++ (arXiv 2501.03262): what a reply is still to be given, from each of its places on."""
    return [
        math.fsum(rewards[later] for later in range(place, len(mask)) if mask[later]) if mask[place] else 0.0
        for place in range(len(mask))
    ]


def whitened(values: Rows, trains: Mask) -> list[list[float]]:
    """Mean 0 and sample deviation 1 over all tokens of the step, with 1e-6; 0 where there is nothing to compare."""
    inside = [
        value for row, mask in zip(values, trains, strict=True) for value, is_in in zip(row, mask, strict=True) if is_in
    ]
    if len(set(inside)) < 2:
        return [[0.0] * len(row) for row in values]
    centre, deviation = mean(inside), sample_deviation(inside)
    return [
        [(value - centre) / (deviation + 1e-6) if is_in else 0.0 for value, is_in in zip(row, mask, strict=True)]
        for row, mask in zip(values, trains, strict=True)
    ]


def kl_estimate(name: str, logprob: float, other: float) -> float:
    """J. Schulman's three estimates (2020) of KL(p || q) from a token of p."""
    if name == "k1":
        return logprob - other
    if name == "k2":
        return 0.5 * (logprob - other) ** 2
    return math.exp(other) / math.exp(logprob) - 1.0 + (logprob - other)


def sequence_objective(
    logprobs: Sequence[float],
    old_logprobs: Sequence[float],
    advantage: float,
    mask: Sequence[bool],
    low: float,
    high: float,
) -> float:
    """GSPO (arXiv 2507.18071, Eq. 5 and 7) of one reply: the geometric mean of its tokens' ratios, clipped."""
    inside = [place for place, is_in in enumerate(mask) if is_in]
    product = 1.0
    for place in inside:
        product *= math.exp(logprobs[place] - old_logprobs[place])
    ratio = product ** (1 / len(inside))
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def clipped_weight_slope(logprob: float, old_logprob: float, advantage: float, low: float, high: float) -> float:
    """CISPO (arXiv 2506.13585, Eq. 4): what a token's objective changes by with its log-probability."""
    return min(max(math.exp(logprob - old_logprob), 1 - low), 1 + high) * advantage


def value_loss(value: float, old_value: float, target: float, clip: float | None) -> float:
    """Half the squared error, or half the larger of it and that of the value held within `clip` of the old one."""
    plain = (value - target) ** 2
    if clip is None:
        return plain / 2
    held = min(max(value, old_value - clip), old_value + clip)
    return max(plain, (held - target) ** 2) / 2


def covariances(logprobs: Rows, advantages: Rows, trains: Mask) -> list[list[float]]:
    """Entropy mechanism (arXiv 2505.22617, Eq. 10), over the tokens of a step; 0 for tokens that do not train."""
    places = [(row, place) for row, mask in enumerate(trains) for place, is_in in enumerate(mask) if is_in]
    if not places:
        return [[0.0] * len(mask) for mask in trains]
    centre = mean([logprobs[row][place] for row, place in places])
    other = mean([advantages[row][place] for row, place in places])
    return [
        [
            (logprobs[row][place] - centre) * (advantages[row][place] - other) if is_in else 0.0
            for place, is_in in enumerate(mask)
        ]
        for row, mask in enumerate(trains)
    ]
