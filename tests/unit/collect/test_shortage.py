"""What is said of a step that found too few groups: the first thing to do is the one that helps."""

from __future__ import annotations

from typing import Any

import pytest

from dapo.collect.plan import CollectPlan
from dapo.collect.shortage import shortage
from dapo.types import Collected, Sampling, Total

WHERE = "algorithm.dynamic_sampling"


def said(*, generated: int, found: int, rounds: int = 1, right: int = 0, accuracy: float = 0.5, **plan: Any) -> str:
    """The words for a step that found some groups, the rest of which are all wrong but for `right`."""
    counts = {
        "generated": generated,
        "all_right": right,
        "all_wrong": generated - found - right,
        "error": 0,
        "carried_out": found,
    }
    stats = {f"sampling/groups_{name}": Total(value=float(count)) for name, count in counts.items()}
    stats |= {
        "sampling/rounds": Total(value=float(rounds)),
        "sampling/tokens_generated": Total(value=100.0 * generated),
    }
    stats |= {
        "reward/accuracy_all": Total(value=accuracy),
        "length/truncated": Total(value=0.0),
        "reward/errors": Total(value=0.0),
    }
    settings = {"groups": 8, "group_size": 4, "sampling": Sampling(max_tokens=8), "seed": 0, **plan}
    return shortage(Collected(groups=(), stats=stats), CollectPlan(**settings))


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ({"max_rounds": 1}, "max_rounds"),
        ({"max_rounds": 9, "max_groups": 8}, "max_groups"),
        ({"max_rounds": 9, "max_tokens": 800}, "max_tokens"),
    ],
)
@pytest.mark.parametrize("found", [2, 7])
def test_a_cap_that_ended_a_search_on_its_way_is_named_first(plan: dict[str, int], name: str, found: int) -> None:
    message = said(generated=8, found=found, **plan)
    assert message.endswith(
        f" Raise {WHERE}.{name}, which ended the search while it was finding groups, or choose {WHERE}.when_short = "
        '"carry_over" or "top_up".'
    )
    assert f"cap: {WHERE}.{name} = {plan[name]}" in message
    assert "group_size" not in message and "temperature" not in message


def test_many_found_groups_count_whatever_their_share_and_accuracy_are() -> None:
    assert f"Raise {WHERE}.max_rounds" in said(generated=80, found=6, max_rounds=10, rounds=10, accuracy=0.005)


def test_other_ways_to_go_on_leave_out_the_one_that_is_chosen() -> None:
    message = said(generated=8, found=4, max_rounds=1, when_short="top_up")
    assert message.endswith(f'{WHERE}.when_short = "train_partial" or "carry_over".')
    message = said(generated=8, found=4, max_rounds=1, when_short="error")
    assert message.endswith(f'{WHERE}.when_short = "train_partial", "carry_over" or "top_up".')


@pytest.mark.parametrize(("generated", "found", "max_rounds"), [(80, 0, 10), (80, 3, 10), (7, 3, 1)])
def test_where_few_groups_are_mixed_or_no_cap_ended_the_search_it_is_the_groups_that_must_change(
    generated: int, found: int, max_rounds: int
) -> None:
    message = said(generated=generated, found=found, max_rounds=max_rounds)
    assert message.endswith(
        "Raise batch.group_size or the temperature, so that a group holds both right and wrong replies."
    )


def test_one_is_said_as_one() -> None:
    message = said(generated=1, found=0, groups=1)
    assert message.startswith("None of 1 group of 4 replies had both right and wrong ones after 1 round (cap: ")
    assert f"{WHERE}.max_rounds = 1 of 1 group)" in message
    assert said(generated=8, found=1).startswith("Only 1 group of 8 that a step trains on had both")
    assert "after 2 rounds (" in said(generated=16, found=2, rounds=2, max_rounds=2)
    assert "of 8 groups)" in said(generated=16, found=2, rounds=2, max_rounds=2)
