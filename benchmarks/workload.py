"""What is generated and trained on, the same for both sides: prompts, and the length of every reply."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.environments import BENCH
from benchmarks.processes import ask_product

Lengths = list[list[int]]
LONG_PROMPT_TOKENS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Problems with messages, answer and token ids, and the reply lengths of each problem's group."""

    model: str
    problems: Sequence[Mapping[str, Any]]
    lengths: Lengths

    @property
    def tokens(self) -> int:
        """Reply tokens."""
        return sum(map(sum, self.lengths))


def long_lengths(groups: int, group_size: int, low: int = 64, high: int = 384, mode: int = 150) -> Lengths:
    """Lengths as a triangular distribution has them, 64 to 384 with a mean of 200, in an order that a seed shuffles."""
    count = groups * group_size
    flat = [_triangular(place / (count - 1), low, high, mode) for place in range(count)]
    random.Random("long").shuffle(flat)
    return in_groups(flat, group_size)


def _triangular(share: float, low: int, high: int, mode: int) -> int:
    """The number below which that share of a triangular distribution lies."""
    turn = (mode - low) / (high - low)
    if share < turn:
        return round(low + math.sqrt(share * (high - low) * (mode - low)))
    return round(high - math.sqrt((1 - share) * (high - low) * (high - mode)))


def spread_lengths(groups: int, group_size: int, low: int = 16, high: int = 256) -> Lengths:
    """Lengths spread evenly over a range, in an order that a seed shuffles."""
    count = groups * group_size
    flat = [round(low + (high - low) * place / max(1, count - 1)) for place in range(count)]
    random.Random("spread").shuffle(flat)
    return in_groups(flat, group_size)


def in_groups(flat: Sequence[int], size: int) -> Lengths:
    """Cut into groups of `size`."""
    return [list(flat[start : start + size]) for start in range(0, len(flat), size)]


def prepared() -> dict[str, Any]:
    """Prompts and natural lengths, made by the product once and kept in `.bench`."""
    path = BENCH / "work/prepared.json"
    if not path.is_file():
        made = ask_product("prepare", {"long_prompt_tokens": LONG_PROMPT_TOKENS})
        path.write_text(json.dumps(made), encoding="utf-8")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def quickstart(*, quick: bool) -> Workload:
    """The quickstart's batch, 8 prompts of about 45 tokens x 8 replies of the untrained policy's own lengths."""
    content = prepared()
    groups, replies = (2, 4) if quick else (8, 8)
    lengths = [own[:replies] for own in content["quickstart_lengths"][:groups]]
    return Workload(model=content["model"], problems=content["problems"][:groups], lengths=lengths)


def long_replies(*, quick: bool) -> Workload:
    """2 prompts of 200 tokens x 8 replies of 64 to 384 tokens."""
    content = prepared()
    lengths = long_lengths(2, 4, 8, 24, 12) if quick else long_lengths(2, 8)
    return Workload(model=content["model"], problems=content["long_problems"][:2], lengths=lengths)


def many_replies(*, quick: bool) -> Workload:
    """16 prompts x 8 replies of 16 to 256 tokens."""
    content = prepared()
    lengths = spread_lengths(2, 4, 4, 16) if quick else spread_lengths(16, 8)
    return Workload(model=content["model"], problems=content["problems"][: len(lengths)], lengths=lengths)


def equal_replies(groups: int, group_size: int, length: int) -> Workload:
    """Replies of one length to the quickstart's prompts."""
    content = prepared()
    return Workload(
        model=content["model"], problems=content["problems"][:groups], lengths=[[length] * group_size] * groups
    )
