"""Problems of the generators of reasoning-gym, scored by the generator's own scorer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Any

from dapo.errors import ConfigError
from dapo.seeds import derive_seed
from dapo.tasks.messages import to_messages
from dapo.tasks.reasoning_gym_process import shared_worker
from dapo.tasks.rewards import rule_score, unjudged
from dapo.types import Problem, Rollout, Score

if TYPE_CHECKING:
    from dapo.tasks.config import ReasoningGymConfig

_OPEN_SECONDS = 60.0
_DRAW_SECONDS = 60.0
_DRAWS_PER_PROBLEM = 4  # how many draws a wanted problem may cost before the generator counts as exhausted
_SPARE_DRAWS = 100
_RIGHT = 1.0 - 1e-9

Dataset = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGym:
    """The task: problems made by the generator. `info` of a problem says which dataset and entry it is."""

    train: tuple[Problem, ...]
    held_out: tuple[Problem, ...]
    extract: Callable[[str], str | None]
    partial_credit: bool
    score_seconds: float

    def train_problems(self) -> Sequence[Problem]:
        return self.train

    def held_out_problems(self) -> Sequence[Problem]:
        return self.held_out

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Judge one reply. A scorer that fails or thinks too long leaves the reply wrong, with `Score.error`."""
        ending = unjudged(rollout)
        if ending is not None:
            return ending
        answer = self.extract(rollout.text)
        if answer is None:
            return rule_score(False, None)
        request = {
            "do": "score",
            "dataset": problem.info["dataset"],
            "index": problem.info["index"],
            "question": problem.messages[-1].content,
            "reply": answer,
        }
        result = await asyncio.wrap_future(shared_worker().submit(request, self.score_seconds))
        if "too_slow" in result:
            return rule_score(False, answer, error=f"the scorer took more than {self.score_seconds:g} seconds")
        if "failed" in result:
            return rule_score(False, answer, error=f"the scorer failed: {result['failed']}")
        return to_score(result["score"], answer, self.partial_credit)


def check(config: ReasoningGymConfig) -> None:
    """Raise ConfigError if the package, the generator or one of its options is missing or refused."""
    if find_spec("reasoning_gym") is None:
        raise ConfigError(
            "task.type = 'reasoning_gym' needs the package reasoning-gym, which is not installed; "
            'run: pip install "dapo-rl[reasoning-gym]"'
        )
    for option, instead in (("seed", "data_seed"), ("size", "size")):
        if option in config.options:
            raise ConfigError(f"task.options has {option!r}, which the task sets itself; use task.{instead} instead")
    answer = _ask({"do": "open", "dataset": _dataset(config, seed=0, size=1)}, _OPEN_SECONDS)
    if "unknown_name" in answer:
        raise ConfigError(
            f"task.name = {config.name!r} is no generator of the installed reasoning-gym; "
            + _suggestion(config.name, answer["known"])
        )
    if "unknown_option" in answer:
        known = [name for name in answer["known"] if name not in ("seed", "size")]
        raise ConfigError(
            f"task.options has {answer['unknown_option']!r}, which the generator {config.name!r} does not take; "
            + _suggestion(answer["unknown_option"], known)
        )
    if "opened" not in answer:
        raise ConfigError(
            f"the generator {config.name!r} cannot be made with the options {config.options}: "
            f"{answer.get('failed', 'it took too long')}; correct task.options"
        )


def build(config: ReasoningGymConfig, seed: int) -> ReasoningGym:
    """Make the held-out and then the training problems. Raises ConfigError as `check` does, or if there are too few."""
    check(config)
    data_seed = seed if config.data_seed is None else config.data_seed
    held_out = _draw(config, "held-out", config.held_out, data_seed, barred=frozenset())
    asked = frozenset(problem.messages[-1].content for problem in held_out)
    return ReasoningGym(
        train=_draw(config, "train", config.size, data_seed, barred=asked),
        held_out=held_out,
        extract=EXTRACT[config.extract],
        partial_credit=config.partial_credit,
        score_seconds=config.score_seconds,
    )


def to_score(value: float, answer: str, partial_credit: bool) -> Score:
    """Turn a scorer's value, 0 to 1, into a Score: right from 1 - 1e-9 on; the reward is 2s - 1 with partial credit."""
    if not isfinite(value):
        return rule_score(False, answer, error=f"the scorer returned {value}")
    correct = value >= _RIGHT
    if not partial_credit:
        return rule_score(correct, answer)
    return Score(correct=correct, reward=1.0 if correct else 2.0 * max(value, 0.0) - 1.0, extracted=answer)


def whole(reply: str) -> str | None:
    """Return the whole reply without the white space around it."""
    return reply.strip()


def last_line(reply: str) -> str | None:
    """Return the last line that is not blank, stripped; an empty text if there is none."""
    return reply.strip().rpartition("\n")[2].strip()


def answer_tag(reply: str) -> str | None:
    """Return the text of the last `<answer>...</answer>`, stripped, or None. A tag that is not closed is none."""
    opened = reply.rpartition("<answer>")
    if not opened[1] or "</answer>" not in opened[2]:
        return None
    return opened[2].partition("</answer>")[0].strip()


EXTRACT: Mapping[str, Callable[[str], str | None]] = {"whole": whole, "last_line": last_line, "answer_tag": answer_tag}


def _dataset(config: ReasoningGymConfig, *, seed: int, size: int) -> Dataset:
    return {"name": config.name, "options": dict(config.options), "seed": seed, "size": size}


def _draw(
    config: ReasoningGymConfig, part: str, wanted: int, data_seed: int, *, barred: frozenset[str]
) -> tuple[Problem, ...]:
    """Draw `wanted` problems with different questions, none of them barred."""
    limit = wanted * _DRAWS_PER_PROBLEM + _SPARE_DRAWS
    # A generator adds the entry's number to its seed, and numpy takes no seed above 2^32: 31 bits leave room.
    dataset = _dataset(config, seed=derive_seed(data_seed, "reasoning_gym", config.name, part) >> 32, size=limit)
    problems: list[Problem] = []
    seen = set(barred)
    for index in range(limit):
        if len(problems) == wanted:
            break
        answer = _ask({"do": "draw", "dataset": dataset, "index": index}, _DRAW_SECONDS)
        if "question" not in answer:
            raise ConfigError(
                f"the generator {config.name!r} could not make problem {index}: "
                f"{answer.get('failed', f'it took more than {_DRAW_SECONDS:g} seconds')}; change task.options"
            )
        question = answer["question"]
        if question in seen:
            continue
        seen.add(question)
        problems.append(
            Problem(
                id=f"{config.name}-{part}-{index}",
                messages=to_messages(question, config.system),
                answer="" if answer["answer"] is None else str(answer["answer"]),
                info={"dataset": dataset, "index": index},
            )
        )
    if len(problems) < wanted:
        setting = "size" if part == "train" else "held_out"
        raise ConfigError(
            f"task.{setting} = {wanted}, but {limit} draws of the generator {config.name!r} gave only {len(problems)} "
            f"different problems{' that are not held out' if barred else ''}; "
            f"lower task.{setting} or widen task.options"
        )
    return tuple(problems)


def _ask(request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return shared_worker().submit(dict(request), seconds).result()


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"It knows {', '.join(known)}"
