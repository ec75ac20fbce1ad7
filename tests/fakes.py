"""Stand-ins for the four seams, and short ways to make the values that flow. No model, no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dapo.engines.fake import FakeEngine
from dapo.types import (
    Batch,
    Collected,
    Columns,
    Finish,
    LabelledBatch,
    Mean,
    Message,
    Minibatch,
    Peak,
    Problem,
    Prompt,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    ScoredRollout,
    Total,
    Update,
    Weights,
)

RIGHT, WRONG = "yes", "no"


def problem(name: str, question: str = "?") -> Problem:
    """A problem that only the reply `yes` solves."""
    return Problem(id=name, messages=(Message(role="user", content=question),), answer=RIGHT)


def problems(count: int) -> list[Problem]:
    """`p0`, `p1`, ..."""
    return [problem(f"p{number}") for number in range(count)]


def render(asked: Problem) -> Prompt:
    """One token a character of the question."""
    text = asked.messages[0].content
    return Prompt(problem=asked, text=text, token_ids=tuple(ord(character) for character in text))


def rollout(
    text: str = RIGHT,
    *,
    length: int | None = None,
    finish: Finish = Finish.STOP,
    version: int = 0,
    logprob: float = -0.5,
) -> Rollout:
    """A reply of `length` tokens; by default one a character."""
    count = len(text) if length is None else length
    return Rollout(
        token_ids=tuple(range(1, count + 1)),
        mask=(True,) * count,
        logprobs=(logprob,) * count,
        text=text,
        finish=finish,
        policy_version=version,
    )


def scored(
    reward: float, *, length: int = 1, finish: Finish = Finish.STOP, correct: bool | None = None, version: int = 0
) -> ScoredRollout:
    """A scored reply; it is correct if its reward is above 0, unless `correct` says otherwise."""
    is_right = reward > 0 if correct is None else correct
    return ScoredRollout(
        rollout=rollout(RIGHT if is_right else WRONG, length=length, finish=finish, version=version),
        score=Score(correct=is_right, reward=1.0 if is_right else -1.0, extracted=RIGHT if is_right else None),
        parts={"correctness": reward},
    )


def scored_group(*replies: ScoredRollout, name: str = "p0") -> ScoredGroup:
    return ScoredGroup(prompt=render(problem(name)), rollouts=replies)


class FakeTask:
    """A reply is right if its text is the answer. Remembers which replies it has scored."""

    def __init__(self, train: Sequence[Problem] = (), held_out: Sequence[Problem] = ()) -> None:
        self._train = train
        self._held_out = held_out
        self.seen: list[tuple[str, str]] = []

    def train_problems(self) -> Sequence[Problem]:
        return self._train

    def held_out_problems(self) -> Sequence[Problem]:
        return self._held_out

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        self.seen.append((problem.id, rollout.text))
        right = rollout.text == problem.answer
        return Score(correct=right, reward=1.0 if right else -1.0, extracted=rollout.text)


def engine_of(patterns: Mapping[str, str] | Callable[[str], str]) -> FakeEngine:
    """An engine that answers the problem `p0` by its pattern: `+` is a right reply, `-` a wrong one."""
    pattern_of = patterns if callable(patterns) else patterns.__getitem__
    return FakeEngine(lambda prompt, index: RIGHT if pattern_of(prompt.problem.id)[index] == "+" else WRONG)


class LateFirstEngine(FakeEngine):
    """The sooner a group is asked for, the later it is done."""

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        group = await super().sample(prompt, n, sampling, seed)
        for _ in range(max(0, 200 - 2 * len(self.calls))):
            await asyncio.sleep(0)
        self.finished = [*getattr(self, "finished", []), prompt.problem.id]
        return group


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSnapshot:
    """A version, as a file."""

    version: int
    num_bytes: int = 2

    def write(self, folder: Path) -> None:
        (folder / "policy.txt").write_text(f"{self.version}\n", encoding="utf-8")


class FakeTrainer:
    """Counts updates and keeps what it was given. `rate(update)` is the learning rate that it reports."""

    def __init__(self, rate: Callable[[int], float] = lambda update: 1.0) -> None:
        self._rate = rate
        self.version = 0
        self.minibatches: list[Minibatch] = []
        self.rates: list[float] = []
        self.asked: list[frozenset[str]] = []
        self.is_closed = False

    @property
    def precision(self) -> str:
        return "float32"

    def annotate(self, batch: Batch | Minibatch, needs: frozenset[str]) -> Columns:
        self.asked.append(needs)
        return {name: torch.full_like(batch.sampled_logprobs_BT, -0.25) for name in needs}

    def step(self, minibatch: Minibatch) -> Update:
        rate = self._rate(self.version)
        self.rates.append(rate)
        self.minibatches.append(minibatch)
        self.version += 1
        return Update(
            policy_version=self.version,
            stats={
                "optim/lr": Peak(value=rate),
                "optim/updates": Peak(value=self.version),
                "optim/loss": Mean(total=0.5, count=1),
                "tokens/trained": Total(value=float(minibatch.trained_BT.sum())),
            },
        )

    def publish(self) -> Weights:
        return Weights(policy_version=self.version, source={"weight": torch.tensor([float(self.version)])})

    def snapshot(self) -> FakeSnapshot:
        return FakeSnapshot(version=self.version)

    def save(self, folder: Path) -> None:
        self.snapshot().write(folder)

    def restore(self, folder: Path) -> None:
        self.version = int((folder / "policy.txt").read_text(encoding="utf-8"))

    def close(self) -> None:
        self.is_closed = True


class FakeTokenizer:
    """A tokenizer that can be saved and no more."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}\n", encoding="utf-8")


class FakeRecorder:
    """Keeps in lists what a run tells."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.notes: list[str] = []
        self.suspected: dict[int, tuple[int, ...]] = {}
        self.collected: dict[int, Collected] = {}
        self.labelled: dict[int, LabelledBatch | None] = {}
        self.numbers: dict[int, Mapping[str, float]] = {}
        self.saved: list[int] = []
        self.states: dict[int, Mapping[str, Any]] = {}

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def suspects(self, step: int, collected: Collected, labelled: LabelledBatch, rows: Sequence[int]) -> None:
        self.suspected[step] = tuple(rows)

    def groups(self, step: int, collected: Collected, labelled: LabelledBatch | None) -> None:
        assert step not in self.collected
        self.collected[step] = collected
        self.labelled[step] = labelled

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        assert step not in self.numbers
        self.numbers[step] = metrics

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        if step not in self.saved:
            self.saved.append(step)
            self.states[step] = state
