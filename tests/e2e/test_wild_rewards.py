"""Whatever a scorer does, the process says so and ends, and the last complete step is saved."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.workshop import Workshop, furnish

# Sixteen problems, four samples each, are scored before training; a step scores 64 replies or more.
WILD = """
import asyncio, time

calls = 0


def late(problem):
    # Whether a step is complete: the evaluation before training has 64 replies and the first step at least as many.
    global calls
    calls += 1
    return calls > 64 + 8 * 64


async def exits(problem, reply):
    if late(problem):
        raise SystemExit(0)
    return reply[:1].isdigit()


async def interrupts(problem, reply):
    if late(problem):
        raise KeyboardInterrupt
    return reply[:1].isdigit()


async def cancels(problem, reply):
    if late(problem):
        raise asyncio.CancelledError
    return reply[:1].isdigit()


async def delegates(problem, reply):
    if problem.id.endswith("3"):
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 1e6)
    return reply[:1].isdigit()


async def blocks(problem, reply):
    if late(problem):
        time.sleep(1e6)
    return reply[:1].isdigit()


async def swallows(problem, reply):
    while late(problem):
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            pass
    return reply[:1].isdigit()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    (tmp_path / "wild.py").write_text(WILD, encoding="utf-8")
    return furnish(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"), [("exits", "SystemExit: 0"), ("interrupts", "KeyboardInterrupt"), ("cancels", "CancelledError")]
)
def test_a_reward_that_would_end_the_process_ends_the_run_in_words_and_the_last_step_is_saved(
    shop: Workshop, name: str, words: str
) -> None:
    ended = shop.train(name, f"task.reward=wild:{name}", "checkpoint.every=100", code=1)

    assert f"dapo: wild:{name} raised RuntimeError for problem" in ended.err and words in ended.err
    assert "Traceback" not in ended.err
    files = shop.run(name)
    steps = len(files.metrics)
    assert 0 < steps < 14
    assert files.checkpoints == [f"step-{steps:06d}"]


def test_work_that_a_reward_left_in_threads_does_not_keep_the_process(shop: Workshop) -> None:
    started = time.monotonic()
    ended = shop.train(
        "delegates", "task.reward=wild:delegates", "task.reward_seconds=1", "steps=1", "task.held_out=1", code=0
    )
    assert time.monotonic() - started < 60
    assert ended.json["steps"] == 1
    assert shop.run("delegates").metrics[0]["reward/errors"] > 0


@pytest.mark.parametrize("name", ["blocks", "swallows"])
def test_one_signal_ends_a_run_whose_reward_blocks_or_will_not_be_cancelled(shop: Workshop, name: str) -> None:
    process = shop.start("train", "recipe.toml", "--run", name, "--json", "-o", f"task.reward=wild:{name}")
    metrics, deadline = shop.folder / name / "metrics.jsonl", time.monotonic() + 60
    while not metrics.exists() or not metrics.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(3.0)  # until a later step hangs
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    files = shop.run(name)
    assert files.checkpoints[-1] == f"step-{len(files.metrics):06d}"
