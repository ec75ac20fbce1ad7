"""Makes the rollouts that the tests of the tasks score."""

from __future__ import annotations

import asyncio

from dapo.ports import Task
from dapo.types import Finish, Problem, Rollout, Score


def reply(text: str, finish: Finish = Finish.STOP) -> Rollout:
    return Rollout(token_ids=(1,), mask=(True,), logprobs=(-0.5,), text=text, finish=finish, policy_version=0)


def score(task: Task, problem: Problem, text: str, finish: Finish = Finish.STOP) -> Score:
    return asyncio.run(task.score(problem, reply(text, finish)))
