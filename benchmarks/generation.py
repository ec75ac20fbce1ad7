"""Generation against transformers, vLLM's CPU build and the floor: replies of the same lengths to the same prompts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.environments import ensure, pinned
from benchmarks.options import Options
from benchmarks.processes import ask_peer, ask_product, say, threads
from benchmarks.rows import Measured
from benchmarks.tuning import best_settings
from benchmarks.workload import Workload, many_replies

_MEANING = "generation of 128 sequences, 16 prompts x 8 replies of 16 to 256 tokens, temperature 1"


def _peer_request(work: Workload, settings: Mapping[str, Any]) -> dict[str, Any]:
    prompts = [one["token_ids"] for one in work.problems]
    return {"model": work.model, "prompts": prompts, "lengths": work.lengths, "repeats": 1, **settings}


def _product(work: Workload, *, floor: bool, repeats: int = 1) -> dict[str, Any]:
    request = {"problems": list(work.problems), "lengths": work.lengths, "model": work.model}
    return ask_product("generate", request | {"repeats": repeats, "floor": floor})


def _compare(
    name: str,
    peer_name: str,
    environment: str,
    script: str,
    variants: Sequence[Mapping[str, Any]],
    options: Options,
) -> Measured:
    ensure(environment)
    work = many_replies(quick=options.quick)

    def peer_seconds(settings: Mapping[str, Any], asked: Workload) -> float:
        given = dict(settings)
        bind = {"VLLM_CPU_OMP_THREADS_BIND": given.pop("bind")} if "bind" in given else {}
        answer = ask_peer(script, environment, _peer_request(asked, given), **bind)
        return float(answer["seconds"][0])

    quarter = [[max(1, length // 4) for length in group] for group in work.lengths]
    short = replace(work, lengths=quarter)
    best, notes = best_settings(
        f"{name}{options.suffix}", variants, lambda one: peer_seconds(one, short), again=options.tune
    )
    product: list[float] = []
    peer: list[float] = []
    for run in range(options.runs):
        say(f"  run {run + 1} of {options.runs}")
        product.append(work.tokens / _product(work, floor=False)["seconds"][0])
        peer.append(work.tokens / peer_seconds(best, work))
    return Measured(
        name=name,
        meaning=_MEANING,
        peer_name=peer_name,
        unit="tokens/s",
        product=product,
        peer=peer,
        ratio="product/peer",
        notes=[
            f"{work.tokens} reply tokens; every reply ends at the same length on both sides",
            "the peer's settings were tried on the same replies cut to a quarter of their length",
            *notes,
        ],
        details={"reply_tokens": work.tokens},
    )


def generate_vs_transformers(options: Options) -> Measured:
    """Against `generate` of transformers."""
    sizes = (4, 8) if options.quick else (128, 64, 32)
    base = {"dtype": "bfloat16", "threads": threads()}
    variants = [{"batch": size, "cache": "dynamic", **base} for size in sizes]
    variants.append({"batch": sizes[0], "cache": "static", **base})
    variants.append({"batch": sizes[0], "cache": "dynamic", **base, "threads": 1})
    variants.append({"batch": sizes[0], "cache": "dynamic", **base, "dtype": "float32"})
    name = f"transformers {pinned('trl', 'transformers')} generate"
    chosen = variants[:1] if options.quick else variants
    return _compare("generate_vs_transformers", name, "trl", "transformers_generate", chosen, options)


def generate_vs_vllm_cpu(options: Options) -> Measured:
    """Against vLLM's CPU build."""
    everything = f"0-{threads() - 1}"
    variants = [
        {"eager": False, "bind": everything},
        {"eager": True, "bind": everything},
        {"eager": False, "bind": "auto"},
    ]
    name = f"vllm-cpu {pinned('vllm', 'vllm-cpu')}, bfloat16"
    chosen = variants[1:2] if options.quick else variants
    return _compare("generate_vs_vllm_cpu", name, "vllm", "vllm_generate", chosen, options)


def generate_vs_floor(options: Options) -> Measured:
    """Against the matrix products alone, timed in turn in the same process."""
    work = many_replies(quick=options.quick)
    answer = _product(work, floor=True, repeats=options.runs)
    product = [work.tokens / seconds for seconds in answer["seconds"]]
    lowest = [work.tokens / seconds for seconds in answer["lowest_floor_seconds"]]
    share = statistics.median(product) / statistics.median(lowest)
    return Measured(
        name="generate_vs_floor",
        meaning=f"{_MEANING}: share of what the matrix products alone would allow",
        peer_name="matrix products of the same shapes",
        unit="tokens/s",
        product=product,
        peer=[work.tokens / seconds for seconds in answer["floor_seconds"]],
        ratio="product/peer",
        notes=[
            "floor: in bfloat16, each prompt read once, then in every decoding step the projections of all layers and the "
            "head for as many rows as replies still run; `linear` on weights as a model holds them, projections one by one or "
            "fused, whichever is faster",
            "the engine lays its weights out for the processor's kernels, so it needs less than the floor in part: against "
            f"the products with weights that were laid out ahead ({statistics.median(lowest):,.0f} tokens/s) its share is "
            f"{share:.0%}",
        ],
        details={name: answer[name] for name in ("seconds", "floor_seconds", "lowest_floor_seconds")},
    )
