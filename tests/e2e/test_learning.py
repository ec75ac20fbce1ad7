"""A tiny model learns an easy task through the command line, and the same seed learns it the same way."""

from __future__ import annotations

import pytest

from dapo.metrics import METRICS
from tests.e2e.conftest import Trained
from tests.e2e.workshop import STEPS, RunFiles, Workshop


def check_that_it_learned(files: RunFiles) -> None:
    metrics = files.metrics
    before, after = files.evaluations[0], files.evaluations[-1]
    accuracy = [line["reward/accuracy_all"] for line in metrics]
    assert accuracy[0] < 0.35
    assert sum(accuracy[-3:]) / 3 > 0.75
    assert metrics[-1]["reward/mean"] > metrics[0]["reward/mean"] + 0.8
    assert (before["step"], after["step"]) == (0, STEPS)
    assert before["avg"] < 0.3
    assert after["avg"] > 0.75
    assert after["ci_low"] > before["ci_high"]


def test_dapo_learns_an_easy_task(learned: Trained) -> None:
    check_that_it_learned(learned.files)
    assert [line["step"] for line in learned.files.metrics] == list(range(1, STEPS + 1))
    result = learned.ended.json
    assert result["ending"] == "finished"
    assert result["steps"] == STEPS
    assert (result["before"], result["after"]) == (learned.files.evaluations[0], learned.files.evaluations[-1])
    assert result["policy"].endswith(f"learned/checkpoints/step-{STEPS:06d}")
    assert result["report"].endswith("learned/report.html")


def test_grpo_learns_it_by_one_override_and_another_seed_is_another_run(shop: Workshop, six: RunFiles) -> None:
    shop.train("grpo", "algorithm.type=grpo", "seed=4")

    files = shop.run("grpo")
    check_that_it_learned(files)
    assert files.config["algorithm"]["type"] == "grpo"
    for line in files.metrics:  # no dynamic sampling: every group is generated once and kept
        assert line["sampling/groups_generated"] == line["sampling/groups_kept"] == 8
        assert line["sampling/rounds"] == 1
    first, other = six.rollouts(1)[:8], files.rollouts(1)
    assert [group["prompt"] for group in first] != [group["prompt"] for group in other]
    assert [group["replies"][0]["token_ids"] for group in first] != [
        group["replies"][0]["token_ids"] for group in other
    ]


def test_ppo_runs_with_its_critic_and_its_numbers_are_in_the_catalogue(shop: Workshop) -> None:
    shop.train("ppo", "algorithm.type=ppo", "steps=3", "evaluation.enabled=false")

    files = shop.run("ppo")
    assert len(files.metrics) == 3
    for line in files.metrics:
        assert {"value/loss", "value/explained_variance", "policy/ratio_max"} <= line.keys()
        assert line.keys() - METRICS.keys() == {"step"}
    assert (files.checkpoint(3) / "trainer" / "critic.safetensors").is_file()


def test_the_native_engine_learns_it_too(shop: Workshop) -> None:
    shop.train("native", "engine.type=native")

    check_that_it_learned(shop.run("native"))


def test_the_same_seed_gives_the_same_run(learned: Trained, six: RunFiles) -> None:
    """Also when one of the two runs evaluates in between and goes on for longer."""
    assert learned.files.steady_metrics[:6] == six.steady_metrics
    for step in range(1, 7):
        assert learned.files.rollouts(step) == six.rollouts(step)


@pytest.mark.parametrize("step", [1, STEPS])
def test_the_policy_is_off_by_the_updates_of_one_step_and_no_more(learned: Trained, step: int) -> None:
    line = learned.files.metrics[step - 1]

    assert line["optim/updates"] == 2 * step
    assert line["sampling/rounds"] >= 1
    assert {group["policy_version"] for group in learned.files.rollouts(step)} == {2 * (step - 1)}
    assert line["mismatch/kl"] < 1e-6
    assert line["mismatch/max_ratio"] < 1.001
