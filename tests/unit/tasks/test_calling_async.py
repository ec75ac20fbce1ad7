"""A user's asynchronous scoring code cannot stop the run either, whatever it does."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dapo.collect.attempts import Scorer
from dapo.errors import RewardError
from dapo.tasks.answer import MOST_HANGING
from dapo.tasks.calling import Caller
from dapo.tasks.calling_async import AsyncCaller
from dapo.tasks.custom import CustomReward, CustomTask
from dapo.tasks.own_loop import DaemonThreads
from dapo.types import Problem, Rollout, Score
from tests.fakes import FakeTask, problem, rollout


def reward_of(function: Callable[..., Any], seconds: float = 5.0) -> CustomReward:
    return CustomReward(name="my:reward", function=function, caller=Caller(seconds), async_caller=AsyncCaller(seconds))


def scores(reward: CustomReward | Scorer, *texts: str) -> list[Score]:
    async def story() -> list[Score]:
        return list(await asyncio.gather(*(reward.score(problem("p0"), rollout(text)) for text in texts)))

    return asyncio.run(story())


def test_many_wait_at_once_in_one_thread_that_is_not_the_loop_s() -> None:
    threads: set[threading.Thread] = set()

    async def waits(problem: Any, reply: str) -> float:
        threads.add(threading.current_thread())
        await asyncio.sleep(0.3)
        return float(len(reply))

    reward, started = reward_of(waits), time.monotonic()
    assert [score.reward for score in scores(reward, *("x" * (number + 1) for number in range(50)))] == [
        float(number + 1) for number in range(50)
    ]
    assert time.monotonic() - started < 3.0  # one after another it would be 15 s
    assert scores(reward, "a")[0].reward == 1.0  # asked from another loop
    assert len(threads) == 1 and threading.main_thread() not in threads


def test_a_call_that_awaits_for_ever_is_wrong_with_an_error_and_is_cancelled() -> None:
    cancelled: list[str] = []

    async def hangs_on_b(problem: Any, reply: str) -> bool:
        try:
            if reply == "b":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(reply)
            raise
        return True

    found = scores(reward_of(hangs_on_b, 0.3), "a", "b", "c")
    assert [(score.correct, score.error) for score in found] == [
        (True, None),
        (False, "my:reward took more than 0.3 seconds"),
        (True, None),
    ]
    assert found[1].reward == -1.0 and cancelled == ["b"]


def test_calls_that_wait_for_each_other_have_the_limit_from_when_one_of_them_ends() -> None:
    """Six calls of 0.3 s, one at a time, with a limit of 1 s."""
    gate = asyncio.Semaphore(1)

    async def one_at_a_time(problem: Any, reply: str) -> bool:
        async with gate:
            await asyncio.sleep(0.3)
        return True

    assert [score.error for score in scores(reward_of(one_at_a_time, 1.0), *"abcdef")] == [None] * 6


def test_a_call_that_blocks_its_loop_is_wrong_and_those_beside_it_are_answered() -> None:
    stuck = threading.Event()

    async def blocks_on_b(problem: Any, reply: str) -> bool:
        await asyncio.sleep(0)
        if reply == "b":
            stuck.wait(30)
        return True

    found = scores(reward_of(blocks_on_b, 0.4), "a", "b", "c", "d")
    stuck.set()
    assert [score.correct for score in found] == [True, False, True, True]
    assert [score.error for score in found] == [None, "my:reward took more than 0.4 seconds", None, None]


def test_a_task_that_a_call_has_started_and_that_blocks_is_put_down_to_that_call() -> None:
    stuck = threading.Event()

    async def part(reply: str) -> None:
        await asyncio.sleep(0.01)
        if reply == "c":
            stuck.wait(30)

    async def in_parts(problem: Any, reply: str) -> bool:
        await asyncio.gather(part(reply), asyncio.sleep(0.05))
        return True

    found = scores(reward_of(in_parts, 0.4), "a", "b", "c")
    stuck.set()
    assert [score.correct for score in found] == [True, True, False]


def test_once_several_calls_block_the_run_ends_with_what_to_do() -> None:
    stuck = threading.Event()

    async def blocks(problem: Any, reply: str) -> bool:
        return stuck.wait(30)

    with pytest.raises(RewardError, match=rf"{MOST_HANGING} of its calls have not come back at all; make it end"):
        scores(reward_of(blocks, 0.1), *"abcdefgh")
    stuck.set()


async def _swallows(problem: Any, reply: str) -> bool:
    for _ in range(200):
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return True


def test_a_call_that_will_not_be_cancelled_is_left_alone_and_several_end_the_run() -> None:
    started = time.monotonic()
    (found,) = scores(reward_of(_swallows, 0.1), "a")
    assert found.error == "my:reward took more than 0.1 seconds" and time.monotonic() - started < 5.0
    with pytest.raises(RewardError, match=r"calls have not come back at all"):
        scores(reward_of(_swallows, 0.1), *"abcdefgh")


def test_work_that_a_call_left_in_the_loop_s_threads_is_not_waited_for() -> None:
    stuck = threading.Event()

    async def delegates(problem: Any, reply: str) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, stuck.wait, 30)

    started = time.monotonic()
    (found,) = scores(reward_of(delegates, 0.2), "a")
    assert found.error is not None and time.monotonic() - started < 5.0
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("dapo-reward"))
    stuck.set()


def test_the_loop_s_threads_return_and_raise_as_an_executor_s_do() -> None:
    async def story() -> list[Any]:
        asyncio.get_running_loop().set_default_executor(DaemonThreads(2))
        asked = [asyncio.to_thread(len, "x" * number) for number in range(9)]
        return [
            *await asyncio.gather(*asked),
            await asyncio.gather(asyncio.to_thread(int, "x"), return_exceptions=True),
        ]

    *lengths, (error,) = asyncio.run(story())
    assert lengths == list(range(9))
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(0), "RuntimeError for problem 'p0': SystemExit: 0"),
        (KeyboardInterrupt(), "RuntimeError for problem 'p0': KeyboardInterrupt"),
        (asyncio.CancelledError(), "RuntimeError for problem 'p0': CancelledError"),
        (StopIteration(), "StopIteration"),
        (GeneratorExit(), "RuntimeError for problem 'p0': GeneratorExit"),
        (ZeroDivisionError("by nothing"), "ZeroDivisionError for problem 'p0': by nothing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("kind", ["sync", "async", "awaitable", "subtask"])
def test_whatever_is_raised_is_a_reward_error(error: BaseException, words: str, kind: str) -> None:
    async def asynchronous(problem: Any, reply: str) -> bool:
        raise error

    async def in_a_task(problem: Any, reply: str) -> bool:
        return await asyncio.create_task(asynchronous(problem, reply))

    def synchronous(problem: Any, reply: str) -> bool:
        raise error

    def awaitable(problem: Any, reply: str) -> Any:
        return asynchronous(problem, reply)

    function = {"sync": synchronous, "async": asynchronous, "awaitable": awaitable, "subtask": in_a_task}[kind]
    with pytest.raises(RewardError) as raised:
        scores(reward_of(function), "a")
    assert words in str(raised.value)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_needs_the_main_thread_may_not_end_the_run_there(error: BaseException, is_async: bool) -> None:
    def guarded(problem: Any, reply: str) -> bool:
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        if reply == "b":
            raise error
        return threading.current_thread() is threading.main_thread()

    async def guarded_async(problem: Any, reply: str) -> bool:
        return guarded(problem, reply)

    reward = reward_of(guarded_async if is_async else guarded)
    assert scores(reward, "a")[0].correct
    with pytest.raises(RewardError, match=type(error).__name__):
        scores(reward, "b")


class Unruly(FakeTask):
    """A task whose `score` does what is told on the reply `b`."""

    def __init__(self, on_b: Callable[[], Any]) -> None:
        super().__init__()
        self._on_b = on_b

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        if rollout.text == "b":
            value = self._on_b()
            if value is not None:
                await value
        return Score(correct=True, reward=1.0)


def test_a_task_s_score_that_blocks_is_given_up_and_the_next_replies_are_scored() -> None:
    stuck = threading.Event()
    scorer = Scorer(CustomTask(name="my:Task", task=Unruly(lambda: stuck.wait(30) and None)), 0.5)
    (found,) = scores(scorer, "b")
    assert found.error == "the scorer gave no score back for 0.5 seconds and was given up"
    later = scores(Scorer(scorer._task, 10.0), "a", "c")
    stuck.set()
    assert [score.correct for score in later] == [True, True]


def test_a_task_s_score_that_awaits_for_ever_is_given_up() -> None:
    scorer = Scorer(CustomTask(name="my:Task", task=Unruly(lambda: asyncio.sleep(1e6))), 0.5)
    found = scores(scorer, "a", "b")
    assert [score.correct for score in found] == [True, False]
    assert found[1].error == "the scorer gave no score back for 0.5 seconds and was given up"


def test_a_task_s_score_that_exits_is_a_reward_error() -> None:
    with pytest.raises(RewardError, match=r"my:Task.score raised RuntimeError for problem 'p0': SystemExit: 0"):
        scores(Scorer(CustomTask(name="my:Task", task=Unruly(lambda: exit(0))), 5.0), "b")


def test_who_asks_can_be_cancelled_at_once_whatever_the_call_does() -> None:
    async def story() -> float:
        asking = asyncio.ensure_future(AsyncCaller(60.0).call(_swallows, None, "a"))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return time.monotonic() - started

    assert asyncio.run(story()) < 1.0
