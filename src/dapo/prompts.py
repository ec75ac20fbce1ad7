"""The stream of training prompts: seeded order, epochs, and a position that is one integer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dapo.errors import DataError
from dapo.seeds import derive_seed
from dapo.types import Problem, Prompt


class PromptStream:
    """Draws prompts epoch after epoch; each problem once an epoch, in an order that only the seed and epoch decide.

    The position counts draws from the start of the run. Two streams with the same seed and position go on alike, so
    the position is all that a checkpoint needs.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        render: Callable[[Problem], Prompt],
        *,
        seed: int,
        max_prompt_tokens: int | None = None,
        epochs: int | None = None,
        position: int = 0,
    ) -> None:
        if len(problems) == 0:
            raise DataError("The task has no training problem. Give it at least one.")
        self._problems = problems
        self._render = render
        self._seed = seed
        self._limit = max_prompt_tokens
        self._epochs = epochs
        self._order_of: tuple[int, np.ndarray] | None = None
        self._dropped_in_a_row = 0
        self.position = position
        self.num_dropped = 0

    @property
    def epoch(self) -> int:
        """The epoch of the next draw, from 0."""
        return self.position // len(self._problems)

    @property
    def is_exhausted(self) -> bool:
        """Whether all epochs have been drawn."""
        return self._epochs is not None and self.epoch >= self._epochs

    def take(self, count: int) -> list[Prompt]:
        """Draw up to `count` prompts; fewer only where the last epoch ends. Prompts over the limit are passed over."""
        drawn: list[Prompt] = []
        while len(drawn) < count and not self.is_exhausted:
            order = self._order(self.epoch)
            index = int(order[self.position % len(self._problems)])
            self.position += 1
            prompt = self._render(self._problems[index])
            if self._limit is not None and len(prompt.token_ids) > self._limit:
                self.num_dropped += 1
                self._dropped_in_a_row += 1
                self._refuse_if_nothing_fits()
                continue
            self._dropped_in_a_row = 0
            drawn.append(prompt)
        return drawn

    def _refuse_if_nothing_fits(self) -> None:
        # Any 2n - 1 draws on end hold a whole epoch of n; the first epoch is whole by itself.
        count = len(self._problems)
        from_start = self._dropped_in_a_row == self.position
        if self._dropped_in_a_row >= (count if from_start else 2 * count - 1):
            raise DataError(
                f"Every one of the {len(self._problems)} training prompts is longer than batch.max_prompt_tokens = "
                f"{self._limit}. Raise the limit or shorten the prompts."
            )

    def _order(self, epoch: int) -> np.ndarray:
        if self._order_of is None or self._order_of[0] != epoch:
            rng = np.random.default_rng(derive_seed(self._seed, "order", epoch))
            self._order_of = (epoch, rng.permutation(len(self._problems)))
        return self._order_of[1]


def check_prompt_lengths(
    problems: Sequence[Problem], render: Callable[[Problem], Prompt], limit: int, *, what: str
) -> int:
    """Refuse prompts over the limit, measured with the template and tokenizer that will be used; return the longest.

    Raises DataError.
    """
    over = []
    longest = 0
    for problem in problems:
        length = len(render(problem).token_ids)
        longest = max(longest, length)
        if length > limit:
            over.append((length, problem.id))
    if over:
        length, name = max(over)
        raise DataError(
            f"{len(over)} of {len(problems)} {what} prompts are longer than batch.max_prompt_tokens = {limit} after the "
            f"chat template; the longest, {name}, has {length} tokens. Raise the limit to {length}, shorten them, or set "
            'batch.overlong_prompts = "drop".'
        )
    return longest
