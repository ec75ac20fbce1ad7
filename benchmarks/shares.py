"""Where a step's time and memory go: against the floor of each stage, and against the least memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import ask_product
from benchmarks.rows import Measured, steady
from benchmarks.steps import WARMUP, product_request
from benchmarks.workload import quickstart

UPDATES = 2


def train_vs_floor(options: Options) -> Measured:
    """Forward and backward against their matrix products alone, timed in turn in the same process."""
    work = quickstart(quick=options.quick)
    request = {"problems": list(work.problems), "lengths": work.lengths, "updates": UPDATES, "model": work.model}
    answer = ask_product("train", request | {"repeats": options.runs})
    return Measured(
        name="train_vs_floor",
        meaning="forward and backward, quickstart batch: share of what the matrix products alone would allow",
        peer_name="matrix products of the same shapes",
        unit="seconds",
        product=answer["seconds"],
        peer=answer["floor_seconds"],
        ratio="peer/product",
        notes=[
            f"floor: in bfloat16, {answer['rows']} rows (each prompt once) through the layers and {answer['head_rows']} reply "
            "tokens through the head: forward, gradients of the inputs and of the weights; what is computed again in the "
            "backward pass, attention and everything else is not in it",
        ],
        details={"seconds": answer["seconds"], "floor_seconds": answer["floor_seconds"]},
    )


def overhead_share(options: Options) -> Measured:
    """What of a step is neither generation, forward, backward nor optimizer."""
    work = quickstart(quick=options.quick)
    steps = WARMUP + (2 if options.quick else max(3, options.runs))
    parameters = count_parameters(Path(work.model) / "model.safetensors")
    request = product_request(work, updates=UPDATES, steps=steps, timers=True)
    answer = ask_product("step", request | {"model": work.model, "parameters": parameters})
    made = steady(answer["steps"], WARMUP)
    shares = [share_of_rest(step) for step in made]
    return Measured(
        name="overhead_share",
        meaning="share of a step that is neither generation, forward, backward nor optimizer (quickstart batch)",
        peer_name="the whole step",
        unit="share",
        product=shares,
        peer=[1.0] * len(shares),
        ratio="product/peer",
        notes=[
            "old log-probabilities count as forward, gradient clipping and the cast of new weights as optimizer; the rest is "
            "grading, batching, statistics, weights to the engine, files",
            "floors: for the passes as in the rows `generate_vs_floor` and `train_vs_floor`; for the optimizer AdamW on one "
            "flat tensor; for the rest one copy of the weights in bfloat16",
        ],
        details={"stages": stage_seconds(made), "floors": answer["floors"]},
    )


def share_of_rest(step: Mapping[str, Any]) -> float:
    """The part of `time/step` that no watched kind of work explains."""
    return float(1 - sum(step["watched"].values()) / step["time/step"])


def stage_seconds(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds of each kind of work, of the rest, and of the hand-over of weights within it."""
    kinds = {name: [step["watched"][name] for step in steps] for name in steps[0]["watched"]}
    kinds["rest"] = [step["time/step"] - sum(step["watched"].values()) for step in steps]
    kinds["of it: weights to the engine"] = [step["time/sync"] for step in steps]
    kinds["of it: grading"] = [step["time/grade"] for step in steps]
    kinds["step"] = [step["time/step"] for step in steps]
    return {name: round(sorted(values)[len(values) // 2], 4) for name, values in kinds.items()}


def memory_vs_state(options: Options) -> Measured:
    """Peak memory of a step against the least: weights, gradients and AdamW's two moments in float32."""
    work = quickstart(quick=options.quick)
    state = 16 * count_parameters(Path(work.model) / "model.safetensors") / 1e9
    peaks: list[float] = []
    bases: list[float] = []
    for _ in range(options.runs):
        answer = ask_product("step", product_request(work, updates=UPDATES, steps=WARMUP + 2))
        peaks.append(max(step["peak_gb"] for step in steady(answer["steps"], WARMUP)))
        bases.append(answer["baseline_gb"])
    held = [peak - base for peak, base in zip(peaks, bases, strict=True)]
    saving = {"activation_checkpointing": True, "micro_batch_tokens": 1024}
    answer = ask_product("step", product_request(work, updates=UPDATES, steps=WARMUP + 2, trainer=saving))
    least = max(step["peak_gb"] for step in steady(answer["steps"], WARMUP)) - answer["baseline_gb"]
    return Measured(
        name="memory_vs_state",
        meaning="peak resident memory of a step, less what the interpreter and its libraries hold before a model is loaded, "
        "against weights + gradients + optimizer state",
        peer_name="16 bytes a parameter",
        unit="GB",
        product=held,
        peer=[state] * len(held),
        ratio="product/peer",
        notes=[
            f"whole process: {max(peaks):.2f} GB, {max(peaks) / state:.2f} times the state; {max(bases):.2f} GB of it are the "
            "interpreter and its libraries",
            "the process also holds the engine: its bfloat16 weights and caches",
            f"with trainer.activation_checkpointing = true and micro_batch_tokens = 1024: {least:.2f} GB, {least / state:.2f} "
            "times the state",
        ],
        details={"peaks_gb": peaks, "baselines_gb": bases},
    )


def count_parameters(path: Path) -> int:
    """The numbers in a safetensors file, from its header."""
    with path.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
