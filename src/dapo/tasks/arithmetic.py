"""Integer arithmetic made from a seed: "What is 15 * 4? Answer with just the number."

No held-out problem is a training problem, and neither is its twin: where 3 + 5 is held out, 5 + 3 is not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from random import Random
from typing import TYPE_CHECKING

from dapo.errors import ConfigError
from dapo.seeds import derive_seed
from dapo.tasks.messages import to_messages
from dapo.tasks.rewards import integer, judge
from dapo.types import Problem, Rollout, Score

if TYPE_CHECKING:
    from dapo.tasks.config import ArithmeticConfig

Pair = tuple[int, int]

_NAMES = {"+": "add", "-": "sub", "*": "mul"}
_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The task: problems that were drawn when it was made, and a rule that reads the integer a reply ends on."""

    train: tuple[Problem, ...]
    held_out: tuple[Problem, ...]

    def train_problems(self) -> Sequence[Problem]:
        return self.train

    def held_out_problems(self) -> Sequence[Problem]:
        return self.held_out

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        return judge(rollout, problem.answer, integer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All problems of one operation, numbered from 0 without being listed, so that any range of operands is cheap."""

    operation: str
    max_left: int
    max_right: int
    allow_negative: bool

    def __len__(self) -> int:
        if self.operation == "-" and not self.allow_negative:
            return (self.max_left + 1) * (self.max_left + 2) // 2
        return (self.max_left + 1) * (self.max_right + 1)

    def __getitem__(self, number: int) -> Pair:
        if self.operation == "-" and not self.allow_negative:
            left = (isqrt(8 * number + 1) - 1) // 2  # row of the triangle right <= left
            return left, number - left * (left + 1) // 2
        return divmod(number, self.max_right + 1)

    def twins(self, pair: Pair) -> frozenset[Pair]:
        """Return the problems that ask the same thing: both orders for + and *, where both are in range."""
        left, right = pair
        if self.operation == "-" or left > self.max_right or right > self.max_left:
            return frozenset({pair})
        return frozenset({pair, (right, left)})

    def count_twin_sets(self) -> int:
        """Return how many problems there are if twins count once."""
        if self.operation == "-":
            return len(self)
        side = min(self.max_left, self.max_right) + 1
        return len(self) - side * (side - 1) // 2


def build(config: ArithmeticConfig, seed: int) -> Arithmetic:
    """Draw the held-out problems and then the training problems. Raises ConfigError where there are too few."""
    data_seed = seed if config.data_seed is None else config.data_seed
    spaces = [_space(config, operation) for operation in config.operations]
    asked = fill_evenly(config.held_out, [config.held_out] * len(spaces))
    for space, wanted in zip(spaces, asked, strict=True):
        if wanted and wanted >= space.count_twin_sets():
            raise ConfigError(
                f"held_out = {config.held_out} asks for {wanted} problems of {space.operation!r}, but only "
                f"{space.count_twin_sets()} exist (a + b and b + a count once) and training needs some of them; "
                f"lower task.held_out or raise the largest operands"
            )
    held_out = [_draw_held_out(space, wanted, data_seed) for space, wanted in zip(spaces, asked, strict=True)]
    barred = [
        frozenset().union(*(space.twins(pair) for pair in pairs)) for space, pairs in zip(spaces, held_out, strict=True)
    ]
    left_over = [len(space) - len(pairs) for space, pairs in zip(spaces, barred, strict=True)]
    if config.train > sum(left_over):
        counts = ", ".join(f"{count} of {space.operation!r}" for space, count in zip(spaces, left_over, strict=True))
        raise ConfigError(
            f"train = {config.train} asks for more problems than the {sum(left_over)} that exist besides the "
            f"{config.held_out} held-out ones ({counts}); lower task.train or raise the largest operands"
        )
    train = [
        _draw_train(space, wanted, pairs, data_seed)
        for space, wanted, pairs in zip(spaces, fill_evenly(config.train, left_over), barred, strict=True)
    ]
    return Arithmetic(
        train=_mix(spaces, train, config.system, derive_seed(data_seed, "arithmetic", "order", "train")),
        held_out=_mix(spaces, held_out, config.system, derive_seed(data_seed, "arithmetic", "order", "held_out")),
    )


def fill_evenly(total: int, capacities: Sequence[int]) -> list[int]:
    """Share `total` out in equal parts; what one cannot hold goes to the others, the remainder to those that hold most.

    >>> fill_evenly(200, [1000, 1000, 1000]), fill_evenly(200, [1000, 1000, 20])
    ([67, 67, 66], [90, 90, 20])
    """
    shares = [0] * len(capacities)
    left = total
    # The smallest first: what it cannot hold is then shared by all the others.
    order = sorted(range(len(capacities)), key=lambda part: (capacities[part], -part))
    for place, part in enumerate(order):
        shares[part] = min(capacities[part], left // (len(order) - place))
        left -= shares[part]
    return shares


def _space(config: ArithmeticConfig, operation: str) -> Space:
    if operation == "*":
        return Space(operation=operation, max_left=config.max_left, max_right=config.max_right, allow_negative=False)
    largest = config.max_sum_operand
    return Space(operation=operation, max_left=largest, max_right=largest, allow_negative=config.allow_negative)


def _draw_held_out(space: Space, wanted: int, seed: int) -> list[Pair]:
    """Draw one problem out of each of `wanted` different sets of twins."""
    random = Random(derive_seed(seed, "arithmetic", "held_out", space.operation))
    chosen: list[Pair] = []
    taken: set[Pair] = set()
    # A set has at most two twins, so twice as many draws hold enough sets.
    for number in random.sample(range(len(space)), min(len(space), 2 * wanted)):
        pair = space[number]
        if len(chosen) < wanted and pair not in taken:
            chosen.append(pair)
            taken |= space.twins(pair)
    return chosen


def _draw_train(space: Space, wanted: int, barred: frozenset[Pair], seed: int) -> list[Pair]:
    """Draw `wanted` different problems that are not barred."""
    random = Random(derive_seed(seed, "arithmetic", "train", space.operation))
    numbers = random.sample(range(len(space)), min(len(space), wanted + len(barred)))
    allowed = (pair for pair in map(space.__getitem__, numbers) if pair not in barred)
    return [pair for _, pair in zip(range(wanted), allowed, strict=False)]


def _mix(
    spaces: Sequence[Space], drawn: Sequence[Sequence[Pair]], system: str | None, seed: int
) -> tuple[Problem, ...]:
    problems = [
        make_problem(space.operation, pair, system)
        for space, pairs in zip(spaces, drawn, strict=True)
        for pair in pairs
    ]
    Random(seed).shuffle(problems)
    return tuple(problems)


def make_problem(operation: str, pair: Pair, system: str | None = None) -> Problem:
    """Return the problem, e.g. `make_problem("*", (15, 4))` with the id `mul-15-4` and the answer `60`."""
    left, right = pair
    return Problem(
        id=f"{_NAMES[operation]}-{left}-{right}",
        messages=to_messages(f"What is {left} {operation} {right}? Answer with just the number.", system),
        answer=str(_APPLY[operation](left, right)),
        info=_info(operation, left, right),
    )


def _info(operation: str, left: int, right: int) -> Mapping[str, str | int]:
    return {"operation": operation, "left": left, "right": right}
