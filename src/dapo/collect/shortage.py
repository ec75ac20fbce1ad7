"""What to say of a step that found too few groups to train on: what was seen, what it means, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dapo.collect.plan import CollectPlan, WhenShort
from dapo.errors import NoSignalError
from dapo.types import Collected, JudgedGroup, Reason

SOLVED_ACCURACY = 0.99
"""From this share of right replies on, a step without a signal means that the task is solved."""

_NAMED = 3
"""How many groups a message names for reading."""

_NEAR = 0.75
_HEALTHY_SHARE = 0.2
"""From this share of a step's groups, or of the generated ones, on, a cap that ended the search was too low."""

_WHERE = "algorithm.dynamic_sampling"

_CHOICES: tuple[WhenShort, ...] = ("train_partial", "carry_over", "top_up")

MAX_STEPS_WITHOUT_UPDATE = 5
"""So many steps on end may wait for more groups (`when_short = "carry_over"`); the next trains on what there is."""


def without_waiting(plan: CollectPlan) -> CollectPlan:
    """The plan of a step that may not wait any more."""
    return replace(plan, when_short="train_partial") if plan.when_short == "carry_over" else plan


def goes_on(collected: Collected, plan: CollectPlan, *, data_has_ended: bool) -> bool:
    """Whether a step trains on what it found or lets it wait for more; if not, the run ends with it."""
    if collected.kept:
        return len(collected.kept) >= plan.groups or plan.when_short != "error" or data_has_ended
    if collected.left.groups:
        return True
    return plan.when_short == "carry_over" and not data_has_ended and not looks_solved(collected)


def given_up(collected: Collected) -> Collected:
    """The groups of a step that is not made: none was trained on."""
    settled = [
        replace(judged, reason=Reason.SURPLUS) if judged.reason.is_trained else judged for judged in collected.groups
    ]
    return replace(collected, groups=tuple(settled))


def accuracy_of(collected: Collected) -> float:
    """Share of right replies among all that were generated in the step; 0 where there was none."""
    stat = collected.stats.get("reward/accuracy_all")
    return stat.value if stat is not None else 0.0


def looks_solved(collected: Collected) -> bool:
    """Whether next to every reply of the step was right."""
    return accuracy_of(collected) >= SOLVED_ACCURACY


def no_signal(collected: Collected, plan: CollectPlan) -> NoSignalError:
    """The error for a step that cannot go on."""
    return NoSignalError(shortage(collected, plan), accuracy=accuracy_of(collected))


def shortage(collected: Collected, plan: CollectPlan) -> str:
    """Say how many groups were all right, all wrong and truncated, why the search ended, and what to change."""
    count = {name: int(collected.stats[f"sampling/groups_{name}"].value) for name in _COUNTS}
    found = sum(judged.reason in (Reason.KEPT, Reason.CARRIED) for judged in collected.groups) + count["carried_out"]
    said = f"None of {_many(count['generated'], 'group')} of {plan.group_size} replies had both right and wrong ones"
    if found:
        said = f"Only {_many(found, 'group')} of {plan.groups} that a step trains on had both right and wrong replies"
    truncated = collected.stats["length/truncated"].value if "length/truncated" in collected.stats else 0.0
    errors = f", {count['error']} failed in the engine" if count["error"] else ""
    faults = int(collected.stats["reward/errors"].value) if "reward/errors" in collected.stats else 0
    scorer = (
        f" The scorer itself failed on {_many(faults, 'reply', 'replies')}: counted as wrong, see `error` there."
        if faults
        else ""
    )
    return (
        f"{said} after {_many(int(collected.stats['sampling/rounds'].value), 'round')} ({_cap(collected, plan)}): "
        f"{count['all_right']} all right, {count['all_wrong']} all wrong{errors}; accuracy "
        f"{accuracy_of(collected):.1%}, {truncated:.1%} of the replies truncated.{scorer} {_meaning(collected, plan, found)}"
    )


_COUNTS = ("generated", "all_right", "all_wrong", "error", "carried_out")


def _capped_by(collected: Collected, plan: CollectPlan) -> str | None:
    """The setting that ended the search; None where none did."""
    if plan.max_tokens is not None and collected.stats["sampling/tokens_generated"].value >= plan.max_tokens:
        return "max_tokens"
    generated = collected.stats["sampling/groups_generated"].value
    if plan.max_groups is not None and generated >= plan.max_groups:
        return "max_groups"
    return "max_rounds" if generated >= plan.most_groups else None


def _cap(collected: Collected, plan: CollectPlan) -> str:
    """What ended the search, in words."""
    name = _capped_by(collected, plan)
    if name is None:
        return "no more came: the data or the engine ended the search"
    value = {"max_tokens": plan.max_tokens, "max_groups": plan.max_groups, "max_rounds": plan.max_rounds}[name]
    size = f" of {_many(plan.round, 'group')}" if name == "max_rounds" else ""
    return f"cap: {_WHERE}.{name} = {value}{size}"


def _is_cap_too_low(collected: Collected, plan: CollectPlan, found: int) -> bool:
    """Whether a search that a cap ended was on its way: most groups were there, or a fair share of them was kept."""
    generated = max(1, int(collected.stats["sampling/groups_generated"].value))
    return found >= _NEAR * plan.groups or found >= _HEALTHY_SHARE * generated


def _meaning(collected: Collected, plan: CollectPlan, found: int) -> str:
    name = _capped_by(collected, plan)
    if name is not None and found and _is_cap_too_low(collected, plan, found):
        others = [f'"{choice}"' for choice in _CHOICES if choice != plan.when_short]
        return (
            f"Raise {_WHERE}.{name}, which ended the search while it was finding groups, or choose {_WHERE}.when_short = "
            f"{', '.join(others[:-1])} or {others[-1]}."
        )
    accuracy = accuracy_of(collected)
    if accuracy >= SOLVED_ACCURACY:
        return "The task is solved as far as its training problems show. Use harder problems to go on."
    if accuracy <= 1 - SOLVED_ACCURACY:
        return (
            f"Nearly nothing is right. Read a few replies in the run folder's rollouts{_examples(collected.groups)}: is the "
            "answer there in a form that the reward does not read, or cut off by batch.max_tokens? Otherwise use easier "
            "problems or a stronger model."
        )
    return "Raise batch.group_size or the temperature, so that a group holds both right and wrong replies."


def _examples(groups: Sequence[JudgedGroup]) -> str:
    names = [judged.name for judged in groups if judged.reason is Reason.ALL_WRONG][:_NAMED]
    return f" ({', '.join(names)})" if names else ""


def _many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: `1 round`, `2 rounds`."""
    return f"{count} {one if count == 1 else several or one + 's'}"
