"""Whole steps and training to an accuracy, against TRL."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environments import BENCH, ROOT, ensure, pinned
from benchmarks.options import Options
from benchmarks.processes import FailedRunError, ask_peer, ask_product, say, threads
from benchmarks.rows import Measured, first_window, steady
from benchmarks.tuning import best_settings
from benchmarks.workload import Workload, long_replies, prepared, quickstart

RULE = ROOT / "src/dapo/tasks/integers.py"
WARMUP = 1
PEER = f"TRL {pinned('trl', 'trl')} GRPOTrainer, loss_type dapo"
_BASE = {"dtype": "float32", "autocast": True, "checkpointing": False, "threads": threads()}
_NARROW = {"dtype": "bfloat16", "autocast": False, "other": "most updates of 1e-5 are lost in bfloat16 weights"}


def trl_request(work: Workload, *, updates: int, steps: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What benchmarks/peers/trl_step.py reads."""
    return {
        "model": work.model,
        "problems": list(work.problems),
        "lengths": work.lengths,
        "groups": len(work.lengths),
        "group_size": len(work.lengths[0]),
        "updates": updates,
        "steps": steps,
        "max_tokens": max(map(max, work.lengths)),
        "reward": "lot",
        "soft_overlong": False,
        "rule_file": str(RULE),
        "shuffle": False,
        "continuous": False,
        "target": 2.0,
        "window": 5,
        "cap_seconds": 3600.0,
        "learning_rate": 1e-5,
        "seed": 1,
        **settings,
    }


def product_request(work: Workload, *, updates: int, steps: int, **more: Any) -> dict[str, Any]:
    """What benchmarks/product/step.py reads."""
    base = {"problems": list(work.problems), "lengths": work.lengths, "updates": updates, "steps": steps}
    return base | {"timers": False} | more


def _variants(rows: int, *, quick: bool) -> list[dict[str, Any]]:
    """Micro-batches of all rows of an update and parts of it; one thread; bfloat16 weights."""
    sizes = sorted({max(1, rows // part) for part in (1, 2, 4)}, reverse=True)
    tried = [{"micro": size, **_BASE} for size in sizes]
    tried.append({"micro": sizes[0], **_BASE, "threads": 1})
    tried.append({"micro": sizes[0], **_BASE, **_NARROW})
    return tried[:: len(tried) - 1] if quick else tried


def _trl_seconds(work: Workload, updates: int, settings: Mapping[str, Any], steps: int) -> list[float]:
    answer = ask_peer("trl_step", "trl", trl_request(work, updates=updates, steps=steps, settings=settings))
    return steady(answer["seconds"], WARMUP)


def tuned_trl(name: str, work: Workload, updates: int, options: Options) -> tuple[Mapping[str, Any], list[str]]:
    """TRL's best settings for a row, and what was tried."""
    ensure("trl")
    return best_settings(
        f"{name}{options.suffix}",
        _variants(sum(map(len, work.lengths)) // updates, quick=options.quick),
        lambda one: _trl_seconds(work, updates, one, WARMUP + 1)[0],
        again=options.tune,
    )


def _against_trl(name: str, meaning: str, work: Workload, updates: int, options: Options) -> Measured:
    best, notes = tuned_trl(name, work, updates, options)
    steps = WARMUP + (1 if options.quick else 2)
    product: list[float] = []
    peer: list[float] = []
    for run in range(options.runs):
        say(f"  run {run + 1} of {options.runs}")
        made = ask_product("step", product_request(work, updates=updates, steps=steps))
        product.append(statistics.median(steady([step["time/step"] for step in made["steps"]], WARMUP)))
        peer.append(statistics.median(_trl_seconds(work, updates, best, steps)))
    widths = [len(problem["token_ids"]) for problem in work.problems]
    return Measured(
        name=name,
        meaning=meaning,
        peer_name=PEER,
        unit="seconds a step",
        product=product,
        peer=peer,
        ratio="peer/product",
        notes=[
            f"{len(work.lengths)} prompts of {min(widths)} to {max(widths)} tokens x {len(work.lengths[0])} replies, "
            f"{work.tokens} reply tokens, {updates} updates; every reply ends at the same length on both sides; no dynamic "
            "sampling; a reward drawn by lot from the text, so that every reply trains",
            "both: float32 weights and AdamW, bfloat16 in the passes; the first step of each run is not counted",
            *notes,
        ],
        details={"reply_tokens": work.tokens, "lengths": work.lengths},
    )


def step_quickstart_vs_trl(options: Options) -> Measured:
    """The quickstart's batch."""
    meaning = (
        "a whole step, quickstart batch: generation, reward, forward and backward, 2 updates, weights to the engine"
    )
    return _against_trl("step_quickstart_vs_trl", meaning, quickstart(quick=options.quick), 2, options)


def step_long_vs_trl(options: Options) -> Measured:
    """Long replies."""
    work = long_replies(quick=options.quick)
    mean = work.tokens / sum(map(len, work.lengths))
    meaning = f"a whole step, prompts of 200 tokens, 16 replies of 64 to 384 tokens (mean {mean:.0f}), 1 update"
    return _against_trl("step_long_vs_trl", meaning, work, 1, options)


TARGET, WINDOW = 0.6, 5


def time_to_60_vs_trl(options: Options) -> Measured:
    """Training until accuracy before the filter, mean of 5 steps, reaches 60%; at most 30 minutes a side."""
    target, cap = (0.0, 120.0) if options.quick else (TARGET, 1800.0)
    say("  product")
    mine = _train_product(target, cap)
    content = prepared()
    best, notes = tuned_trl("step_quickstart_vs_trl", quickstart(quick=options.quick), 2, options)
    groups = Workload(model=content["model"], problems=content["problems"], lengths=[[40] * 8] * 8)
    settings = {
        **best,
        "reward": "integer",
        "soft_overlong": True,
        "shuffle": True,
        "target": target,
        "window": WINDOW,
        "cap_seconds": cap,
        "lengths": None,
    }
    say("  TRL")
    answer = ask_peer("trl_step", "trl", trl_request(groups, updates=2, steps=1000, settings=settings))
    reached = first_window(answer["accuracies"], WINDOW, target)
    peer = sum(answer["seconds"][:reached])
    return Measured(
        name="time_to_60_vs_trl",
        meaning="training on the quickstart task until accuracy before the filter, mean of 5 steps, reaches 60%",
        peer_name=PEER,
        unit="seconds",
        product=[mine["seconds"]],
        peer=[peer],
        ratio="peer/product",
        notes=[
            "the recipe of the quickstart as it is (dynamic sampling on), without its evaluations; TRL with the same clip, "
            "learning rate, length punishment, rule for the answer and batch, on the same problems",
            "the sum of the steps' seconds, after loading",
            _told("product", mine["accuracies"], mine["reached"], cap),
            _told("TRL", answer["accuracies"], reached, cap),
            *notes,
        ],
        details={"product_accuracies": mine["accuracies"], "peer_accuracies": answer["accuracies"]},
    )


def _told(who: str, accuracies: list[float], reached: int | None, cap: float) -> str:
    if reached is None:
        return (
            f"{who} did not reach it within {cap / 60:.0f} minutes ({len(accuracies)} steps); its time is a lower bound"
        )
    return f"{who} reached it after {reached} steps"


def _train_product(target: float, cap: float) -> dict[str, Any]:
    """Run `dapo train` until its metrics reach the target, then interrupt it as a person would."""
    folder = BENCH / "work/time-to-60"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "dapo", "train", "recipes/quickstart.toml", "--run", str(folder)]
    overrides = ("steps=1000", "evaluation.enabled=false", "checkpoint.every=1000000")
    command += [part for override in overrides for part in ("-o", override)]
    log = BENCH / "work/time-to-60.log"
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        try:
            seconds, accuracies = _watch(process, folder / "metrics.jsonl", target, cap)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=300)
    if not accuracies:
        raise FailedRunError(f"dapo train made no step; its log is {log}")
    shutil.rmtree(folder, ignore_errors=True)
    reached = first_window(accuracies, WINDOW, target)
    return {"seconds": sum(seconds[:reached]), "accuracies": accuracies, "reached": reached}


def _watch(
    process: subprocess.Popen[bytes], metrics: Path, target: float, cap: float
) -> tuple[list[float], list[float]]:
    """Read the metrics as they are written, until the target, the limit or the end of the process."""
    seconds: list[float] = []
    accuracies: list[float] = []
    while process.poll() is None and sum(seconds) < cap and first_window(accuracies, WINDOW, target) is None:
        time.sleep(0.5)
        if not metrics.is_file():
            continue
        text = metrics.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        for line in lines[len(seconds) :]:
            seconds.append(line["time/step"])
            accuracies.append(line["reward/accuracy_all"])
            say(f"    product: step {line['step']} {seconds[-1]:.1f} s, accuracy {accuracies[-1]:.1%}")
    return seconds, accuracies
