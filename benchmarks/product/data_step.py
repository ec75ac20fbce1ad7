"""Small steps on a file of problems: how long opening it takes, and a step. Reads {"path", "steps"}."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import dapo.run
from benchmarks.product.exchange import serve
from benchmarks.product.parts import recipe
from dapo.jsonlines import read_json_lines


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Open the data alone, then make the steps as `dapo train` does."""
    config = recipe(
        steps=request["steps"],
        task={"type": "math", "data": request["path"]},
        algorithm={"dynamic_sampling": {"enabled": False}, "soft_overlong": {"enabled": False}},
        batch={
            "groups_per_step": 2,
            "group_size": 2,
            "updates_per_step": 1,
            "max_tokens": 8,
            "overlong_prompts": "drop",
        },
        evaluation={"enabled": False},
        checkpoint={"every": 1_000_000},
        report={"console": False},
    )
    started = time.perf_counter()
    count = len(config.task.build(config.seed).train_problems())
    opening = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        dapo.run.train_run(config, Path(folder) / "run")
        seconds = [line["time/step"] for line in read_json_lines(Path(folder) / "run/metrics.jsonl")]
    return {
        "seconds": seconds,
        "opening_seconds": opening,
        "problems": count,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__},
    }


if __name__ == "__main__":
    serve(work)
