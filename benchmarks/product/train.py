"""Forward and backward passes of the product's trainer on one batch, in turn with the floor of the same work.

Reads {"problems", "lengths", "updates", "repeats", "model"}. Replies are random tokens, rewards alternate. What a trainer's
step does besides its update counts as forward and backward.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.product.exchange import say, serve
from benchmarks.product.floor import Floor, read_sizes, training_passes
from benchmarks.product.parts import make_prompts, recipe
from benchmarks.product.timers import Timers
from dapo.algorithms.value import OLD_LOGPROBS
from dapo.batching import minibatches, pack
from dapo.types import Finish, Rollout, Score, ScoredGroup, ScoredRollout


def make_groups(problems: Sequence[Mapping[str, Any]], lengths: Sequence[Sequence[int]]) -> list[ScoredGroup]:
    """Groups of random replies; every other one is right."""
    draw = random.Random(0)

    def reply(number: int, length: int) -> ScoredRollout:
        score = Score(correct=number % 2 == 0, reward=1.0 if number % 2 == 0 else -1.0)
        rollout = Rollout(
            token_ids=tuple(draw.randrange(1000, 40_000) for _ in range(length)),
            mask=(True,) * length,
            logprobs=(-1.0,) * length,
            text="",
            finish=Finish.STOP,
            policy_version=0,
        )
        return ScoredRollout(rollout=rollout, score=score, parts={"correctness": score.reward})

    prompts = make_prompts(problems)
    return [
        ScoredGroup(prompt=prompt, rollouts=tuple(reply(number, length) for number, length in enumerate(own)))
        for prompt, own in zip(prompts, lengths, strict=True)
    ]


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Time steps and floors in turn, after one step of each to warm up."""
    config = recipe()
    algorithm = config.algorithm.build(config.batch.max_tokens)
    trainer = config.trainer.build(config.model, algorithm, config.batch.temperature)
    batch = pack(make_groups(request["problems"], request["lengths"]))
    labelled = algorithm.label(batch, {OLD_LOGPROBS: batch.sampled_logprobs_BT})
    parts = minibatches(labelled, algorithm.weigh, request["updates"])
    budget = config.trainer.micro_batch_tokens
    passes = [
        one
        for part in parts
        for one in training_passes(sum(map(len, set(part.prompt_ids))), int(part.lengths_B.sum()), budget)
    ]
    floor = Floor(read_sizes(Path(request["model"])))
    timers = Timers()
    seconds, floors = [], []
    for repeat in range(request["repeats"] + 1):
        timers.reset()
        started = time.perf_counter()
        for part in parts:
            trainer.step(part)
        whole = time.perf_counter() - started
        seconds.append(whole - timers.seconds["optimizer"])
        floors.append(floor.training(passes))
        say(f"forward and backward {repeat}: {seconds[-1]:.2f} s, floor {floors[-1]:.2f} s")
    trainer.close()
    return {
        "seconds": seconds[1:],
        "floor_seconds": floors[1:],
        "rows": sum(one.rows for one in passes),
        "head_rows": sum(one.head_rows for one in passes),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__},
    }


if __name__ == "__main__":
    serve(work)
