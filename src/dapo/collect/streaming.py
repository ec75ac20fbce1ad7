"""A step's groups as they come: each is graded when it is done, and makes room for the next prompt.

Consumes: prompts from the stream, groups from the engine, scores from the task. Waits for: the next group that is graded.
Produces: one Attempt a prompt, in prompt order. Unblocked by: every group that is graded; cancellation, which ends all that
is under way.

The order in which groups are done decides nothing. Prompts are numbered as they are drawn, and only the judged prefix,
the groups 0 to q - 1 once all of them are judged, says how many prompts may be asked for. So what is drawn and what is
kept follow from outcomes alone, and a step that is made again is made alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from dapo.collect.attempts import Attempt
from dapo.collect.plan import CollectPlan, prompts_under_way
from dapo.prompts import PromptStream
from dapo.types import KeptShare, Prompt, Reason

MOMENT_SECONDS = 0.02
"""How long an idle engine is made to wait for groups that are about to be judged."""


class Prefix:
    """The judged prefix of a step, and how many prompts may be asked for by it; that number never falls."""

    def __init__(self, plan: CollectPlan, share: KeptShare, *, wanted: int) -> None:
        self._plan = plan
        self._share = share
        self._wanted = wanted
        self._waiting: dict[int, Attempt] = {}
        self._kept = 0
        self._tokens = 0
        self._failures_in_a_row = 0
        self.attempts: list[Attempt] = []
        self.allowed = 0
        self._allow()

    @property
    def num_settled(self) -> int:
        """Groups that are judged, those beyond the prefix among them."""
        return len(self.attempts) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the prefix holds all the groups that are wanted."""
        return self._kept >= self._wanted

    @property
    def engine_is_down(self) -> bool:
        """Whether a whole round of groups on end met an engine that fails."""
        return self._failures_in_a_row >= self._plan.round

    @property
    def is_spent(self) -> bool:
        """Whether the judged groups have used up the step's tokens."""
        return self._plan.max_tokens is not None and self._tokens >= self._plan.max_tokens

    def settle(self, number: int, attempt: Attempt) -> None:
        """Take in what came of a group. Where several join the prefix at once, each is looked at in turn."""
        self._waiting[number] = attempt
        while (following := self._waiting.pop(len(self.attempts), None)) is not None:
            self._append(following)

    def _append(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self._kept += attempt.judged.reason is Reason.KEPT
        self._tokens += attempt.tokens
        self._failures_in_a_row = self._failures_in_a_row + 1 if attempt.failure is not None else 0
        self._allow()

    def _allow(self) -> None:
        if self.is_full or self.is_spent or self.engine_is_down:
            return
        judged = len(self.attempts)
        missing = self._wanted - self._kept
        more = prompts_under_way(self._plan, self._share, missing=missing, judged=judged, kept=self._kept)
        self.allowed = max(self.allowed, min(judged + more, self._plan.most_groups))


Finished = tuple[int, asyncio.Task[Attempt]]


async def stream_groups(
    prefix: Prefix,
    stream: PromptStream,
    make: Callable[[int, Prompt], Coroutine[Any, Any, Attempt]],
    is_generating: Callable[[], bool] = lambda: False,
) -> list[Attempt]:
    """Ask for groups until the prefix wants no more or the data ends, and until all that were asked for are judged."""
    done: asyncio.Queue[Finished] = asyncio.Queue()
    under_way: list[asyncio.Task[Attempt]] = []

    def start(prompt: Prompt) -> None:
        number = len(under_way)
        task = asyncio.create_task(make(number, prompt))
        task.add_done_callback(lambda finished: done.put_nowait((number, finished)))
        under_way.append(task)

    has_more = True
    try:
        while True:
            room = prefix.allowed - len(under_way)
            if room > 0 and has_more:
                prompts = stream.take(room)
                has_more = len(prompts) == room
                for prompt in prompts:
                    start(prompt)
            if len(prefix.attempts) == len(under_way):
                return prefix.attempts
            for number, finished in await _judged(done, len(under_way) - prefix.num_settled, is_generating):
                prefix.settle(number, finished.result())
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _judged(done: asyncio.Queue[Finished], most: int, is_generating: Callable[[], bool]) -> list[Finished]:
    """The next group that is judged; while the engine has nothing to do, also those that follow within moments.

    An engine that generates batch by batch gets its next one whole, where the groups of the last are judged one by one.
    """
    judged = [await done.get()]
    while len(judged) < most and not is_generating():
        try:
            judged.append(await asyncio.wait_for(done.get(), MOMENT_SECONDS))
        except TimeoutError:
            break
    return judged
