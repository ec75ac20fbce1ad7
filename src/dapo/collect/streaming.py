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
from dapo.collect.handover import Handover
from dapo.collect.plan import CollectPlan, prompts_under_way
from dapo.prompts import PromptStream
from dapo.types import KeptShare, Prompt, Reason


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
    handover: Handover,
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
                await asyncio.sleep(0)  # lets them be asked for before the engine goes on
            if len(prefix.attempts) == len(under_way):
                return prefix.attempts
            handover.let_go_if_all_judged()
            for number, finished in await _judged(done, handover):
                prefix.settle(number, finished.result())
    finally:
        for task in under_way:
            task.cancel()
        handover.let_go()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _judged(done: asyncio.Queue[Finished], handover: Handover) -> list[Finished]:
    """The next group that is judged, and with it those that were handed out beside it and are judged in time.

    So which prompts are asked for together does not hang on the order in which scores come back.
    """
    judged = [await done.get()]
    handover.judge()
    while (seconds := handover.seconds_left) > 0:
        try:
            judged.append(await asyncio.wait_for(done.get(), seconds))
        except TimeoutError:
            break
        handover.judge()
    return judged
