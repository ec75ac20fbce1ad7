"""What earlier replies say of each prompt: a fading Beta posterior of its pass rate, and the chance that a group is mixed.

    outcome of a group ─► observe ─► Outcomes (right, wrong, fading) ─► posterior ─► mixed_chance ─► which prompt next

Only prompts that were drawn are remembered, and one whose evidence has faded is forgotten, so the memory's size follows
from what was drawn lately and not from the size of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, lgamma
from operator import attrgetter
from typing import Any

from pydantic import Field

from dapo.errors import DataError
from dapo.frozen import Frozen

FORGET_BELOW = 0.5
"""A prompt whose evidence has faded to less than this many replies is as good as one that was never seen."""


class PromptMemoryConfig(Frozen):
    """Draw the prompts that earlier replies say are worth it: those whose next group is likely to be mixed."""

    enabled: bool = False
    """Off: every problem once an epoch, as in the paper."""
    explore: float = Field(0.1, gt=0, le=1)
    """Share of draws that take the next problem of the ordinary order, whatever is known of it; retired ones excepted."""
    sharpness: float = Field(3.0, ge=0)
    """How strongly the chance of a mixed group decides: a problem's weight is min(1, chance / 0.8) to this power."""
    half_life: float = Field(8.0, gt=0)
    """After how many steps an outcome counts half, because the policy has moved on."""
    retire_below: float = Field(0.7, ge=0, lt=1)
    """A problem is retired while its chance of a mixed group is below this share of a new problem's. 0: none ever is."""
    most_per_epoch: float = Field(6.0, ge=2)
    """How often a problem may recur: of n problems one is drawn again after n / most_per_epoch draws at the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beta:
    """A Beta distribution over a pass rate, as pseudo-counts of right and of wrong replies, both above 0."""

    right: float
    wrong: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What is remembered of one problem.

    `index` is its place in the task's sequence, `drawn` the number of its last draw. `right` and `wrong` are its replies,
    faded to the moment `time`. `mean` and `square` estimate its pass rate and the square of it from its last group alone;
    both are None until the first.
    """

    id: str
    index: int
    drawn: int
    right: float = 0.0
    wrong: float = 0.0
    time: float = 0.0
    mean: float | None = None
    square: float | None = None


_FIELDS = tuple(Outcomes.__dataclass_fields__)
_AS_ROW = attrgetter(*_FIELDS)


def mixed_chance(belief: Beta, group_size: int) -> float:
    """The chance that a group of G replies has both right and wrong ones, E[1 - p^G - (1 - p)^G] for p ~ Beta(a, b).

        E[p^G] = B(a + G, b) / B(a, b) = Γ(a + G) Γ(a + b) / (Γ(a) Γ(a + b + G)), and E[(1 - p)^G] likewise.

    It is the chance that dynamic sampling keeps the group. For G = 2 it is 2 E[p (1 - p)].

    >>> round(mixed_chance(Beta(right=1.0, wrong=1.0), 8), 4)  # p uniform: 1 - 2 / 9
    0.7778
    """
    both = belief.right + belief.wrong
    shared = lgamma(both) - lgamma(both + group_size)
    all_right = exp(lgamma(belief.right + group_size) - lgamma(belief.right) + shared)
    all_wrong = exp(lgamma(belief.wrong + group_size) - lgamma(belief.wrong) + shared)
    return min(1.0, max(0.0, 1.0 - all_right - all_wrong))


def fading(age: float, half_life: float) -> float:
    """What share of evidence is left after `age`: 2^(-age / half_life)."""
    return float(2.0 ** (-age / half_life))


def moments(correct: int, size: int) -> tuple[float, float]:
    """Estimates of p and p^2 from `correct` of `size` replies, without bias: k / G and k (k - 1) / (G (G - 1)).

    Raises ValueError for a group of fewer than two replies, which cannot tell chance from difference.
    """
    if size < 2 or not 0 <= correct <= size:
        raise ValueError(f"a group of {size} replies with {correct} right says nothing of p and p^2")
    return correct / size, correct * (correct - 1) / (size * (size - 1))


_PRIOR_WEIGHT = 4.0  # problems' worth of belief in a uniform pass rate: what holds before anything is known
_LEAST_STRENGTH, _MOST_STRENGTH = 0.2, 20.0
_LEAST_MEAN = 0.01


def fitted_prior(count: int, mean_sum: float, square_sum: float) -> Beta:
    """The Beta distribution of pass rates among problems, by the method of moments from sums of `moments` over `count`.

        m = E[p], v = E[p^2] - m^2, a + b = m (1 - m) / v - 1, a = m (a + b)

    Four problems' worth of a uniform rate are mixed in, so that with no problem it is Beta(1, 1). Mean and strength are
    bounded (1% to 99%; 0.2 to 20 replies), so that early chance does not make it certain.
    """
    weight = count + _PRIOR_WEIGHT
    raw = (mean_sum + _PRIOR_WEIGHT / 2) / weight
    variance = (square_sum + _PRIOR_WEIGHT / 3) / weight - raw * raw
    mean = min(1.0 - _LEAST_MEAN, max(_LEAST_MEAN, raw))
    ceiling = mean * (1.0 - mean)
    strength = ceiling / variance - 1.0 if variance > 0 else _MOST_STRENGTH
    strength = min(_MOST_STRENGTH, max(_LEAST_STRENGTH, strength))
    return Beta(right=mean * strength, wrong=(1.0 - mean) * strength)


class PromptMemory:
    """Outcomes of the problems that were drawn, by their place in the task.

    Time is counted in steps' worth of mixed groups, since those are what moves the policy: where nothing is learnt, no
    evidence fades.
    """

    def __init__(self, *, group_size: int, groups_per_step: int, half_life: float) -> None:
        self._group_size = group_size
        self._groups_per_step = groups_per_step
        self._half_life = half_life
        self._outcomes: dict[int, Outcomes] = {}
        self._index_of: dict[str, int] = {}
        self._places: list[int] = []  # the remembered indices, so that one can be picked at random
        self._place_of: dict[int, int] = {}
        self._mixed = 0
        self._count, self._mean_sum, self._square_sum = 0, 0.0, 0.0
        self._fit()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Outcomes:
        """The remembered problem number `place`, in no particular order."""
        return self._outcomes[self._places[place]]

    def get(self, index: int) -> Outcomes | None:
        """What is remembered of a problem, by its place in the task."""
        return self._outcomes.get(index)

    @property
    def prior(self) -> Beta:
        """What is believed of a problem that was never seen: fitted to the last group of every remembered one."""
        return self._prior

    @property
    def now(self) -> float:
        """Steps' worth of mixed groups that were observed."""
        return self._mixed / self._groups_per_step

    def posterior(self, outcomes: Outcomes | None) -> Beta:
        """The belief about a problem now: the prior and its faded replies; the prior alone for None."""
        if outcomes is None:
            return self._prior
        left = fading(self.now - outcomes.time, self._half_life)
        return Beta(right=self._prior.right + left * outcomes.right, wrong=self._prior.wrong + left * outcomes.wrong)

    def chance(self, outcomes: Outcomes | None) -> float:
        """The chance that the problem's next group is mixed; that of one that was never seen for None."""
        return self._new_chance if outcomes is None else mixed_chance(self.posterior(outcomes), self._group_size)

    def draw(self, problem_id: str, index: int, number: int) -> None:
        """Note that the problem at `index` is draw `number`. Raises DataError if another one was there before."""
        before = self._outcomes.get(index)
        if before is not None and before.id != problem_id:
            raise DataError(
                f"Training problem number {index} was {before.id} when it was drawn before and is {problem_id} now. A run "
                "needs the same problems in the same order throughout: go on with the data that it was begun with."
            )
        if before is None:
            self._place_of[index] = len(self._places)
            self._places.append(index)
            before = Outcomes(id=problem_id, index=index, drawn=number, time=self.now)
        self._index_of[problem_id] = index
        self._outcomes[index] = replace(before, drawn=number)

    def observe(self, problem_id: str, *, correct: int, size: int) -> None:
        """Take in a group's outcome. One of a problem that is not remembered is passed over."""
        index = self._index_of.get(problem_id)
        if index is None:
            return
        before = self._outcomes[index]
        mean, square = moments(correct, size)
        left = fading(self.now - before.time, self._half_life)
        self._outcomes[index] = replace(
            before,
            right=left * before.right + correct,
            wrong=left * before.wrong + size - correct,
            time=self.now,
            mean=mean,
            square=square,
        )
        self._replace_moments(before, mean, square)
        self._mixed += 0 < correct < size

    def has_faded(self, outcomes: Outcomes) -> bool:
        """Whether so little is left of a problem's evidence that it may be forgotten."""
        age = self.now - outcomes.time
        replies = outcomes.right + outcomes.wrong or self._group_size  # none yet: the outcome may still come
        return fading(age, self._half_life) * replies < FORGET_BELOW

    def forget(self, outcomes: Outcomes) -> None:
        """Drop a problem, as if it had never been seen."""
        place, last = self._place_of.pop(outcomes.index), self._places.pop()
        if last != outcomes.index:
            self._places[place] = last
            self._place_of[last] = place
        del self._outcomes[outcomes.index]
        self._index_of.pop(outcomes.id, None)
        if outcomes.mean is not None and outcomes.square is not None:
            self._count -= 1
            self._mean_sum -= outcomes.mean
            self._square_sum -= outcomes.square
            self._fit()

    def _fit(self) -> None:
        self._prior = fitted_prior(self._count, self._mean_sum, self._square_sum)
        self._new_chance = mixed_chance(self._prior, self._group_size)

    def _replace_moments(self, before: Outcomes, mean: float, square: float) -> None:
        self._count += before.mean is None
        self._mean_sum += mean - (before.mean or 0.0)
        self._square_sum += square - (before.square or 0.0)
        self._fit()

    def state(self) -> dict[str, Any]:
        """All of it as JSON: one row a remembered problem."""
        rows = [list(_AS_ROW(self._outcomes[index])) for index in self._places]
        return {"mixed": self._mixed, "sums": [self._mean_sum, self._square_sum], "problems": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave, exactly: sums as they were, not summed anew in another order."""
        rows: Sequence[Sequence[Any]] = state["problems"]
        found = [Outcomes(**dict(zip(_FIELDS, row, strict=True))) for row in rows]
        self._outcomes = {one.index: one for one in found}
        self._index_of = {one.id: one.index for one in found}
        self._places = [one.index for one in found]
        self._place_of = {index: place for place, index in enumerate(self._places)}
        self._mixed = state["mixed"]
        self._count = sum(one.mean is not None for one in found)
        self._mean_sum, self._square_sum = state["sums"]
        self._fit()
