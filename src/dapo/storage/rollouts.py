"""A generated group as a line of JSON, kept or not, with the reason."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dapo.algorithms.value import ADVANTAGES
from dapo.files import write_atomically
from dapo.jsonlines import to_json
from dapo.types import Collected, JudgedGroup, LabelledBatch, ScoredRollout


def rollout_lines(step: int, collected: Collected, labelled: LabelledBatch | None) -> list[dict[str, Any]]:
    """One object a group, in prompt order. A reply that was not trained on has advantage null."""
    advantages = _advantages(labelled)
    lines, row = [], 0
    for judged in collected.groups:
        kept = judged.reason.is_trained and labelled is not None
        size = len(judged.group.rollouts)
        own = advantages[row : row + size] if kept else [None] * size
        row += size if kept else 0
        lines.append(_group_line(step, judged, own, kept=kept))
    return lines


def suspect_lines(
    step: int, collected: Collected, labelled: LabelledBatch, rows: Sequence[int]
) -> list[dict[str, Any]]:
    """One object a reply at which a loss or gradient was not finite: its group, its place in it, its reward and text.

    `rows` are rows of the step's batch.
    """
    trained = [judged for judged in collected.groups if judged.reason.is_trained]
    owners = [(judged, place) for judged in trained for place in range(len(judged.group.rollouts))]
    advantages = _advantages(labelled)
    lines = []
    for row in rows:
        judged, place = owners[row]
        prompt = judged.group.prompt
        lines.append(
            {
                "step": step,
                "group": judged.name,
                "reply": place,
                "prompt_id": prompt.problem.id,
                "prompt": prompt.text,
                "policy_version": judged.group.rollouts[place].rollout.policy_version,
                **_reply(judged.group.rollouts[place], advantages[row]),
            }
        )
    return lines


def write_rollouts(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write one step's groups as gzip-compressed JSON lines, whole or not at all."""
    text = "".join(to_json(line) + "\n" for line in lines)
    write_atomically(path, gzip.compress(text.encode(), compresslevel=6, mtime=0))


def _advantages(labelled: LabelledBatch | None) -> list[float | None]:
    """The advantage of each row of the batch; null for a row of which no token trained."""
    if labelled is None:
        return []
    found: list[float | None] = []
    for trained_T, advantage_T in zip(labelled.trained_BT, labelled.columns[ADVANTAGES], strict=True):
        values = advantage_T[trained_T]
        found.append(float(values[0]) if values.numel() else None)
    return found


def _group_line(step: int, judged: JudgedGroup, advantages: Sequence[float | None], *, kept: bool) -> dict[str, Any]:
    prompt = judged.group.prompt
    versions = [scored.rollout.policy_version for scored in judged.group.rollouts]
    return {
        "step": step,
        "group": judged.name,
        "prompt_id": prompt.problem.id,
        "prompt": prompt.text,
        "gold": prompt.problem.answer,
        "policy_version": min(versions, default=None),
        "kept": kept,
        "reason": judged.reason.value,
        "replies": [
            _reply(scored, advantage) for scored, advantage in zip(judged.group.rollouts, advantages, strict=True)
        ],
    }


def _reply(scored: ScoredRollout, advantage: float | None) -> dict[str, Any]:
    rollout, score = scored.rollout, scored.score
    return {
        "text": rollout.text,
        "token_ids": list(rollout.token_ids),
        "logprobs": [round(logprob, 6) for logprob in rollout.logprobs],
        "finish": rollout.finish.value,
        "correct": score.correct,
        "extracted": score.extracted,
        "reward": dict(scored.parts),
        "total": scored.reward,
        "advantage": advantage,
        "trained": advantage is not None,
        **({"error": score.error} if score.error is not None else {}),
        **({"disagrees": score.disagrees} if score.disagrees is not None else {}),
    }
