"""All that goes from step to step beside the trainer's own state, as JSON and back, exact to the last bit.

A float is written with as many digits as it takes to read the same float again. A problem's `info` is not kept: only a
scorer looks at it, and these groups have been scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dapo.types import (
    Collected,
    Finish,
    Inherited,
    JudgedGroup,
    KeptShare,
    Mean,
    Message,
    Peak,
    Problem,
    Prompt,
    Reason,
    Rollout,
    Score,
    ScoredGroup,
    ScoredRollout,
    Stat,
    Stats,
    Total,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands between two steps.

    stream: the state of the prompt stream. inherited: what the last step left to the next. ahead: the next step's groups,
    where they were collected while the last one trained. skipped_in_a_row: updates on end that were skipped.
    steps_without_update: steps on end that made no update, waiting for more groups. short_in_a_row: steps on end that
    found too few groups; the first of them is told.
    """

    stream: Mapping[str, Any] = field(default_factory=dict)
    inherited: Inherited = field(default_factory=Inherited)
    ahead: Collected | None = None
    skipped_in_a_row: int = 0
    steps_without_update: int = 0
    short_in_a_row: int = 0

    def to_json(self) -> dict[str, Any]:
        """An object of plain JSON values; `pending` holds the groups that are not settled yet."""
        return {
            "stream": dict(self.stream),
            "pending": _groups(self.inherited.groups),
            "ahead": None if self.ahead is None else _collected(self.ahead),
            "counters": {
                "share": _share(self.inherited.share),
                "skipped_in_a_row": self.skipped_in_a_row,
                "steps_without_update": self.steps_without_update,
                "short_in_a_row": self.short_in_a_row,
            },
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Standing:
        """The standing that `to_json` wrote."""
        counters = state["counters"]
        return cls(
            stream=state["stream"],
            inherited=Inherited(groups=_read_groups(state["pending"]), share=KeptShare(**counters["share"])),
            ahead=None if state["ahead"] is None else _read_collected(state["ahead"]),
            skipped_in_a_row=counters["skipped_in_a_row"],
            steps_without_update=counters["steps_without_update"],
            short_in_a_row=counters["short_in_a_row"],
        )


def _share(share: KeptShare) -> dict[str, float]:
    return {"kept": share.kept, "judged": share.judged}


def _collected(collected: Collected) -> dict[str, Any]:
    return {
        "groups": _groups(collected.groups),
        "stats": {name: _stat(stat) for name, stat in collected.stats.items()},
        "left": {"groups": _groups(collected.left.groups), "share": _share(collected.left.share)},
    }


def _read_collected(state: Mapping[str, Any]) -> Collected:
    left = state["left"]
    return Collected(
        groups=_read_groups(state["groups"]),
        stats=_read_stats(state["stats"]),
        left=Inherited(groups=_read_groups(left["groups"]), share=KeptShare(**left["share"])),
    )


def _stat(stat: Stat) -> dict[str, Any]:
    if isinstance(stat, Mean):
        return {"type": "mean", "total": stat.total, "count": stat.count}
    return {"type": "peak" if isinstance(stat, Peak) else "total", "value": stat.value}


def _read_stats(state: Mapping[str, Any]) -> Stats:
    kinds = {"mean": Mean, "peak": Peak, "total": Total}
    return {
        name: kinds[stat["type"]](**{key: value for key, value in stat.items() if key != "type"})
        for name, stat in state.items()
    }


def _groups(groups: Sequence[JudgedGroup]) -> list[dict[str, Any]]:
    return [
        {
            "name": judged.name,
            "reason": judged.reason.value,
            "prompt": _prompt(judged.group.prompt),
            "replies": [_reply(scored) for scored in judged.group.rollouts],
        }
        for judged in groups
    ]


def _read_groups(state: Sequence[Mapping[str, Any]]) -> tuple[JudgedGroup, ...]:
    return tuple(
        JudgedGroup(
            name=one["name"],
            reason=Reason(one["reason"]),
            group=ScoredGroup(
                prompt=_read_prompt(one["prompt"]), rollouts=tuple(_read_reply(reply) for reply in one["replies"])
            ),
        )
        for one in state
    )


def _prompt(prompt: Prompt) -> dict[str, Any]:
    problem = prompt.problem
    return {
        "id": problem.id,
        "messages": [{"role": message.role, "content": message.content} for message in problem.messages],
        "answer": problem.answer,
        "text": prompt.text,
        "token_ids": list(prompt.token_ids),
    }


def _read_prompt(state: Mapping[str, Any]) -> Prompt:
    messages = tuple(Message(**message) for message in state["messages"])
    problem = Problem(id=state["id"], messages=messages, answer=state["answer"])
    return Prompt(problem=problem, text=state["text"], token_ids=tuple(state["token_ids"]))


def _reply(scored: ScoredRollout) -> dict[str, Any]:
    rollout, score = scored.rollout, scored.score
    return {
        "token_ids": list(rollout.token_ids),
        "mask": [int(is_written) for is_written in rollout.mask],
        "logprobs": list(rollout.logprobs),
        "text": rollout.text,
        "finish": rollout.finish.value,
        "policy_version": rollout.policy_version,
        "score": {
            "correct": score.correct,
            "reward": score.reward,
            "extracted": score.extracted,
            "error": score.error,
            "disagrees": score.disagrees,
        },
        "parts": dict(scored.parts),
    }


def _read_reply(state: Mapping[str, Any]) -> ScoredRollout:
    return ScoredRollout(
        rollout=Rollout(
            token_ids=tuple(state["token_ids"]),
            mask=tuple(bool(is_written) for is_written in state["mask"]),
            logprobs=tuple(state["logprobs"]),
            text=state["text"],
            finish=Finish(state["finish"]),
            policy_version=state["policy_version"],
        ),
        score=Score(**state["score"]),
        parts=state["parts"],
    )
