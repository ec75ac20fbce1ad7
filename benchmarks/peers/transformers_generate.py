"""transformers' `generate` writes replies of given lengths. Runs in the peer's own environment; JSON in, JSON out.

Reads {"model", "prompts": [[ids]], "lengths": [[n, ...] a prompt], "batch", "cache", "dtype", "repeats"} and writes
{"seconds": [...], "tokens"}. A batch ends with its longest reply, as `generate` does it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StoppingCriteria, StoppingCriteriaList


class EndAt(StoppingCriteria):
    """A row ends at its own length; end tokens do not end it."""

    def __init__(self, prompt_width: int, lengths: list[int]) -> None:
        self.total = torch.tensor(lengths) + prompt_width

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Which rows have their length."""
        return input_ids.shape[1] >= self.total


def settings(given: dict[str, Any], pad: int, longest: int) -> GenerationConfig:
    """Plain sampling at temperature 1 from the whole vocabulary."""
    static = {"cache_implementation": "static"} if given["cache"] == "static" else {}
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=longest,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=pad,
        **static,
    )


def generate(model: Any, pad: int, given: dict[str, Any], rows: list[tuple[list[int], int]]) -> int:
    """Write the replies of one batch; return how many tokens were asked for."""
    width = max(len(ids) for ids, _ in rows)
    input_ids = torch.tensor([[pad] * (width - len(ids)) + ids for ids, _ in rows])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in rows])
    lengths = [length for _, length in rows]
    with torch.inference_mode():
        output = model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            generation_config=settings(given, pad, max(lengths)),
            stopping_criteria=StoppingCriteriaList([EndAt(width, lengths)]),
        )
    assert output.shape[1] == width + max(lengths), (output.shape, width, max(lengths))
    return sum(lengths)


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Load once, warm up on one short batch, and time all batches one after the other."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=getattr(torch, given["dtype"])).eval()
    model.generation_config = GenerationConfig()
    pad = AutoTokenizer.from_pretrained(given["model"]).pad_token_id or 0
    rows = [
        (ids, length) for ids, lengths in zip(given["prompts"], given["lengths"], strict=True) for length in lengths
    ]
    batches = [rows[start : start + given["batch"]] for start in range(0, len(rows), given["batch"])]
    generate(model, pad, given, [(ids, 4) for ids, _ in batches[0]])
    seconds, tokens = [], 0
    for _ in range(given["repeats"]):
        started = time.perf_counter()
        tokens = sum(generate(model, pad, given, batch) for batch in batches)
        seconds.append(time.perf_counter() - started)
    return {
        "seconds": seconds,
        "tokens": tokens,
        "threads": torch.get_num_threads(),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
    }


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
