"""Requests in, groups out, by continuous batching.

Consumes: requests, each a prompt with a number of replies. Waits for: the model's next step; between steps the callers
run. Produces: one RolloutGroup a request, as soon as its last reply ends. Unblocked by: every step that ends a reply, whose
place goes to the next reply that waits; `close`; and a caller that gives up, whose rows leave at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from dapo.engines.limits import refuse_nothing, refuse_too_long
from dapo.engines.native.forward import Forward
from dapo.engines.native.rows import Row, new_row
from dapo.engines.native.runner import Runner
from dapo.engines.pause import Pause
from dapo.errors import EngineError
from dapo.machine import return_freed_memory
from dapo.models.render import Renderer
from dapo.seeds import derive_seed
from dapo.types import Finish, Prompt, Rollout, RolloutGroup, Sampling, Weights


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    """A request and how far it has come; `cell` is its prompt's place once that was read."""

    prompt: Prompt
    n: int
    sampling: Sampling
    seed: int
    answer: asyncio.Future[RolloutGroup]
    cell: int | None = None
    started: int = 0
    rollouts: dict[int, Rollout] = field(default_factory=dict)

    @property
    def is_given_up(self) -> bool:
        return self.answer.done()


class NativeEngine:
    """Draws replies with weights of its own; `load` takes over others between requests. `positions` is the model's limit."""

    def __init__(self, forward: Forward, renderer: Renderer, *, max_rows: int, positions: int | None = None) -> None:
        self._forward = forward
        self._positions = positions
        self._renderer = renderer
        self._max_rows = max_rows
        self._runner = Runner(forward, max_rows)
        self._version = 0
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._gate = asyncio.Lock()
        self._pause = Pause()

    @property
    def precision(self) -> str:
        """The precision of the engine's copy of the weights."""
        return str(self._forward.dtype).removeprefix("torch.")

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        """Draw `n` replies. Raises EngineError."""
        if self._is_closed:
            raise EngineError("The engine is closed and was asked for a reply.")
        refuse_nothing(n, sampling)
        refuse_too_long(self._positions, prompt, sampling)
        answer: asyncio.Future[RolloutGroup] = asyncio.get_running_loop().create_future()
        async with self._gate:
            if self._is_closed:
                raise EngineError("The engine was closed before it came to this request.")
            self._waiting.append(_Request(prompt=prompt, n=n, sampling=sampling, seed=seed, answer=answer))
            if self._worker is None or self._worker.done():
                self._worker = asyncio.create_task(self._work())
        return await answer

    async def load(self, weights: Weights) -> None:
        """Copy a version of the policy in once nothing is under way; the version rises only when all of it arrived."""
        async with self._gate:  # whoever asks from here on waits for the new weights
            if self._worker is not None:
                await self._worker
            what = f"The policy of version {weights.policy_version}"
            await asyncio.to_thread(self._take_over, weights, what)
            self._version = weights.policy_version

    def _take_over(self, weights: Weights, what: str) -> None:
        """Load weights; give back what training has held, so that it does not add to the peak of generation."""
        self._forward.load(weights.source, what=what)
        return_freed_memory()

    def pause(self) -> None:
        """Write no further token until `go_on`."""
        self._pause.begin()

    def go_on(self) -> None:
        """End the pause."""
        self._pause.end()

    async def close(self) -> None:
        """Stop after the token that is being made; requests that wait end with an EngineError."""
        self._is_closed = True
        self._pause.end()
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        await asyncio.sleep(0)  # lets everybody who asks in the same breath get into the same pass
        await self._pause.wait()
        while (self._waiting or self._running) and not self._is_closed:
            try:
                await asyncio.to_thread(self._advance)
            except EngineError as failure:
                self._fail(failure)
                continue
            if self._deliver():
                await asyncio.sleep(0)  # lets those who were waiting take their groups, and pause the engine
            await self._pause.wait()
        if self._is_closed:
            self._fail(EngineError("The engine was closed before the reply was complete."))
        self._runner.free()  # while others work, the caches' memory is theirs

    def _advance(self) -> None:
        """Make a step. Whatever goes wrong is an EngineError: nobody may wait for an answer that never comes."""
        try:
            self._step()
        except Exception as error:
            raise EngineError(f"Generation failed: {type(error).__name__}: {error}") from error

    def _step(self) -> None:
        """Fill free places, write one token of every reply, and take out what has ended."""
        self._drop_given_up()
        self._admit()
        if self._runner.rows:
            self._retire()
        if self._runner.rows:
            self._runner.step()
            self._retire()

    def _admit(self) -> None:
        """Give free places to replies that wait, in the order of their requests; prompts are read together."""
        free = self._max_rows - len(self._runner.rows)
        chosen: list[tuple[_Request, int]] = []
        for request in [*self._running, *self._waiting]:
            count = min(free, request.n - request.started)
            if count > 0:
                chosen.append((request, count))
                free -= count
        unread = [request for request, _ in chosen if request.cell is None]
        if unread:
            cells = self._runner.read_prompts([request.prompt.token_ids for request in unread])
            for request, cell in zip(unread, cells, strict=True):
                request.cell = cell
                self._running.append(request)
                self._waiting.remove(request)
        rows = []
        for request, count in chosen:
            for index in range(request.started, request.started + count):
                seed = derive_seed(request.seed, index)
                assert request.cell is not None
                length = len(request.prompt.token_ids)
                rows.append(new_row(request, index, request.cell, length, request.sampling, seed))
            request.started += count
        self._runner.start(rows)

    def _retire(self) -> None:
        """Take out the replies that have ended."""
        ended = []
        for row in self._runner.rows:
            finish = self._finish(row)
            if finish is not None:
                request = row.owner
                assert isinstance(request, _Request)
                request.rollouts[row.index] = self._rollout(row, finish)
                ended.append(row)
        if ended:
            self._runner.remove(ended)

    def _finish(self, row: Row) -> Finish | None:
        if row.tokens[-1] in self._renderer.end_tokens:
            return Finish.STOP
        if row.sampling.stop:
            text = self._renderer.reply_text(row.tokens)
            if any(stop in text for stop in row.sampling.stop):
                return Finish.STOP
        return Finish.LENGTH if row.length >= row.sampling.max_tokens else None

    def _rollout(self, row: Row, finish: Finish) -> Rollout:
        return Rollout(
            token_ids=tuple(row.tokens),
            mask=(True,) * row.length,
            logprobs=tuple(row.logprobs),
            text=self._renderer.reply_text(row.tokens),
            finish=finish,
            policy_version=self._version,
        )

    def _deliver(self) -> bool:
        """Hand out the groups that are complete; say whether there was one."""
        complete = [request for request in self._running if len(request.rollouts) == request.n]
        for request in complete:
            self._leave(request)
            if not request.answer.done():
                rollouts = tuple(request.rollouts[index] for index in range(request.n))
                request.answer.set_result(RolloutGroup(prompt=request.prompt, rollouts=rollouts))
        return bool(complete)

    def _drop_given_up(self) -> None:
        self._waiting = deque(request for request in self._waiting if not request.is_given_up)
        for request in [request for request in self._running if request.is_given_up]:
            self._runner.remove([row for row in self._runner.rows if row.owner is request])
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        self._running.remove(request)
        assert request.cell is not None
        moved = self._runner.forget_prompt(request.cell)
        for other in self._running:
            if other.cell == moved:
                other.cell = request.cell
        request.cell = None

    def _fail(self, failure: EngineError) -> None:
        """End every request with the error, and start from nothing."""
        failed = [*self._running, *self._waiting]
        self._running, self._waiting = [], deque()
        self._runner.clear()
        for request in failed:
            if not request.answer.done():
                request.answer.set_exception(failure)
