"""Collecting step after step, with groups that are done in any order, and stops in the middle: nothing lost or twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dapo.algorithms.config import DAPOConfig
from dapo.collect import CollectPlan, Standing, collect
from dapo.collect.step import written_at
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError
from dapo.prompts import PromptStream
from dapo.types import Collected, JudgedGroup, Prompt, Reason, RolloutGroup, Sampling
from tests.fakes import FakeTask, problems, render

DAPO = DAPOConfig.model_validate({"soft_overlong": {"enabled": False}}).build(8)
MIXED, RIGHT, WRONG, BROKEN = "+-", "++", "--", "!!"


class Scripted(FakeEngine):
    """Answers by problem; `!!` fails."""

    def __init__(self, outcomes: dict[str, str], version: int) -> None:
        super().__init__(lambda prompt, index: "yes" if outcomes[prompt.problem.id][index] == "+" else "no")
        self._outcomes = outcomes
        self.policy_version = version

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        group = await super().sample(prompt, n, sampling, seed)
        if self._outcomes[prompt.problem.id] == BROKEN:
            raise EngineError(f"{prompt.problem.id} does not fit")
        return group


class Gated(Scripted):
    """Answers when it is told to."""

    def __init__(self, outcomes: dict[str, str], version: int) -> None:
        super().__init__(outcomes, version)
        self.gates: list[asyncio.Event] = []

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return await super().sample(prompt, n, sampling, seed)


class Collecting(RuleBasedStateMachine):
    """One run. A twin engine that answers at once says what each step must come to."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.task: asyncio.Task[Collected] | None = None
        self.step = self.version = 0
        self.settled: list[JudgedGroup] = []
        self.is_over = False

    @initialize(
        outcomes=st.lists(st.sampled_from([MIXED, MIXED, RIGHT, WRONG, BROKEN]), min_size=1, max_size=12),
        groups=st.integers(1, 4),
        plan=st.fixed_dictionaries(
            {
                "max_rounds": st.integers(1, 3),
                "oversample": st.sampled_from([1.0, 1.5, 3.0]),
                "max_staleness": st.sampled_from([0, 1, 2, 5]),
                "when_short": st.sampled_from(["train_partial", "carry_over", "top_up"]),
                "max_tokens": st.sampled_from([None, 20]),
            }
        ),
        epochs=st.sampled_from([1, 2, 3]),
    )
    def begin(self, outcomes: list[str], groups: int, plan: dict[str, Any], epochs: int) -> None:
        self.outcomes = {f"p{number}": outcome for number, outcome in enumerate(outcomes)}
        self.plan = CollectPlan(groups=groups, group_size=2, sampling=Sampling(max_tokens=8), seed=1, **plan)
        self.epochs = epochs
        self.stream = self.new_stream()
        self.standing = Standing(stream=self.stream.state())

    def new_stream(self) -> PromptStream:
        return PromptStream(problems(len(self.outcomes)), render, seed=0, epochs=self.epochs)

    @precondition(lambda self: self.task is None and not self.is_over)
    @rule(updates=st.integers(0, 2))
    def begin_a_step(self, updates: int) -> None:
        self.step += 1
        self.version += updates
        self.engine = Gated(self.outcomes, self.version)
        self.task = self.loop.create_task(self.collecting(self.stream, self.engine))
        self.settle_down()
        self.end_the_step_if_it_is_done()

    def collecting(self, stream: PromptStream, engine: FakeEngine) -> Any:
        return collect(
            self.step,
            self.plan,
            stream,
            engine,
            FakeTask(),
            DAPO,
            inherited=self.standing.inherited,
            version=self.version,
        )

    @precondition(lambda self: self.task is not None)
    @rule(data=st.data())
    def one_group_is_done(self, data: st.DataObject) -> None:
        waiting = [gate for gate in self.engine.gates if not gate.is_set()]
        if waiting:
            data.draw(st.sampled_from(waiting)).set()
        self.settle_down()
        self.end_the_step_if_it_is_done()

    @precondition(lambda self: self.task is not None)
    @rule()
    def all_groups_are_done_the_last_first(self) -> None:
        while self.task is not None and not self.task.done():
            for gate in reversed(self.engine.gates):
                gate.set()
            self.settle_down()
        self.end_the_step_if_it_is_done()

    @precondition(lambda self: self.task is not None)
    @rule()
    def the_run_is_stopped_and_goes_on_from_what_was_saved(self) -> None:
        assert self.task is not None
        self.task.cancel()
        self.settle_down()
        assert self.task.cancelled()
        restored = Standing.from_json(json.loads(json.dumps(self.standing.to_json())))
        assert restored == self.standing
        self.standing, self.stream = restored, self.new_stream()
        self.stream.restore(restored.stream)
        self.engine = Gated(self.outcomes, self.version)
        self.task = self.loop.create_task(self.collecting(self.stream, self.engine))
        self.settle_down()
        self.end_the_step_if_it_is_done()

    @precondition(lambda self: self.is_over)
    @rule()
    def nothing_is_left_to_do(self) -> None:
        assert self.task is None

    def settle_down(self) -> None:
        """Let everything run that can."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def end_the_step_if_it_is_done(self) -> None:
        if self.task is None or not self.task.done():
            return
        expected, twin = self.twin()
        task, self.task = self.task, None
        if isinstance(expected, EngineError):
            assert isinstance(task.exception(), EngineError)
            self.is_over = True
            return
        found = task.result()
        assert found.groups == expected.groups and found.left == expected.left
        assert self.stream.state() == twin.state()
        self.check_the_step(found)
        self.settled += found.groups
        self.standing = replace(self.standing, stream=self.stream.state(), inherited=found.left)
        self.is_over = self.stream.is_exhausted and not found.left.groups

    def twin(self) -> tuple[Collected | EngineError, PromptStream]:
        stream = self.new_stream()
        stream.restore(self.standing.stream)
        work = self.collecting(stream, Scripted(self.outcomes, self.version))
        try:
            return self.loop.run_until_complete(work), stream
        except EngineError as error:
            return error, stream

    def check_the_step(self, found: Collected) -> None:
        count = {name.removeprefix("sampling/"): int(stat.value) for name, stat in found.stats.items()}
        settled = ("kept", "all_right", "all_wrong", "surplus", "stale", "error", "carried_out")
        assert count["groups_generated"] + count["groups_carried_in"] == sum(
            count[f"groups_{name}"] for name in settled
        )
        assert (
            count["tokens_generated"] + count["tokens_carried_in"]
            == count["tokens_kept"] + count["tokens_wasted"] + count["tokens_carried_out"]
        )
        assert len(found.kept) == count["groups_kept"] <= self.plan.groups
        assert count["groups_generated"] <= self.plan.most_groups
        for judged in found.groups:
            outcome = self.outcomes[judged.group.prompt.problem.id]
            assert (
                judged.reason
                in {
                    MIXED: {Reason.KEPT, Reason.SURPLUS, Reason.CARRIED, Reason.STALE},
                    RIGHT: {Reason.ALL_RIGHT, Reason.TOP_UP},
                    WRONG: {Reason.ALL_WRONG, Reason.TOP_UP},
                    BROKEN: {Reason.ERROR},
                }[outcome]
            )
            if judged.reason is Reason.CARRIED:
                assert self.version - written_at(judged) <= self.plan.max_staleness
            if judged.reason is Reason.STALE:
                assert self.version - written_at(judged) > self.plan.max_staleness
        if len(found.kept) == self.plan.groups:
            assert Reason.TOP_UP not in {judged.reason for judged in found.groups} or self.plan.when_short == "top_up"

    @invariant()
    def every_prompt_that_was_drawn_is_accounted_for_once(self) -> None:
        if self.task is not None or not self.step or self.is_over:
            return
        groups = [*self.settled, *self.standing.inherited.groups]
        assert max(Counter(judged.name for judged in groups).values(), default=0) <= 1
        twin = self.new_stream()
        drawn = Counter(prompt.problem.id for prompt in twin.take(self.stream.position))
        assert Counter(judged.group.prompt.problem.id for judged in groups) == drawn

    def teardown(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.settle_down()
        self.loop.close()


TestCollecting = Collecting.TestCase
TestCollecting.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
