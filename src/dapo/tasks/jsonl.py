"""Problems out of the user's own JSON lines files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from dapo.errors import DataError
from dapo.seeds import derive_seed
from dapo.tasks.custom import CustomReward, load_reward
from dapo.tasks.rewards import RULES, Rule, judge
from dapo.tasks.rows import Format, read_problems
from dapo.types import Problem, Rollout, Score

if TYPE_CHECKING:
    from dapo.tasks.config import JsonlConfig

_log = logging.getLogger(__name__)

_LARGEST_DEFAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Jsonl:
    """The task: the rows as problems, and the rule or the user's function that scores."""

    train: tuple[Problem, ...]
    held_out: tuple[Problem, ...]
    scorer: Rule | CustomReward

    def train_problems(self) -> Sequence[Problem]:
        return self.train

    def held_out_problems(self) -> Sequence[Problem]:
        return self.held_out

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Judge one reply. Raises RewardError where the user's own function misbehaves."""
        if isinstance(self.scorer, CustomReward):
            return await self.scorer.score(problem, rollout)
        return judge(rollout, problem.answer, self.scorer)


def build(config: JsonlConfig, seed: int) -> Jsonl:
    """Make the task, and log how many training rows were left out because a held-out row has the same prompt.

    Raises DataError for the files and ConfigError for the reward.
    """
    task, left_out = read(config, seed)
    if left_out:
        _log.warning("%s: left out %d training rows with the prompt of a held-out row", config.path, left_out)
    return task


def read(config: JsonlConfig, seed: int) -> tuple[Jsonl, int]:
    """Read the files and part held-out from training rows; also return how many rows were left out of the latter."""
    scorer = (
        RULES[config.match or "integer"] if config.reward is None else load_reward(config.reward, config.reward_seconds)
    )
    layout = Format.of(config)
    rows = read_problems(config.path, layout)
    if config.held_out_path is None:
        train, held_out = _part(rows, config, seed)
    else:
        train, held_out = rows, read_problems(config.held_out_path, layout, default_id="held-out-row")
    asked = {problem.messages for problem in held_out}
    kept = tuple(problem for problem in train if problem.messages not in asked)
    if not kept:
        raise DataError(
            f"each of the {len(train)} training rows of {config.path} has the prompt of a held-out row; "
            "correct task.prompt_column or give task.held_out_path another file"
        )
    return Jsonl(train=kept, held_out=held_out, scorer=scorer), len(train) - len(kept)


def _part(rows: tuple[Problem, ...], config: JsonlConfig, seed: int) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Draw the held-out rows by the seed; both parts keep the order of the file."""
    wanted = config.held_out
    if wanted is None:
        wanted = min(_LARGEST_DEFAULT, max(1, len(rows) // 10)) if len(rows) > 1 else 0
    if wanted >= len(rows):
        raise DataError(
            f"held_out = {wanted} takes all of the {len(rows)} rows of {config.path} and leaves none to train on; "
            "lower task.held_out or name a second file with task.held_out_path"
        )
    data_seed = seed if config.data_seed is None else config.data_seed
    chosen = set(Random(derive_seed(data_seed, "jsonl", "held_out")).sample(range(len(rows)), wanted))
    return (
        tuple(problem for number, problem in enumerate(rows) if number not in chosen),
        tuple(problem for number, problem in enumerate(rows) if number in chosen),
    )
