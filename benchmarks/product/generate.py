"""The product's engine writes replies of given lengths; on request the floor of the same work is timed in turn with it.

Reads {"problems", "lengths", "repeats", "floor", "model"}.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.product.exchange import say, serve
from benchmarks.product.floor import Floor, decoding_passes, read_sizes
from benchmarks.product.forced import force_lengths
from benchmarks.product.parts import lengths_by_prompt, make_prompts, recipe
from dapo.models.load import open_renderer
from dapo.ports import Engine
from dapo.types import Prompt, Sampling


async def generate(engine: Engine, prompts: Sequence[Prompt], group_size: int, max_tokens: int) -> int:
    """Ask for all groups at once; return the number of tokens written."""
    sampling = Sampling(temperature=1.0, max_tokens=max_tokens)
    groups = await asyncio.gather(
        *(engine.sample(prompt, group_size, sampling, seed) for seed, prompt in enumerate(prompts))
    )
    return sum(rollout.length for group in groups for rollout in group.rollouts)


async def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Load once, warm up with four tokens a reply, and time."""
    config = recipe()
    engine = config.engine.build(config.model, open_renderer(config.model))
    prompts = make_prompts(request["problems"])
    table = lengths_by_prompt(request["problems"], request["lengths"])
    current = {prompt: [4] * len(lengths) for prompt, lengths in table.items()}
    force_lengths(current)
    group_size, longest = len(request["lengths"][0]), max(map(max, request["lengths"]))
    await generate(engine, prompts, group_size, 4)
    current.update(table)
    floor = Floor(read_sizes(Path(request["model"]))) if request["floor"] else None
    passes = decoding_passes(
        sum(len(prompt.token_ids) for prompt in prompts), len(prompts), [n for own in table.values() for n in own]
    )
    seconds, floors, lowest, tokens = [], [], [], 0
    for repeat in range(request["repeats"]):
        started = time.perf_counter()
        tokens = await generate(engine, prompts, group_size, longest)
        seconds.append(time.perf_counter() - started)
        if floor is not None:
            floors.append(floor.plain_forward(passes))
            lowest.append(floor.forward(passes))
        say(f"generation {repeat + 1}: {tokens / seconds[-1]:.0f} tokens/s")
    await engine.close()
    assert tokens == sum(map(sum, request["lengths"])), f"{tokens} tokens were written"
    return {
        "seconds": seconds,
        "floor_seconds": floors,
        "lowest_floor_seconds": lowest,
        "tokens": tokens,
        "precision": engine.precision,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__},
    }


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the measurement."""
    return asyncio.run(measure(request))


if __name__ == "__main__":
    serve(work)
