"""A user's reward function cannot stop the run, whatever it does."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dapo.errors import RewardError
from dapo.tasks.answer import MOST_HANGING, CallTimeout
from dapo.tasks.calling import Caller
from dapo.tasks.custom import CustomReward
from dapo.types import Score
from tests.fakes import problem, rollout


def reward_of(function: Callable[..., Any], seconds: float = 5.0) -> CustomReward:
    return CustomReward(name="my.module:reward", function=function, caller=Caller(seconds))


def scores(reward: CustomReward, *texts: str) -> list[Score]:
    async def story() -> list[Score]:
        return list(await asyncio.gather(*(reward.score(problem("p0"), rollout(text)) for text in texts)))

    return asyncio.run(story())


def test_calls_come_one_at_a_time_in_a_thread_of_their_own_and_each_gets_its_answer() -> None:
    threads: list[str] = []
    running: list[int] = [0]

    def length(problem: Any, reply: str) -> float:
        running[0] += 1
        assert running[0] == 1
        threads.append(threading.current_thread().name)
        time.sleep(0.001)
        running[0] -= 1
        return float(len(reply))

    assert [score.reward for score in scores(reward_of(length), "a", "bb", "ccc")] == [1.0, 2.0, 3.0]
    assert threads == ["dapo-reward"] * 3


def test_a_call_that_hangs_is_a_wrong_reply_with_an_error_and_those_behind_it_are_answered() -> None:
    stuck = threading.Event()

    def hangs_on_b(problem: Any, reply: str) -> bool:
        if reply == "b":
            stuck.wait(30)
        return True

    found = scores(reward_of(hangs_on_b, seconds=1.0), "a", "b", "c")
    stuck.set()
    assert [score.correct for score in found] == [True, False, True]
    assert [score.error for score in found] == [None, "my.module:reward took more than 1 seconds", None]
    assert found[1].reward == -1.0


def test_the_limit_counts_from_when_a_call_begins() -> None:
    """Four calls of 0.6 s, one at a time, with a limit of 2 s each."""
    found = scores(reward_of(lambda problem, reply: time.sleep(0.6) is None, seconds=2.0), *"abcd")
    assert [score.error for score in found] == [None] * 4


def test_once_several_calls_never_come_back_the_run_ends_with_what_to_do() -> None:
    stuck = threading.Event()
    reward = reward_of(lambda problem, reply: stuck.wait(30), seconds=0.05)
    with pytest.raises(RewardError, match=rf"{MOST_HANGING} of its calls have not come back at all; make it end"):
        scores(reward, *"abcdefgh")
    stuck.set()


def test_a_call_that_is_late_and_then_comes_back_holds_no_thread() -> None:
    gate = threading.Event()
    reward = reward_of(lambda problem, reply: gate.wait(30), seconds=0.05)
    for _ in range(MOST_HANGING + 2):
        before = set(threading.enumerate())
        gate.clear()
        assert scores(reward, "a")[0].error is not None
        gate.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(0.2)  # all but the one that waits for the next call


def test_what_the_function_raises_is_a_reward_error() -> None:
    def breaks(problem: Any, reply: str) -> float:
        raise ZeroDivisionError("by nothing")

    with pytest.raises(RewardError, match="raised ZeroDivisionError for problem 'p0': by nothing"):
        scores(reward_of(breaks), "a")


def test_a_function_that_exits_is_a_reward_error() -> None:
    with pytest.raises(RewardError, match="SystemExit: 3"):
        scores(reward_of(lambda problem, reply: exit(3)), "a")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "1", [1.0], [1.0, 2.0]])
def test_what_is_no_score_is_a_reward_error(value: object) -> None:
    with pytest.raises(RewardError, match="allowed are True or False"):
        scores(reward_of(lambda problem, reply: value), "a")


def test_a_function_that_sets_signals_is_called_in_the_main_thread() -> None:
    def guarded(problem: Any, reply: str) -> bool:
        before = signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.signal(signal.SIGALRM, before)
        return threading.current_thread() is threading.main_thread()

    assert [score.correct for score in scores(reward_of(guarded), "a", "b")] == [True, True]


def test_a_call_that_nobody_waits_for_any_more_does_no_harm() -> None:
    async def story() -> str:
        caller, gate = Caller(0.5), threading.Event()
        with pytest.raises(CallTimeout, match=r"took more than 0\.5 seconds"):
            await caller.call(gate.wait, 30)
        gate.set()
        return str(await caller.call(lambda: "well"))

    assert asyncio.run(story()) == "well"


def test_an_answer_that_comes_after_the_loop_that_asked_was_closed_is_not_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = threading.Event()
    before = set(threading.enumerate())
    assert scores(reward_of(lambda problem, reply: gate.wait(30), seconds=0.1), "a")[0].error is not None
    gate.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(0.2)
    assert caplog.text == ""


def test_an_error_that_comes_after_whoever_asked_is_gone_is_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    may_fail = threading.Event()

    def fails() -> None:
        may_fail.wait(5)
        raise ZeroDivisionError("too late")

    async def work() -> None:
        caller = Caller(10.0)
        asking = asyncio.ensure_future(caller.call(fails))
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        del asking
        may_fail.set()
        await caller.call(int)  # the worker lets go of the call before
        gc.collect()

    asyncio.run(work())
    gc.collect()
    assert "never retrieved" not in caplog.text
