"""Tasks and rewards of the user's own: found by name, checked before they are used, and never trusted blindly."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from dapo.errors import ConfigError, RequestError, RewardError
from dapo.loading import load_object
from dapo.ports import Task
from dapo.tasks.answer import MOST_HANGING, CallTimeout
from dapo.tasks.calling import Caller
from dapo.tasks.calling_async import AsyncCaller
from dapo.tasks.rewards import ENGINE_FAILED, rule_score
from dapo.types import Finish, Problem, Rollout, Score

if TYPE_CHECKING:
    from dapo.tasks.config import CustomConfig

_ALLOWED = (
    "allowed are True or False (the reward is +1 or -1), a finite number (the reward itself; right if above 0) "
    "or a dapo.types.Score"
)
REWARD_SECONDS = 60.0
"""How long a reward function may take for one reply, unless the recipe says otherwise."""

_TASK_METHODS = {"train_problems": 0, "held_out_problems": 0, "score": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomReward:
    """A user's reward function under its name; what it returns is checked each time."""

    name: str
    function: Callable[[Problem, str], Any]
    caller: Caller = field(default_factory=lambda: Caller(REWARD_SECONDS), repr=False, compare=False)
    async_caller: AsyncCaller = field(default_factory=lambda: AsyncCaller(REWARD_SECONDS), repr=False, compare=False)

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Score one reply. Raises RewardError if the function raises or returns something that is no score.

        A reply that the engine could not complete is wrong without a call. A truncated one is the function's to judge. One
        for which the function takes too long is wrong, with the `error`; RewardError is raised once several calls hang.
        """
        if rollout.finish is Finish.ERROR:
            return rule_score(False, None, error=ENGINE_FAILED)
        try:
            value = await _guarded(self.name, problem, self._value(problem, rollout.text))
        except CallTimeout as timeout:
            return _timed_out(self.name, problem, timeout)
        return to_score(value, self.name, problem)

    async def _value(self, problem: Problem, reply: str) -> object:
        if inspect.iscoroutinefunction(self.function):
            return await self.async_caller.call(self.function, problem, reply)
        value = await self.caller.call(self.function, problem, reply)
        return await self.async_caller.call(lambda: value) if isinstance(value, Awaitable) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTask:
    """A user's task under its name; the scores it returns are checked."""

    name: str
    task: Task
    caller: AsyncCaller = field(default_factory=AsyncCaller, repr=False, compare=False)

    def train_problems(self) -> Sequence[Problem]:
        problems = self._checked("train_problems", self.task.train_problems)
        if not len(problems):
            raise ConfigError(f"{self.name}.train_problems() is empty, so there is nothing to train on")
        return problems

    def held_out_problems(self) -> Sequence[Problem]:
        return self._checked("held_out_problems", self.task.held_out_problems)

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Score one reply. Raises RewardError if the task raises or returns something that is no Score.

        Whoever asks has a limit; here, one holds for a `score` that keeps all others from going on.
        """
        name = f"{self.name}.score"
        try:
            value = await _guarded(name, problem, self.caller.call(self.task.score, problem, rollout))
        except CallTimeout as timeout:
            return _timed_out(name, problem, timeout)
        if not isinstance(value, Score):
            raise RewardError(
                f"{name} returned {_shown(value)} for problem {problem.id!r}; a task returns a dapo.types.Score"
            )
        return to_score(value, name, problem)

    def _checked(self, method: str, make: Callable[[], object]) -> Sequence[Problem]:
        """Look at the kind of the sequence and at its first item alone: the items may be made when asked for."""
        try:
            problems = make()
        except RequestError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{self.name}.{method}() raised {type(error).__name__}: {error}; correct the task or its options"
            ) from error
        if isinstance(problems, str) or not (hasattr(problems, "__len__") and hasattr(problems, "__getitem__")):
            raise ConfigError(
                f"{self.name}.{method}() returned {_shown(problems)}; "
                "return a sequence of dapo.types.Problem, e.g. a list"
            )
        if len(problems) and not isinstance(problems[0], Problem):
            raise ConfigError(f"{self.name}.{method}()[0] is {_shown(problems[0])}; it must be a dapo.types.Problem")
        return cast("Sequence[Problem]", problems)


def check(config: CustomConfig) -> None:
    """Import the user's task and compare its parameters with the options. Raises ConfigError."""
    _arguments(config, load_object(config.path), seed=0)


def build(config: CustomConfig, seed: int) -> CustomTask:
    """Make the user's task and check that it is one. Raises ConfigError."""
    make = load_object(config.path)
    arguments = _arguments(config, make, seed)
    try:
        task = make(**arguments)
    except RequestError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"task.path = {config.path!r} with the options {arguments} raised {type(error).__name__}: {error}; "
            "correct the task or its options"
        ) from error
    _check_protocol(config.path, task)
    return CustomTask(name=config.path, task=task)


def load_reward(path: str, seconds: float = REWARD_SECONDS) -> CustomReward:
    """Import a user's reward function, which has `seconds` for a reply. Raises ConfigError if it cannot be imported, or
    does not take `(problem, reply)`."""
    function = load_object(path)
    if not _takes(function, 2):
        raise ConfigError(
            f"{path!r} cannot be called as reward(problem, reply): its parameters are "
            f"{inspect.signature(function)}; give it exactly these two"
        )
    return CustomReward(name=path, function=function, caller=Caller(seconds), async_caller=AsyncCaller(seconds))


def to_score(value: object, name: str, problem: Problem) -> Score:
    """Turn what a user's function returned into a Score. Raises RewardError if it is none of the allowed kinds.

    True and False follow DAPO's rule. A number r is the reward itself, and right where r > 0.
    """
    if isinstance(value, bool):
        return rule_score(value, None)
    reward = _finite(value.reward if isinstance(value, Score) else value)
    if reward is not None:
        if not isinstance(value, Score):
            return Score(correct=reward > 0, reward=reward)
        if isinstance(value.correct, bool):
            return replace(value, reward=reward)
    raise RewardError(f"{name} returned {_shown(value)} for problem {problem.id!r}; {_ALLOWED}")


def _timed_out(name: str, problem: Problem, timeout: CallTimeout) -> Score:
    """A wrong score with the error. Raises RewardError once several calls hang."""
    if timeout.hanging >= MOST_HANGING:
        raise RewardError(
            f"{name} {timeout} for problem {problem.id!r}, and {timeout.hanging} of its calls have not come "
            "back at all; make it end by itself, e.g. by a limit on what it reads or runs"
        ) from timeout
    return rule_score(False, None, error=f"{name} {timeout}")


async def _guarded(name: str, problem: Problem, asked: Awaitable[object]) -> object:
    try:
        return await asked
    except CallTimeout:
        raise
    except Exception as error:
        raise RewardError(
            f"{name} raised {type(error).__name__} for problem {problem.id!r}: {error}; "
            "return a score for every reply, also for an empty or a strange one"
        ) from error


def _arguments(config: CustomConfig, make: Callable[..., object], seed: int) -> Mapping[str, object]:
    """Return the keyword arguments to make the task with, after a comparison with its parameters."""
    try:
        signature = inspect.signature(make)
    except ValueError:
        return config.options  # written in C, without a signature to compare with
    parameters = signature.parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    names = [name for name, one in parameters.items() if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
    unknown = [name for name in config.options if name not in names]
    if unknown and not takes_any:
        close = get_close_matches(unknown[0], names, n=1)
        raise ConfigError(
            f"task.options has {unknown[0]!r}, which {config.path!r} does not take"
            + (f"; did you mean {close[0]!r}?" if close else "")
            + f" Its parameters are {signature}"
        )
    arguments = dict(config.options)
    if "seed" in names and "seed" not in arguments:
        arguments["seed"] = seed
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"{config.path!r} cannot be made from task.options = {config.options}: {error}; "
            f"its parameters are {signature}"
        ) from error
    return arguments


def _check_protocol(path: str, task: object) -> None:
    for method, count in _TASK_METHODS.items():
        function = getattr(task, method, None)
        if not callable(function):
            raise ConfigError(f"{path!r} made a {type(task).__name__}, which is no task: it has no method {method!r}")
        if not _takes(function, count):
            wanted = "(problem, rollout)" if count else "()"
            raise ConfigError(
                f"{path!r}: {method} must be callable as {method}{wanted}; its parameters are "
                f"{inspect.signature(function)}"
            )
    if not inspect.iscoroutinefunction(getattr(task, "score", None)):
        raise ConfigError(f"{path!r}: score must be written as `async def score(self, problem, rollout)`")


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether the function can be called with `count` positional arguments; true where that cannot be known."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _finite(value: object) -> float | None:
    """Return a number of any kind as a float, or None for what is none, is not finite or is too large for one."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 200 else text[:200] + '...'} ({type(value).__name__})"
