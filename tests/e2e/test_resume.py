"""A run that was stopped goes on as if it had not been."""

from __future__ import annotations

import signal
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.e2e.conftest import Trained
from tests.e2e.workshop import STEPS, RunFiles, Workshop


def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Policy and optimizer state of a checkpoint."""
    return {
        f"{file.relative_to(checkpoint)}/{name}": tensor
        for file in sorted(checkpoint.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def test_three_steps_and_three_more_are_six_steps(shop: Workshop, six: RunFiles) -> None:
    shop.train("halves", "steps=3", "evaluation.enabled=false")
    files = shop.run("halves")
    assert files.checkpoints == ["step-000003"]

    shop.train("halves", "steps=6", "evaluation.enabled=false", resume=True)

    assert files.checkpoints == ["step-000005", "step-000006"]
    assert files.steady_metrics == six.steady_metrics
    for step in range(1, 7):
        assert files.rollouts(step) == six.rollouts(step)
    resumed, straight = tensors(files.checkpoint(6)), tensors(six.checkpoint(6))
    assert len(straight) > 60
    assert resumed.keys() == straight.keys()
    assert all(torch.equal(tensor, straight[name]) for name, tensor in resumed.items())
    assert files.config == six.config


def test_three_steps_and_three_more_are_six_steps_where_groups_are_carried_between_them(shop: Workshop) -> None:
    carrying = (
        "evaluation.enabled=false",
        "algorithm.dynamic_sampling.max_staleness=4",
        "algorithm.dynamic_sampling.oversample=4",
    )
    shop.train("carried-straight", "steps=6", *carrying)
    shop.train("carried-halves", "steps=3", *carrying)
    straight, files = shop.run("carried-straight"), shop.run("carried-halves")
    assert files.metrics[2]["sampling/groups_carried_out"] > 0

    shop.train("carried-halves", "steps=6", *carrying, resume=True)

    assert files.steady_metrics == straight.steady_metrics
    assert all(files.rollouts(step) == straight.rollouts(step) for step in range(1, 7))
    ours, theirs = tensors(files.checkpoint(6)), tensors(straight.checkpoint(6))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_ctrl_c_stops_the_run_cleanly_and_resume_goes_on(shop: Workshop, learned: Trained) -> None:
    made = check_that_it_stops_cleanly(shop, "interrupted", signal.SIGINT)
    files = shop.run("interrupted")

    again = shop.train("interrupted", f"steps={made + 2}", resume=True)

    assert again.json["ending"] == "finished"
    assert again.json["steps"] == made + 2
    assert [line["step"] for line in files.metrics] == list(range(1, made + 3))
    assert files.checkpoints == [f"step-{made:06d}", f"step-{made + 2:06d}"]
    assert files.config["steps"] == made + 2
    common = min(made + 2, STEPS)
    assert files.steady_metrics[:common] == learned.files.steady_metrics[:common]


def test_sigterm_stops_the_run_cleanly(shop: Workshop) -> None:
    check_that_it_stops_cleanly(shop, "terminated", signal.SIGTERM)


def check_that_it_stops_cleanly(shop: Workshop, name: str, number: signal.Signals) -> int:
    """Stop a run by a signal; return how many steps it made."""
    ended = shop.stop_train(name, number, "steps=100000")

    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert f"{number.name} received" in ended.err
    files = shop.run(name)
    made = len(files.metrics)
    assert made >= 2
    assert (ended.json["ending"], ended.json["steps"]) == ("stopped", made)
    assert files.checkpoints == [f"step-{made:06d}"]
    assert [line["step"] for line in files.metrics] == list(range(1, made + 1))
    assert len(list((files.folder / "rollouts").iterdir())) == made
    assert len(files.rollouts(made)) == files.metrics[-1]["sampling/groups_generated"]
    assert (files.folder / "report.html").is_file()
    return made
