"""One step: what earlier steps left, what was generated, and who is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dapo.algorithms.value import Algorithm
from dapo.collect.attempts import Attempt, Scorer, Stopwatch, attempt
from dapo.collect.handover import Handover
from dapo.collect.ledger import Groups, Ledger
from dapo.collect.plan import CollectPlan
from dapo.collect.streaming import Prefix, stream_groups
from dapo.ports import Engine, Task
from dapo.prompts import PromptStream
from dapo.types import Collected, Inherited, JudgedGroup, Peak, Prompt, Reason, Stat, Total


async def collect(
    step: int,
    plan: CollectPlan,
    stream: PromptStream,
    engine: Engine,
    task: Task,
    algorithm: Algorithm,
    *,
    inherited: Inherited | None = None,
    version: int = 0,
) -> Collected:
    """Collect the groups of one step. Each group is settled with its reason or left to the next step, and none is both.

    `inherited` is what the step before left; its groups come first, unless they are more than `plan.max_staleness` updates
    older than `version`, the policy version that will train on the step. The rest is generated; those that were drawn
    first stay, not those that ended first. What is kept beyond `plan.groups` is left to the next step where it can still
    be used there, and else is surplus. No step is treated as the last one, so that a run can go on from where it ended as
    if it never had. There may be fewer groups than asked for,
    or none: see `no_signal`. Raises EngineError if the engine fails throughout and there is nothing to train on.
    """
    inherited = inherited or Inherited()
    usable, stale = _by_age(inherited.groups, version, plan.max_staleness)
    watch, scorer = Stopwatch(), Scorer(task, plan.scoring_seconds)
    handover = Handover(engine, plan.judging_seconds)

    async def make(number: int, prompt: Prompt) -> Attempt:
        return await attempt(f"{step}-{number:04d}", prompt, plan, engine, scorer, algorithm, watch, handover)

    prefix = Prefix(plan, inherited.share, wanted=max(0, plan.groups - len(usable)))
    attempts = await stream_groups(prefix, stream, make, handover)
    generated = [one.judged for one in attempts]
    kept = sum(judged.reason is Reason.KEPT for judged in generated)
    failures = [one.failure for one in attempts if one.failure is not None]
    if failures and kept + len(usable) == 0 and (prefix.engine_is_down or len(failures) == len(attempts)):
        raise failures[0]
    effort = _effort(plan, stream, watch, len(attempts))
    for judged in generated:
        if judged.reason is not Reason.ERROR:
            size = len(judged.group.rollouts)
            stream.observe(judged.group.prompt.problem.id, correct=judged.group.num_correct, size=size)
    ledger = _settle(plan, generated, usable, stale, may_wait=not stream.is_exhausted)
    return Collected(
        groups=ledger.settled,
        stats=ledger.stats() | effort,
        left=Inherited(groups=ledger.left, share=inherited.share.after(kept, len(generated))),
    )


def written_at(judged: JudgedGroup) -> int:
    """The oldest policy version that wrote one of a group's replies."""
    return min(scored.rollout.policy_version for scored in judged.group.rollouts)


def _by_age(groups: Sequence[JudgedGroup], version: int, most: int) -> tuple[Groups, Groups]:
    """Part carried groups into those that may still train and those that are stale."""
    usable = tuple(judged for judged in groups if version - written_at(judged) <= most)
    too_old = [judged for judged in groups if version - written_at(judged) > most]
    return usable, tuple(replace(judged, reason=Reason.STALE) for judged in too_old)


def _settle(
    plan: CollectPlan,
    generated: Sequence[JudgedGroup],
    usable: Groups,
    stale: Groups,
    *,
    may_wait: bool,
) -> Ledger:
    """Say of each group what becomes of it."""
    available = len(usable) + sum(judged.reason is Reason.KEPT for judged in generated)
    if available < plan.groups and plan.when_short == "carry_over" and may_wait:
        waiting = tuple(judged for judged in generated if judged.reason is Reason.KEPT)
        dropped = tuple(judged for judged in generated if judged.reason is not Reason.KEPT)
        return Ledger(new=dropped, old=stale, new_left=waiting, old_left=usable)
    if plan.when_short == "top_up" and available > 0:  # a step of nothing else would be one of weight decay alone
        generated = _topped_up(generated, plan.groups - available)
    carries = plan.max_staleness > 0
    chosen = tuple(replace(judged, reason=Reason.CARRIED) for judged in usable[: plan.groups])
    later = usable[plan.groups :]
    room = plan.groups - len(chosen)
    new: list[JudgedGroup] = []
    new_left: list[JudgedGroup] = []
    for judged in generated:
        if not judged.reason.is_trained or room > 0:
            new.append(judged)
            room -= judged.reason.is_trained
        elif carries:
            new_left.append(judged)
        else:
            new.append(replace(judged, reason=Reason.SURPLUS))
    if not carries:
        chosen, later = chosen + tuple(replace(judged, reason=Reason.SURPLUS) for judged in later), ()
    return Ledger(new=tuple(new), old=stale + chosen, new_left=tuple(new_left), old_left=later)


def _topped_up(generated: Sequence[JudgedGroup], missing: int) -> list[JudgedGroup]:
    """Let the first groups without a signal fill a step that is short. Their advantage is 0."""
    filled = []
    for judged in generated:
        if missing > 0 and judged.reason in (Reason.ALL_RIGHT, Reason.ALL_WRONG):
            missing -= 1
            judged = replace(judged, reason=Reason.TOP_UP)
        filled.append(judged)
    return filled


def _effort(plan: CollectPlan, stream: PromptStream, watch: Stopwatch, groups: int) -> dict[str, Stat]:
    grading = watch.grading_alone
    return {
        "sampling/rounds": Total(value=-(-groups // plan.round)),
        "sampling/prompts_drawn": Peak(value=stream.position),
        "sampling/prompts_dropped": Peak(value=stream.num_dropped),
        "sampling/epoch": Peak(value=stream.epoch),
        "time/grade": Total(value=grading),
        "time/grade_all": Total(value=watch.grading_in_all),
        "time/generate": Total(value=max(0.0, watch.elapsed - grading)),
        **stream.stats(),
    }
