"""A run that draws prompts by what it remembers of them, through the command line."""

from __future__ import annotations

import json

from tests.e2e.workshop import Workshop

MEMORY = ("prompt_memory.enabled=true", "evaluation.enabled=false", "checkpoint.every=1")


def test_a_run_with_a_memory_of_prompts_resumes_as_if_it_had_not_stopped(shop: Workshop) -> None:
    shop.train("remembers", *MEMORY, "steps=6")
    shop.train("forgot-nothing", *MEMORY, "steps=4")
    shop.train("forgot-nothing", *MEMORY, "steps=6", resume=True)

    straight, resumed = shop.run("remembers"), shop.run("forgot-nothing")
    assert resumed.steady_metrics == straight.steady_metrics
    for step in range(1, 7):
        assert resumed.rollouts(step) == straight.rollouts(step)
    last = straight.metrics[-1]
    assert last["prompts/remembered"] > 8 and 0 < last["prompts/mean_mixed_chance"] < 1
    assert last["prompts/fresh"] <= last["sampling/groups_generated"]


def test_it_is_off_by_default_and_a_group_of_one_is_refused_with_it(shop: Workshop) -> None:
    shown = json.loads(shop.dapo("show", "recipe.toml", "--json").out)
    assert shown["config"]["prompt_memory"]["enabled"] is False
    ended = shop.train("one", *MEMORY, "algorithm.type=grpo", "batch.group_size=1", code=2)
    assert "prompt_memory.enabled = true and batch.group_size = 1" in ended.err
