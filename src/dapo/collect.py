"""Dynamic sampling: draw prompts until a step has its groups, and account for every group that was generated.

Consumes: prompts from the stream, replies from the engine, scores from the task. Waits for: the engine. Produces: one
Collected a step. Unblocked by: enough kept groups, the cap on rounds, or the end of the data.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dapo.algorithms.value import Algorithm
from dapo.errors import EngineError, NoSignalError
from dapo.ports import Engine, Task
from dapo.prompts import PromptStream
from dapo.seeds import derive_seed
from dapo.types import (
    Collected,
    Finish,
    JudgedGroup,
    Mean,
    Peak,
    Prompt,
    Reason,
    RolloutGroup,
    Sampling,
    ScoredGroup,
    ScoredRollout,
    Stat,
    Total,
)

SOLVED_ACCURACY = 0.99
"""From this share of right replies on, a step without a signal means that the task is solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPlan:
    """How much to collect. `max_rounds` caps generation rounds; each draws `oversample` times what is still wanted."""

    groups: int
    group_size: int
    sampling: Sampling
    seed: int
    max_rounds: int = 1
    oversample: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One group that was asked for: what came of it, and the seconds that scoring took."""

    judged: JudgedGroup
    grade_seconds: float
    failure: EngineError | None = None


async def collect(
    step: int, plan: CollectPlan, stream: PromptStream, engine: Engine, task: Task, algorithm: Algorithm
) -> Collected:
    """Collect the groups of one step. Every generated group is in the result, kept or not, in prompt order.

    What is kept beyond `plan.groups` is surplus; the groups that were drawn first stay, not those that ended first.
    There may be fewer groups than asked for, or none: see `no_signal`. Raises EngineError if
    a whole round fails and nothing was kept before it.
    """
    started = time.perf_counter()
    attempts: list[_Attempt] = []
    rounds = 0
    while rounds < plan.max_rounds:
        kept = sum(attempt.judged.reason is Reason.KEPT for attempt in attempts)
        prompts = stream.take(round_size(plan, generated=len(attempts), kept=kept))
        if not prompts:
            break
        rounds += 1
        first = len(attempts)
        numbered = [(f"{step}-{first + place:04d}", prompt) for place, prompt in enumerate(prompts)]
        made = await asyncio.gather(
            *(_attempt(name, prompt, plan, engine, task, algorithm) for name, prompt in numbered)
        )
        failures = [attempt.failure for attempt in made if attempt.failure is not None]
        if len(failures) == len(made) and kept == 0:
            raise failures[0]
        attempts.extend(made)
        if len(failures) == len(made):
            break  # what earlier rounds kept is not lost with an engine that fails now
    groups = _mark_surplus([attempt.judged for attempt in attempts], plan.groups)
    grading = sum(attempt.grade_seconds for attempt in attempts)
    stats = collected_stats(groups)
    stats["sampling/rounds"] = Total(value=rounds)
    stats["sampling/prompts_drawn"] = Peak(value=stream.position)
    stats["sampling/prompts_dropped"] = Peak(value=stream.num_dropped)
    stats["sampling/epoch"] = Peak(value=stream.epoch)
    stats["time/grade"] = Total(value=grading)
    stats["time/generate"] = Total(value=max(0.0, time.perf_counter() - started - grading))
    return Collected(groups=groups, stats=stats)


def round_size(plan: CollectPlan, *, generated: int, kept: int) -> int:
    """How many prompts to draw next: what is missing, times what the step has shown a kept group to cost.

    The first round takes `oversample` prompts for each group wanted. A later one takes as many as the share kept so far
    calls for, at most four times a step's groups, so that hard problems do not end in many small rounds.
    """
    missing = plan.groups - kept
    if missing <= 0:
        return 0
    cost = max(plan.oversample, generated / max(kept, 1)) if generated else plan.oversample
    return min(math.ceil(missing * cost), math.ceil(max(4.0, plan.oversample) * plan.groups))


async def _attempt(
    name: str, prompt: Prompt, plan: CollectPlan, engine: Engine, task: Task, algorithm: Algorithm
) -> _Attempt:
    try:
        group = await engine.sample(prompt, plan.group_size, plan.sampling, derive_seed(plan.seed, "rollout", name))
    except EngineError as failure:
        empty = ScoredGroup(prompt=prompt, rollouts=())
        return _Attempt(
            judged=JudgedGroup(name=name, group=empty, reason=Reason.ERROR), grade_seconds=0.0, failure=failure
        )
    started = time.perf_counter()
    scored = await score_group(group, task, algorithm)
    seconds = time.perf_counter() - started
    broken = any(item.rollout.finish is Finish.ERROR for item in scored.rollouts)
    reason = Reason.ERROR if broken else algorithm.judge(scored)
    return _Attempt(judged=JudgedGroup(name=name, group=scored, reason=reason), grade_seconds=seconds)


async def score_group(group: RolloutGroup, task: Task, algorithm: Algorithm) -> ScoredGroup:
    """Score every reply of a group; each reply keeps its own score, whatever order the scores come in."""
    scores = await asyncio.gather(*(task.score(group.prompt.problem, rollout) for rollout in group.rollouts))
    return ScoredGroup(
        prompt=group.prompt,
        rollouts=tuple(
            ScoredRollout(
                rollout=rollout, score=score, parts={"correctness": score.reward, **algorithm.penalise(rollout)}
            )
            for rollout, score in zip(group.rollouts, scores, strict=True)
        ),
    )


def _mark_surplus(groups: Sequence[JudgedGroup], wanted: int) -> tuple[JudgedGroup, ...]:
    marked, kept = [], 0
    for judged in groups:
        if judged.reason is Reason.KEPT:
            kept += 1
            judged = replace(judged, reason=Reason.SURPLUS) if kept > wanted else judged
        marked.append(judged)
    return tuple(marked)


def collected_stats(groups: Sequence[JudgedGroup]) -> dict[str, Stat]:
    """Count groups by outcome, and measure reward and length over all replies, before the filter."""
    replies = [scored for judged in groups for scored in judged.group.rollouts]
    kept = [scored for judged in groups if judged.reason is Reason.KEPT for scored in judged.group.rollouts]
    count = len(replies)
    rewards = [scored.reward for scored in replies]
    lengths = [scored.rollout.length for scored in replies]
    centre = sum(rewards) / count if count else 0.0
    by_reason = {reason: sum(judged.reason is reason for judged in groups) for reason in Reason}
    watched = [scored.score.disagrees for scored in replies if scored.score.disagrees is not None]
    disagreement = {"reward/disagreement": Mean(total=sum(watched), count=len(watched))} if watched else {}
    deviation = math.sqrt(sum((reward - centre) ** 2 for reward in rewards) / count) if count else 0.0
    return {
        "reward/mean": Mean(total=sum(rewards), count=count),
        "reward/std": Mean(total=deviation, count=1),
        "reward/accuracy_all": Mean(total=sum(scored.score.correct for scored in replies), count=count),
        "reward/accuracy_kept": Mean(total=sum(scored.score.correct for scored in kept), count=len(kept)),
        **disagreement,
        "reward/errors": Total(value=sum(scored.score.error is not None for scored in replies)),
        "length/mean": Mean(total=sum(lengths), count=count),
        "length/max": Peak(value=max(lengths, default=0)),
        "length/truncated": Mean(total=sum(scored.rollout.is_truncated for scored in replies), count=count),
        "sampling/groups_generated": Total(value=len(groups)),
        "sampling/groups_kept": Total(value=by_reason[Reason.KEPT]),
        "sampling/groups_all_right": Total(value=by_reason[Reason.ALL_RIGHT]),
        "sampling/groups_all_wrong": Total(value=by_reason[Reason.ALL_WRONG]),
        "sampling/groups_surplus": Total(value=by_reason[Reason.SURPLUS]),
        "sampling/groups_error": Total(value=by_reason[Reason.ERROR]),
        "sampling/tokens_generated": Total(value=sum(lengths)),
    }


def no_signal(collected: Collected, plan: CollectPlan) -> NoSignalError:
    """The error for a step of which no group was kept: what was seen, what it means, what to do."""
    stats = collected.stats
    accuracy, truncated = stats["reward/accuracy_all"].value, stats["length/truncated"].value
    groups = int(stats["sampling/groups_generated"].value)
    if accuracy >= SOLVED_ACCURACY:
        meaning = "The task is solved as far as its training problems show. Use harder problems to go on."
    elif accuracy <= 1 - SOLVED_ACCURACY:
        meaning = (
            "Nearly nothing is right. Read a few replies in the run folder's rollouts: is the answer there in a form that "
            "the reward does not read, or cut off by batch.max_tokens? Otherwise use easier problems or a stronger model."
        )
    else:
        meaning = "Raise batch.group_size or the temperature, so that a group holds both right and wrong replies."
    return NoSignalError(
        f"None of {groups} groups of {plan.group_size} replies had both right and wrong ones after "
        f"{int(stats['sampling/rounds'].value)} rounds (cap: algorithm.dynamic_sampling.max_rounds = {plan.max_rounds}): "
        f"{int(stats['sampling/groups_all_right'].value)} all right, {int(stats['sampling/groups_all_wrong'].value)} all "
        f"wrong; accuracy {accuracy:.1%}, {truncated:.1%} of the replies truncated. {meaning}",
        accuracy=accuracy,
    )
