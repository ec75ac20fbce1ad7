"""A run folder as a run leaves it, made up: fifteen steps that learn."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS_OF_A_STEP = {"reward/std": 0.9, "sampling/rounds": 2, "memory/peak_gb": 3.1}


def write_lines(path: Path, lines: list[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_groups(folder: Path, step: int, groups: list[Mapping[str, Any]]) -> Path:
    path = folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(group) + "\n" for group in groups)
    return path


def reply(text: str, *, correct: bool, extracted: str | None = None, finish: str = "stop") -> dict[str, Any]:
    overlong = -0.25 if finish == "length" else 0.0
    correctness = 1.0 if correct else -1.0
    return {
        "text": text,
        "token_ids": [7] * (len(text) // 4 + 1),
        "logprobs": [-0.1] * (len(text) // 4 + 1),
        "finish": finish,
        "correct": correct,
        "extracted": extracted,
        "reward": {"correctness": correctness, "overlong": overlong},
        "total": correctness + overlong,
        "advantage": 0.83 if correct else -0.62,
        "trained": True,
    }


def group(step: int, number: int, replies: list[dict[str, Any]], *, reason: str = "kept") -> dict[str, Any]:
    return {
        "step": step,
        "group": f"{step}-{number:04d}",
        "prompt_id": f"mul-{number}",
        "prompt": "<|im_start|>user\nWhat is 15 * 4? Answer with just the number.<|im_end|>\n<|im_start|>assistant\n",
        "gold": "60",
        "policy_version": step,
        "kept": reason == "kept",
        "reason": reason,
        "replies": replies,
    }


def step_metrics(step: int) -> dict[str, Any]:
    wave = math.sin(step * 2.1)
    accuracy = 0.09 + 0.031 * step + 0.03 * wave
    return {
        "step": step,
        **METRICS_OF_A_STEP,
        "reward/mean": 2 * accuracy - 1,
        "reward/accuracy_all": accuracy,
        "reward/accuracy_kept": 0.35 + 0.01 * step + 0.04 * wave,
        "length/mean": 11 - 0.3 * step + wave,
        "length/max": 40 if step < 9 else 28 + 3 * wave,
        "length/truncated": max(0.0, 0.06 - 0.006 * step),
        "policy/entropy": 2.0 - 0.08 * step + 0.1 * wave,
        "policy/prob_mean": 0.55 + 0.02 * step,
        "policy/clip_low": 0.0012 + 0.0004 * wave,
        "policy/clip_high": 0.0031 + 0.001 * wave,
        "policy/clip_dual": 0.0,
        "optim/grad_norm": 0.9 + 0.3 * wave,
        "optim/updates": 2 * step,
        "optim/lr": 1e-5,
        "optim/loss": 0.01 * wave,
        "sampling/groups_generated": 24,
        "sampling/groups_kept": 8,
        "sampling/groups_all_right": step // 3,
        "sampling/groups_all_wrong": 14 - step // 3,
        "sampling/groups_surplus": 2,
        "sampling/groups_error": 0,
        "sampling/tokens_generated": 2100 - 20 * step,
        "tokens/trained": 720 - 8 * step,
        "time/step": 42 + 3 * wave,
        "time/generate": 22 + 2 * wave,
        "time/grade": 0.4,
        "time/train": 17 + wave,
        "time/sync": 0.9,
        "time/save": 1.5 if step % 5 == 0 else 0.0,
        "mismatch/kl": 0.0008 + 0.0002 * wave,
    }


def evaluation(step: int) -> dict[str, Any]:
    average = 0.094 + 0.028 * step
    return {
        "step": step,
        "data": "arithmetic",
        "problems": 100,
        "samples": 4,
        "avg": average,
        "ci_low": average - 0.04,
        "ci_high": average + 0.045,
        "pass_at": {"1": average, "4": min(1.0, average + 0.2)},
        "maj": average + 0.03,
        "truncated": 0.01,
        "length_mean": 10.4,
        "temperature": 1.0,
        "seconds": 12.5,
    }


def make_run(folder: Path, *, steps: int = 15) -> Path:
    """Write a run folder with an evaluation every five steps and a few groups a step."""
    folder.mkdir(parents=True)
    config = {
        "algorithm": {"type": "dapo", "clip_low": 0.2, "clip_high": 0.28},
        "model": {"path": "SmolLM2-135M-Instruct"},
        "task": {"type": "arithmetic"},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_lines(folder / "metrics.jsonl", [step_metrics(step) for step in range(1, steps + 1)])
    write_lines(folder / "eval.jsonl", [evaluation(step) for step in range(0, steps + 1, 5)])
    for step in range(1, steps + 1):
        right = reply("15 * 4 = 60", correct=True, extracted="60")
        wrong = reply("The answer is 45.", correct=False, extracted="45")
        long = reply("15 and 4 and 15 and 4 " * 6, correct=False, finish="length")
        dropped = group(step, 0, [wrong, wrong], reason="all_wrong")
        write_groups(folder, step, [dropped, group(step, 1, [right, wrong, right, long, wrong, wrong, right, wrong])])
    return folder
