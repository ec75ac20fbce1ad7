"""The four seams. The loop knows these Protocols and no implementation.

| seam     | what it hides                           | implementations        |
|----------|-----------------------------------------|------------------------|
| Task     | problems and how a reply is scored      | `dapo.tasks`           |
| Engine   | how tokens are drawn from the policy    | `dapo.engines`         |
| Trainer  | model, optimizer and the only backward  | `dapo.trainers`        |
| Reporter | where numbers go                        | `dapo.reporting`       |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from dapo.types import (
    Batch,
    Columns,
    Minibatch,
    Problem,
    Prompt,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    Update,
    Weights,
)


@runtime_checkable
class Task(Protocol):
    """Problems to learn from, problems to be judged by, and the rule that judges."""

    def train_problems(self) -> Sequence[Problem]:
        """The problems of one epoch. Any sequence: items may be made or read when asked for."""
        ...

    def held_out_problems(self) -> Sequence[Problem]:
        """Problems for evaluation; none of them is among `train_problems`."""
        ...

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        """Judge one reply. A fault of the scorer is returned as `Score.error`, not raised."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Draws replies from one version of the policy."""

    @property
    def precision(self) -> str:
        """What it computes in, e.g. `bfloat16`: whether its log-probabilities can equal the trainer's."""
        ...

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        """Draw `n` replies to `prompt`. The same seed and weights give the same replies. Raises EngineError."""
        ...

    async def load(self, weights: Weights) -> None:
        """Take over a version of the policy; the version counts as loaded only when all of it is."""
        ...

    async def close(self) -> None:
        """Free what is held. Calls that wait end with an EngineError."""
        ...


@runtime_checkable
class Pausable(Protocol):
    """An engine that can be made to wait between two steps of generation. Not every engine is one.

    What such an engine computes together, and with it the last bits of what it computes, may depend on when requests come.
    """

    def pause(self) -> None:
        """Begin no further step until `go_on`. A step that is being made ends; `close` ends the pause too."""
        ...

    def go_on(self) -> None:
        """End the pause, if there is one."""
        ...


@runtime_checkable
class Snapshot(Protocol):
    """A copy of a trainer's state, which training does not touch any more; the trainer's next snapshot may."""

    @property
    def num_bytes(self) -> int:
        """What it will take on the disk, about."""
        ...

    def write(self, folder: Path) -> None:
        """Write the policy in Hugging Face format, and all that `Trainer.restore` needs, into `folder`."""
        ...


@runtime_checkable
class Trainer(Protocol):
    """Owns the policy that is trained."""

    @property
    def precision(self) -> str:
        """What its passes through the model compute in, e.g. `bfloat16`."""
        ...

    def annotate(self, batch: Batch | Minibatch, needs: frozenset[str]) -> Columns:
        """Columns that only the trainer can compute (e.g. `old_logprobs`), each [B, T], under the present policy."""
        ...

    def step(self, minibatch: Minibatch) -> Update:
        """Make exactly one optimizer step."""
        ...

    def publish(self) -> Weights:
        """The present policy, for an engine to load."""
        ...

    def snapshot(self) -> Snapshot:
        """Copy the present state, so that it can be written while training goes on."""
        ...

    def save(self, folder: Path) -> None:
        """Write a snapshot of the present state into `folder`."""
        ...

    def restore(self, folder: Path) -> None:
        """Take back the state that a snapshot wrote. Raises RequestError or RunError, and says what does not fit."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


@runtime_checkable
class Reporter(Protocol):
    """Takes the numbers of a step to a file, a screen or a tracker."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report one step."""
        ...

    def close(self) -> None:
        """Flush and free."""
        ...
