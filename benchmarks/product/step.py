"""Whole training steps of the product on replies of given lengths: a run as `dapo train` makes it, read from its metrics.

Reads {"problems", "lengths", "updates", "steps", "trainer", "timers", "model"}; a step takes all problems. With
`timers` the floor of each stage is timed afterwards in the same process.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import dapo.run
from benchmarks.product.exchange import say, serve
from benchmarks.product.floor import (
    Floor,
    copy_seconds,
    decoding_passes,
    read_sizes,
    training_passes,
    update_seconds,
)
from benchmarks.product.forced import force_lengths
from benchmarks.product.memory import reset_peak, resident_gb
from benchmarks.product.parts import lengths_by_prompt, recipe
from benchmarks.product.timers import Timers
from dapo.config import RunConfig
from dapo.recorder import FolderRecorder


def make_config(request: Mapping[str, Any], problems: Path) -> RunConfig:
    """The quickstart without filter, length punishment and evaluation, on these problems, rewarded by lot."""
    lengths = request["lengths"]
    return recipe(
        steps=request["steps"],
        task={"type": "jsonl", "path": str(problems), "held_out": 0, "reward": "benchmarks.product.rewards:lot"},
        algorithm={"dynamic_sampling": {"enabled": False}, "soft_overlong": {"enabled": False}},
        batch={
            "groups_per_step": len(lengths),
            "group_size": len(lengths[0]),
            "updates_per_step": request["updates"],
            "max_tokens": max(map(max, lengths)),
            "max_prompt_tokens": 4096,
        },
        trainer=request.get("trainer", {}),
        evaluation={"enabled": False},
        checkpoint={"every": 1_000_000},
        report={"console": False},
    )


class Watch:
    """Is called at the end of every step, with the step's metrics."""

    def __init__(self, *, timers: bool) -> None:
        self.steps: list[dict[str, Any]] = []
        self._timers = Timers() if timers else None
        original = FolderRecorder.metrics

        def metrics(recorder: FolderRecorder, step: int, values: Mapping[str, float]) -> None:
            original(recorder, step, values)
            self._end(step, values)

        FolderRecorder.metrics = metrics  # type: ignore[method-assign,assignment]

    def _end(self, step: int, values: Mapping[str, float]) -> None:
        watched = self._timers.reset() if self._timers else {}
        kept = {name: values[name] for name in values if name.startswith(("time/", "tokens/", "sampling/tokens"))}
        self.steps.append({"peak_gb": resident_gb(peak=True), "watched": watched, **kept})
        reset_peak()
        say(f"step {step} {values['time/step']:.2f} s")


def stage_floors(request: Mapping[str, Any], micro_batch_tokens: int) -> dict[str, float]:
    """Seconds of each stage's least work; a stage is named as its watch is."""
    prompts = [len(one["token_ids"]) for one in request["problems"]]
    replies = [sum(own) for own in request["lengths"]]
    updates, each = request["updates"], len(prompts) // request["updates"]
    passes = [
        one
        for start in range(0, each * updates, each)
        for one in training_passes(
            sum(prompts[start : start + each]), sum(replies[start : start + each]), micro_batch_tokens
        )
    ]
    floor = Floor(read_sizes(Path(request["model"])))
    forward = floor.forward(passes)
    flat = [length for own in request["lengths"] for length in own]
    parameters = request["parameters"]
    return {
        "generate": floor.forward(decoding_passes(sum(prompts), len(prompts), flat)),
        "old_logprobs": forward if updates > 1 else 0.0,
        "forward": forward,
        "backward": floor.backward(passes),
        "optimizer": updates * update_seconds(parameters),
        "rest": copy_seconds(parameters),
    }


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the steps and read what they took."""
    torch.ones(8, 8) @ torch.ones(8, 8)
    baseline = resident_gb()
    force_lengths(lengths_by_prompt(request["problems"], request["lengths"]))
    watch = Watch(timers=request["timers"])
    with tempfile.TemporaryDirectory() as folder:
        problems = Path(folder) / "problems.jsonl"
        lines = [{"id": one["id"], "prompt": one["messages"], "answer": one["answer"]} for one in request["problems"]]
        problems.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        config = make_config(request, problems)
        dapo.run.train_run(config, Path(folder) / "run")
    wanted = sum(map(sum, request["lengths"]))
    written = [step["sampling/tokens_generated"] for step in watch.steps]
    assert written == [wanted] * request["steps"], f"{written} tokens were written a step, not {wanted}"
    unseen = [kind for kind, seconds in watch.steps[-1]["watched"].items() if seconds == 0.0]
    assert not unseen, f"nothing was seen of {unseen}: benchmarks/product/timers.py watches functions that do not run"
    return {
        "steps": watch.steps,
        "floors": stage_floors(request, config.trainer.micro_batch_tokens) if request["timers"] else {},
        "baseline_gb": baseline,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__},
    }


if __name__ == "__main__":
    serve(work)
