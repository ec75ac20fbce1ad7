"""The updates of one step: kept groups to a batch, old log-probabilities, labels, optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dapo.algorithms.value import ADVANTAGES, OLD_LOGPROBS, Algorithm
from dapo.batching import minibatch_rows, minibatches, pack
from dapo.errors import RunError
from dapo.ports import Trainer
from dapo.types import Batch, Collected, LabelledBatch, Mean, Minibatch, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What a step's updates came to. `suspects` are the rows of the batch at which a number was not finite."""

    labelled: LabelledBatch
    updates: tuple[Update, ...]
    suspects: tuple[int, ...]

    def skipped(self, before: int) -> tuple[int, int]:
        """Updates on end that were skipped: by the end of the step, and the most of them within it. `before` were
        skipped on end when it began."""
        in_a_row, most = before, 0
        for update in self.updates:
            in_a_row = in_a_row + 1 if update.is_skipped else 0
            most = max(most, in_a_row)
        return in_a_row, most


def learn(
    trainer: Trainer,
    algorithm: Algorithm,
    collected: Collected,
    *,
    version: int,
    updates: int,
    reuses_rollouts: bool,
    engine_is_old: bool,
) -> Learnt:
    """Make the optimizer steps of one rollout step. `version` is the policy's before them.

    reuses_rollouts: the ratio needs log-probabilities of the policy that sampled, recomputed by the trainer.
    engine_is_old: the engine's own serve as the old ones.
    """
    batch = pack(collected.kept)
    is_older_B = batch.version_B < version
    has_older = bool(is_older_B.any())
    needs = set(algorithm.needs) | ({OLD_LOGPROBS} if has_older else set())
    if engine_is_old:
        needs.discard(OLD_LOGPROBS)
    notes: Mapping[str, Tensor] = trainer.annotate(batch, frozenset(needs))
    labelled = algorithm.label(batch, {**notes, **_old_logprobs(batch, notes, is_older_B, engine_is_old=engine_is_old)})
    parts = minibatches(labelled, algorithm.weigh, updates)
    if reuses_rollouts and OLD_LOGPROBS not in labelled.columns:
        parts = _with_old_logprobs(trainer, parts)
    made: list[Update] = []
    suspects: list[int] = []
    for part, rows in zip(parts, minibatch_rows(labelled, updates), strict=True):
        update = trainer.step(part)
        made.append(update)
        if update.is_skipped:
            seen = update.suspect_rows or tuple(range(part.num_rows))
            suspects += [rows[row] for row in seen]
    return Learnt(labelled=labelled, updates=tuple(made), suspects=tuple(suspects))


def _with_old_logprobs(trainer: Trainer, parts: Sequence[Minibatch]) -> list[Minibatch]:
    """Give every optimizer step but the first the log-probabilities of the policy before the first.

    In the first they are those that its own pass computes, so none is made for them.
    """
    wanted = frozenset({OLD_LOGPROBS})
    later = [replace(part, columns={**part.columns, **trainer.annotate(part, wanted)}) for part in parts[1:]]
    return [*parts[:1], *later]


def _old_logprobs(
    batch: Batch, notes: Mapping[str, Tensor], is_older_B: Tensor, *, engine_is_old: bool
) -> dict[str, Tensor]:
    """The log-probabilities that the ratio divides by, where any are needed.

    A row that an older version wrote was drawn from that version, and only the engine's record of it is left: its ratio
    is the present policy over the one that sampled. What the trainer computes now would be the present policy's.
    """
    if engine_is_old:
        return {OLD_LOGPROBS: batch.sampled_logprobs_BT}
    if OLD_LOGPROBS not in notes:
        return {}
    return {OLD_LOGPROBS: torch.where(is_older_B.unsqueeze(1), batch.sampled_logprobs_BT, notes[OLD_LOGPROBS])}


def not_finite(step: int, skipped: int) -> RunError:
    """The error for too many skipped updates on end: what to look at and what to change."""
    return RunError(
        f"{skipped} updates on end were skipped, the last of them in step {step}, because the loss or a gradient was not "
        f"finite (limit: batch.max_skipped_in_a_row). The policy is as it was before them, and it is saved. Look at the "
        f"replies in nonfinite/step-{step:06d}.jsonl.gz of the run folder, at `optim/grad_norm` and `policy/ratio_max` of "
        "the steps before, and at rewards that are very large. Then go on with a lower trainer.learning_rate or with "
        'trainer.precision = "float32".'
    )


def mean_advantage(labelled: LabelledBatch) -> Mean:
    """Mean size of the advantage over the tokens that train."""
    advantages = labelled.columns[ADVANTAGES][labelled.trained_BT].abs()
    return Mean(total=float(advantages.sum()), count=float(advantages.numel()))
