"""How time and memory grow: with tokens, with the length of replies, with the number of rows of the data."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from benchmarks.environments import BENCH
from benchmarks.options import Options
from benchmarks.processes import ask_product, say
from benchmarks.rows import Measured, steady
from benchmarks.steps import WARMUP, product_request
from benchmarks.workload import equal_replies

UNIQUE_ROWS, COPIES = 17_917, 100


def growth_tokens(options: Options) -> Measured:
    """Seconds a step for a thousand reply tokens, over 16 times as many tokens."""
    lengths = (2, 32) if options.quick else (16, 64, 256)
    groups, size = (2, 4) if options.quick else (8, 8)
    per_thousand: dict[int, list[float]] = {}
    for length in lengths:
        say(f"  replies of {length} tokens")
        work = equal_replies(groups, size, length)
        answer = ask_product("step", product_request(work, updates=2, steps=WARMUP + options.runs))
        seconds = steady([step["time/step"] for step in answer["steps"]], WARMUP)
        per_thousand[work.tokens] = [value / work.tokens * 1000 for value in seconds]
    fewest, most = min(per_thousand), max(per_thousand)
    told = [f"{tokens} tokens {statistics.median(values):.2f}" for tokens, values in sorted(per_thousand.items())]
    return Measured(
        name="growth_tokens",
        meaning=f"seconds of a step for 1,000 reply tokens, with {most // fewest} times as many tokens (product) as before "
        "(peer); at least 1 is no worse than linear",
        peer_name=f"the same with {fewest} tokens",
        unit="seconds/1,000 tokens",
        product=per_thousand[most],
        peer=per_thousand[fewest],
        ratio="peer/product",
        notes=[f"{groups} prompts x {size} replies of one length; seconds for 1,000: " + ", ".join(told)],
        details={"seconds_per_thousand": {str(tokens): values for tokens, values in per_thousand.items()}},
    )


def growth_memory(options: Options) -> Measured:
    """Peak memory while replies grow and the token budget of a micro-batch stays."""
    lengths = (8, 16) if options.quick else (32, 128, 512)
    budget, peaks = 2048, {}
    for length in lengths:
        say(f"  replies of {length} tokens")
        work = equal_replies(2, 4, length) if options.quick else equal_replies(4, 4, length)
        request = product_request(work, updates=2, steps=WARMUP + 2, trainer={"micro_batch_tokens": budget})
        answer = ask_product("step", request)
        peaks[length] = [step["peak_gb"] - answer["baseline_gb"] for step in steady(answer["steps"], WARMUP)]
    told = [f"{length} tokens {max(values):.2f}" for length, values in peaks.items()]
    return Measured(
        name="growth_memory",
        meaning=f"peak memory of a step with replies of {lengths[-1]} tokens (product) and of {lengths[0]} (peer), "
        f"micro-batches of {budget} tokens; near 1 is bounded by the budget",
        peer_name=f"the same with {lengths[0]} tokens",
        unit="GB",
        product=peaks[lengths[-1]],
        peer=peaks[lengths[0]],
        ratio="product/peer",
        notes=["GB by reply length, less interpreter and libraries: " + ", ".join(told)],
        details={"peaks_gb": {str(length): values for length, values in peaks.items()}},
    )


def growth_data(options: Options) -> Measured:
    """A step on a file of 1.79 million rows against one on a file of a hundredth of them."""
    unique, copies = (50, 4) if options.quick else (UNIQUE_ROWS, COPIES)
    folder = BENCH / "work/data"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    small, large = folder / "small.parquet", folder / "large.parquet"
    write_problems(small, unique, 1)
    write_problems(large, unique, copies)
    seconds: dict[Path, list[float]] = {small: [], large: []}
    starts: dict[Path, list[float]] = {small: [], large: []}
    for _ in range(options.runs):
        for path in (small, large):
            answer = ask_product("data_step", {"path": str(path), "steps": 4})
            seconds[path].append(statistics.median(steady(answer["seconds"], WARMUP)))
            starts[path].append(answer["opening_seconds"])
    shutil.rmtree(folder)
    return Measured(
        name="growth_data",
        meaning=f"a step on a file of {unique * copies:,} rows (product) and of {unique:,} rows (peer)",
        peer_name=f"a file of {unique:,} rows",
        unit="seconds a step",
        product=seconds[large],
        peer=seconds[small],
        ratio="peer/product",
        notes=[
            f"the larger file holds every problem {copies} times; opening it took {statistics.median(starts[large]):.1f} s, "
            f"the smaller one {statistics.median(starts[small]):.1f} s; steps of 2 prompts x 2 replies of at most 8 tokens"
        ],
        details={"opening_seconds": {"small": starts[small], "large": starts[large]}},
    )


def write_problems(path: Path, unique: int, copies: int) -> None:
    """A Parquet file of `unique` problems, each `copies` times."""
    import pyarrow
    from pyarrow import parquet

    prompts = [f"What is {number} + {number % 97}? Answer with just the number." for number in range(unique)]
    answers = [str(number + number % 97) for number in range(unique)]
    table = pyarrow.table({"prompt": prompts, "answer": answers})
    with parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(copies):
            writer.write_table(table)
