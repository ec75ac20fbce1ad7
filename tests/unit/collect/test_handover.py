"""The engine waits for the groups that it has handed out, and not longer than a limit."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from dapo.algorithms.config import DAPOConfig
from dapo.collect import CollectPlan, collect
from dapo.collect.handover import Handover
from dapo.engines.fake import FakeEngine
from dapo.engines.pause import Pause
from dapo.ports import Pausable
from dapo.prompts import PromptStream
from dapo.types import Problem, Prompt, Rollout, RolloutGroup, Sampling, Score
from tests.fakes import FakeTask, problems, render

DAPO = DAPOConfig.model_validate({"soft_overlong": {"enabled": False}}).build(8)


class Recording(FakeEngine):
    """Notes when it is paused and let go."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, index: "1")
        self.notes: list[str] = []

    def pause(self) -> None:
        self.notes.append("pause")

    def go_on(self) -> None:
        self.notes.append("go on")


def notes_of(story: Any, seconds: float) -> list[str]:
    engine = Recording()
    assert isinstance(engine, Pausable) and not isinstance(FakeEngine(lambda prompt, index: ""), Pausable)

    async def run() -> None:
        await story(Handover(engine, seconds))

    asyncio.run(run())
    return engine.notes


def test_the_engine_goes_on_when_all_that_it_handed_out_is_judged() -> None:
    async def story(handover: Handover) -> None:
        handover.hand_out()
        handover.hand_out()
        assert 0 < handover.seconds_left <= 60
        handover.judge()
        handover.let_go_if_all_judged()
        handover.judge()
        assert handover.seconds_left == 0.0
        handover.let_go_if_all_judged()
        handover.hand_out()

    assert notes_of(story, 60.0) == ["pause", "go on", "pause"]


def test_a_slow_scorer_stops_the_engine_once() -> None:
    async def story(handover: Handover) -> None:
        handover.hand_out()
        await asyncio.sleep(0.05)
        assert handover.seconds_left == 0.0
        handover.hand_out()  # the first is not judged yet
        handover.judge()
        handover.let_go_if_all_judged()
        handover.judge()
        handover.hand_out()  # all were judged
        handover.let_go()

    assert notes_of(story, 0.01) == ["pause", "go on", "pause", "go on"]


def test_no_seconds_is_no_wait() -> None:
    async def story(handover: Handover) -> None:
        handover.hand_out()
        assert handover.seconds_left == 0.0

    assert notes_of(story, 0.0) == []


class Stepping(FakeEngine):
    """Writes in steps, as engines do: a group takes as many as its prompt says, and is asked for at some step."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, index: "1")
        self._pause = Pause()
        self._step = 0
        self._rows: list[tuple[int, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None
        self.came_at: list[tuple[str, int]] = []

    def pause(self) -> None:
        self._pause.begin()

    def go_on(self) -> None:
        self._pause.end()

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        self.came_at.append((prompt.problem.id, self._step))
        done = asyncio.get_running_loop().create_future()
        self._rows.append((self._step + 1 + len(self.came_at) * 7 % 5, done))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        await done
        return await super().sample(prompt, n, sampling, seed)

    async def _work(self) -> None:
        await asyncio.sleep(0)
        await self._pause.wait()
        while self._rows:
            await asyncio.to_thread(int)  # a step is made elsewhere, and others get their turn meanwhile
            self._step += 1
            due = [row for row in self._rows if row[0] <= self._step]
            self._rows = [row for row in self._rows if row[0] > self._step]
            for _, done in due:
                if not done.done():
                    done.set_result(None)
            await asyncio.sleep(0)
            await self._pause.wait()


class Sluggish(FakeTask):
    """Takes a time by chance for each score; the scores themselves are what they are."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        await asyncio.sleep(self._random.random() * 0.004)
        return await super().score(problem, rollout)


def test_when_prompts_reach_the_engine_does_not_hang_on_how_long_scores_take() -> None:
    def came_at(seed: int) -> list[tuple[str, int]]:
        engine = Stepping()
        plan = CollectPlan(
            groups=3,
            group_size=2,
            sampling=Sampling(max_tokens=4),
            seed=1,
            max_rounds=8,
            judging_seconds=30.0,
        )
        stream = PromptStream(problems(40), render, seed=1, epochs=1)
        asyncio.run(collect(1, plan, stream, engine, Sluggish(seed), DAPO))
        return engine.came_at

    first = came_at(0)
    assert len(first) > 10
    assert all(came_at(seed) == first for seed in range(1, 6))
