"""Mathematics problems from a data set, graded by a verifier within hard limits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dapo.data.problems import ProblemSet, open_problems
from dapo.errors import DataError
from dapo.tasks.rewards import ENGINE_FAILED, rule_score
from dapo.types import Finish, Message, Problem, Rollout, Score
from dapo.verifiers import VerifierPool

if TYPE_CHECKING:
    from dapo.tasks.config import MathConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mathematics:
    """The task: problems as they are asked for, and the pool that grades."""

    train: Sequence[Problem]
    held_out: Sequence[Problem]
    pool: VerifierPool

    def train_problems(self) -> Sequence[Problem]:
        return self.train

    def held_out_problems(self) -> Sequence[Problem]:
        return self.held_out

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Grade one reply: +1 or -1. A truncated reply is right only if it had stated its final answer already."""
        if rollout.finish is Finish.ERROR:
            return rule_score(False, None, error=ENGINE_FAILED)
        grade = await self.pool.grade(rollout.text, problem.answer, truncated=rollout.is_truncated)
        score = rule_score(grade.correct, grade.extracted, error=grade.error)
        return score if grade.watched is None else replace(score, disagrees=grade.disagrees)


@dataclass(frozen=True, slots=True)
class WithSystem(Sequence[Problem]):
    """Problems with a system message before each, put there when a problem is asked for."""

    problems: Sequence[Problem]
    system: str

    def __len__(self) -> int:
        return len(self.problems)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return WithSystem(self.problems[index], self.system)
        problem = self.problems[index]
        return replace(problem, messages=(Message(role="system", content=self.system), *problem.messages))


def build(config: MathConfig) -> Mathematics:
    """Open the data. Raises DataError where a file or a row cannot serve."""
    held_out: Sequence[Problem] = ()
    if config.held_out is not None:
        held_out = _opened(open_problems(config.held_out), config.system)
    return Mathematics(
        train=_opened(open_problems(config.data), config.system), held_out=held_out, pool=config.verifier.build()
    )


def _opened(problems: ProblemSet, system: str | None) -> Sequence[Problem]:
    if len(problems) == 0:
        raise DataError(f"{problems.loaded.to_text()} No problem is left to use.")
    _log.info("%s", problems.loaded.to_text())
    return WithSystem(problems, system) if system is not None else problems
