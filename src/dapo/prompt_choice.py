"""Which problem is drawn next: the ordinary order, or one that prefers problems whose groups are likely to be mixed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from dapo.prompt_memory import Outcomes, PromptMemory, PromptMemoryConfig
from dapo.seeds import derive_seed
from dapo.types import Mean, Peak, Stat, Total

LOOK = 32
"""Remembered problems that are compared for one draw, and places of the order that are looked at for one that is open."""
ENOUGH = 0.8
"""From this chance of a mixed group on, problems are drawn alike: so a pass rate of a half is no better than a quarter."""


class Order:
    """The ordinary order: pass after pass over `count` problems, each pass shuffled by the seed and its number alone."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._seed = seed
        self._pass: tuple[int, np.ndarray] | None = None

    def __getitem__(self, position: int) -> int:
        """The problem at a position, counted over all passes."""
        number, place = divmod(position, self.count)
        if self._pass is None or self._pass[0] != number:
            rng = np.random.default_rng(derive_seed(self._seed, "order", number))
            self._pass = (number, rng.permutation(self.count))
        return int(self._pass[1][place])


class PreferredOrder:
    """Draws problems by what a memory says of them. A draw's cost does not depend on the number of problems.

    A problem is open unless it was drawn in this step, or its last draw is too near (see `most_per_epoch`), or it is
    retired: its chance of a mixed group lies below `retire_below` of a new problem's. As evidence fades the chance comes
    back to a new problem's, so a retired one is open again after a while, for a check.

    A share `explore` of the draws takes the next open problem of the ordinary order, whatever is known of it. The others
    choose among LOOK problems picked at random from the memory, each with the weight min(1, chance / ENOUGH) ^ sharpness,
    0 where it is not open; the next of the order, where it was never seen, stands beside them with LOOK times the weight
    of one. Where none of these has a weight, the next open one of the order is drawn; where none is open, the one drawn
    longest ago. So a draw never fails, and none is made twice in a step unless the step has drawn them all.

    Draw n depends on the seed, n, the draws before it and the outcomes observed before it, and on nothing else.
    """

    def __init__(self, order: Order, config: PromptMemoryConfig, memory: PromptMemory, *, seed: int) -> None:
        self._order = order
        self._config = config
        self._memory = memory
        self._seed = seed
        self._rest = order.count / config.most_per_epoch
        self._cursor = 0
        self._step_start = 0
        self._unfit: set[int] = set()
        self._fresh, self._promised = 0, (0.0, 0)

    def start_at(self, position: int) -> None:
        """Begin with nothing remembered after `position` draws of the ordinary order."""
        self._cursor = self._step_start = position

    def choose(self, number: int) -> int:
        """The problem of draw `number`, counted from 0."""
        random = Random(derive_seed(self._seed, "draw", number))
        explores = random.random() < self._config.explore
        ahead = self._first_open(number)
        if explores and ahead is not None:
            return self._take_ahead(ahead)
        picked = self._pick(random)
        weights = [self._weight(one, number) for one in picked]
        is_new = ahead is not None and self._memory.get(ahead) is None
        known = sum(weights)
        new = LOOK * self._preferred(self._memory.chance(None)) if is_new else 0.0
        if random.random() * (known + new) < known:
            return random.choices(picked, weights)[0].index
        return self._take_ahead(ahead) if ahead is not None else self._drawn_longest_ago(picked)

    def draw(self, problem_id: str, index: int, number: int) -> None:
        """Note that draw `number` is this problem."""
        before = self._memory.get(index)
        total, count = self._promised
        self._promised = (total + self._memory.chance(before), count + 1)
        self._fresh += before is None
        self._memory.draw(problem_id, index, number)

    def pass_over(self, index: int) -> None:
        """Note that a problem cannot be used: it is not drawn again while there is another."""
        known = self._memory.get(index)
        if known is not None:
            self._memory.forget(known)
        self._unfit.add(index)

    def observe(self, problem_id: str, *, correct: int, size: int, position: int) -> None:
        """Take in a group's outcome; what is drawn from `position` on belongs to the next step."""
        self._memory.observe(problem_id, correct=correct, size=size)
        self._step_start = position
        self._fresh, self._promised = 0, (0.0, 0)

    def _pick(self, random: Random) -> list[Outcomes]:
        """Pick remembered problems at random, with replacement, and forget those that have faded."""
        picked: list[Outcomes] = []
        for _ in range(LOOK):
            if not len(self._memory):
                break
            one = self._memory[int(random.random() * len(self._memory))]
            if one.drawn < self._step_start and self._memory.has_faded(one):
                self._memory.forget(one)
                picked = [other for other in picked if other.index != one.index]
            else:
                picked.append(one)
        return picked

    def _weight(self, one: Outcomes, number: int) -> float:
        chance = self._open_chance(one, number)
        return 0.0 if chance is None else self._preferred(chance)

    def _preferred(self, chance: float) -> float:
        return float(min(1.0, chance / ENOUGH) ** self._config.sharpness)

    def _open_chance(self, one: Outcomes, number: int) -> float | None:
        """The problem's chance of a mixed group, or None where it is not open."""
        if one.drawn >= self._step_start or number - one.drawn < self._rest:
            return None
        chance = self._memory.chance(one)
        return chance if chance >= self._config.retire_below * self._memory.chance(None) else None

    def _first_open(self, number: int) -> int | None:
        """The next problem of the order that is open; passes over those that are not, LOOK at most."""
        for _ in range(LOOK):
            index = self._order[self._cursor]
            one = self._memory.get(index)
            is_open = one is None or self._open_chance(one, number) is not None
            if is_open and index not in self._unfit:
                return index
            self._cursor += 1
        return None

    def _take_ahead(self, index: int) -> int:
        self._cursor += 1
        return index

    def _drawn_longest_ago(self, picked: list[Outcomes]) -> int:
        """The longest unused of what was picked; if this step has drawn them all, any that it has not, if there is one."""
        oldest = min(picked, key=lambda one: one.drawn, default=None)
        if oldest is not None and oldest.drawn < self._step_start:
            return oldest.index
        for _ in range(2 * self._order.count - 1):  # so many places on end hold a whole pass
            index = self._order[self._cursor]
            self._cursor += 1
            one = self._memory.get(index)
            if index not in self._unfit and (one is None or one.drawn < self._step_start):
                return index
        return oldest.index if oldest is not None else self._order[self._cursor]

    def stats(self) -> dict[str, Stat]:
        """What is remembered, and what the draws of this step promise."""
        total, count = self._promised
        return {
            "prompts/remembered": Peak(value=len(self._memory)),
            "prompts/retired": Peak(value=self._num_retired()),
            "prompts/fresh": Total(value=self._fresh),
            "prompts/mean_mixed_chance": Mean(total=total, count=count),
        }

    def _num_retired(self) -> int:
        least = self._config.retire_below * self._memory.chance(None)
        return sum(self._memory.chance(self._memory[place]) < least for place in range(len(self._memory)))

    def state(self) -> dict[str, Any]:
        """All that the draws to come depend on, as JSON."""
        return {
            "cursor": self._cursor,
            "step_start": self._step_start,
            "unfit": sorted(self._unfit),
            "fresh": self._fresh,
            "promised": list(self._promised),
            **self._memory.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
        self._cursor, self._step_start = state["cursor"], state["step_start"]
        self._unfit = set(state["unfit"])
        self._fresh = state["fresh"]
        total, count = state["promised"]
        self._promised = (total, count)
        self._memory.restore(state)
