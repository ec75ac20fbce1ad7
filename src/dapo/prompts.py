"""The stream of training prompts: what is drawn next, epochs, the limit on length, and a state that resumes exactly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dapo.errors import DataError
from dapo.prompt_choice import Order, PreferredOrder
from dapo.prompt_memory import PromptMemory, PromptMemoryConfig
from dapo.types import Problem, Prompt, Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """That prompts are drawn by what is remembered of them, with the sizes that the memory reckons in."""

    config: PromptMemoryConfig
    group_size: int
    groups_per_step: int


class PromptStream:
    """Draws prompts without end, or for so many epochs.

    Without a preference each problem is drawn once an epoch, in an order that only the seed and the epoch decide. With
    one, a draw depends on the outcomes observed before it too, and some problems are drawn more often than others: an
    epoch is then as many draws as there are problems.

    The position counts draws from the start of the run, those of prompts over the limit among them. Without a preference
    two streams with the same seed and position go on alike; with one it takes `state` and `restore`.
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
        preference: Preference | None = None,
    ) -> None:
        if len(problems) == 0:
            raise DataError("The task has no training problem. Give it at least one.")
        self._problems = problems
        self._render = render
        self._limit = max_prompt_tokens
        self._epochs = epochs
        self._order = Order(len(problems), seed)
        self._preferred = _preferred(self._order, preference, seed) if preference else None
        if self._preferred:
            self._preferred.start_at(position)
        self._fingerprint: dict[str, Any] | None = None
        self._dropped_in_a_row = 0
        self.position = position
        self.num_dropped = 0

    @property
    def epoch(self) -> int:
        """The epoch of the next draw, from 0."""
        return self.position // len(self._problems)

    @property
    def is_exhausted(self) -> bool:
        """Whether all epochs have been drawn: epochs x problems draws."""
        return self._epochs is not None and self.epoch >= self._epochs

    def take(self, count: int) -> list[Prompt]:
        """Draw up to `count` prompts; fewer only where the last epoch ends. Prompts over the limit are passed over."""
        drawn: list[Prompt] = []
        while len(drawn) < count and not self.is_exhausted:
            number = self.position
            index = self._preferred.choose(number) if self._preferred else self._order[number]
            self.position += 1
            prompt = self._render(self._problems[index])
            if self._limit is not None and len(prompt.token_ids) > self._limit:
                self.num_dropped += 1
                self._dropped_in_a_row += 1
                self._refuse_if_nothing_fits()
                if self._preferred:
                    self._preferred.pass_over(index)
                continue
            self._dropped_in_a_row = 0
            if self._preferred:
                self._preferred.draw(prompt.problem.id, index, number)
            drawn.append(prompt)
        return drawn

    def observe(self, problem_id: str, *, correct: int, size: int) -> None:
        """Take in how many replies of a group were right; call it in prompt order, after the step that drew the prompt.

        What is drawn afterwards counts as the next step's. Without a preference nothing is done.
        """
        if self._preferred:
            self._preferred.observe(problem_id, correct=correct, size=size, position=self.position)

    def stats(self) -> dict[str, Stat]:
        """What the preference remembers and promised; nothing without one."""
        return self._preferred.stats() if self._preferred else {}

    def state(self) -> dict[str, Any]:
        """All that the draws to come depend on, as JSON; with a preference, a row for each problem that it remembers."""
        state: dict[str, Any] = {
            "data": self._data(),
            "position": self.position,
            "num_dropped": self.num_dropped,
            "dropped_in_a_row": self._dropped_in_a_row,
        }
        return state | ({"memory": self._preferred.state()} if self._preferred else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly as the stream that gave `state`. A memory there is left out if no preference is given here, and
        begins empty here if none is there. Raises DataError if the state is of other problems."""
        data = self._data()
        if state["data"] != data:
            raise DataError(
                f"The saved place in the data is one in other training problems: {_difference(state['data'], data)}. Go on "
                "with the data that the run was begun with, or begin a new run."
            )
        self.position = state["position"]
        self.num_dropped = state["num_dropped"]
        self._dropped_in_a_row = state["dropped_in_a_row"]
        if self._preferred and "memory" in state:
            self._preferred.restore(state["memory"])
        elif self._preferred:
            self._preferred.start_at(self.position)

    def _data(self) -> dict[str, Any]:
        if self._fingerprint is None:
            self._fingerprint = _fingerprint(self._problems)
        return dict(self._fingerprint)

    def _refuse_if_nothing_fits(self) -> None:
        # Any 2n - 1 draws on end hold a whole epoch of n; the first epoch is whole by itself.
        count = len(self._problems)
        from_start = self._dropped_in_a_row == self.position
        if self._dropped_in_a_row >= (count if from_start else 2 * count - 1):
            raise DataError(
                f"Every one of the {len(self._problems)} training prompts is longer than batch.max_prompt_tokens = "
                f"{self._limit}. Raise the limit or shorten the prompts."
            )


def _preferred(order: Order, preference: Preference, seed: int) -> PreferredOrder:
    memory = PromptMemory(
        group_size=preference.group_size,
        groups_per_step=preference.groups_per_step,
        half_life=preference.config.half_life,
    )
    return PreferredOrder(order, preference.config, memory, seed=seed)


_PROBED = 1024


def _fingerprint(problems: Sequence[Problem]) -> dict[str, Any]:
    """What tells one set of problems from another: their number, and ids and content of up to 1,024 spread over it."""
    count = len(problems)
    places = sorted({place * count // _PROBED for place in range(_PROBED)} | {count - 1})
    probed = [problems[place] for place in places]
    asked = [[[(message.role, message.content) for message in one.messages], one.answer] for one in probed]
    return {
        "problems": count,
        "ids": _digest("\n".join(one.id for one in probed)),
        "content": _digest(json.dumps(asked)),
    }


def _digest(text: str) -> str:
    content = text.encode(errors="surrogatepass")  # JSON can name half a surrogate pair
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """How two sets of problems differ, in words."""
    if there.get("problems") == here["problems"] and there.get("ids") == here["ids"]:
        return "their ids are the same, and questions or answers have changed"
    return f"{there.get('problems')} of them there, {here['problems']} here, with other ids"


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
