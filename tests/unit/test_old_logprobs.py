"""Whose log-probabilities the ratio divides by, as a recipe and two precisions say."""

from __future__ import annotations

from typing import Any

import pytest

from dapo.config import parse_config
from dapo.run import _old_logprobs


@pytest.mark.parametrize(
    ("updates", "staleness", "choice", "engine", "expected"),
    [
        (1, 0, "auto", "float32", (False, False)),
        (1, 1, "auto", "float32", (True, False)),  # what is carried needs them, and the engine's serve for all
        (1, 1, "auto", "bfloat16", (False, False)),  # the trainer's, only in a step with carried rows
        (2, 0, "auto", "float32", (True, False)),
        (2, 0, "auto", "bfloat16", (False, True)),
        (1, 0, "engine", "bfloat16", (True, False)),
        (2, 2, "trainer", "float32", (False, True)),
    ],
)
def test_the_engine_s_serve_where_both_compute_alike_and_any_are_needed(
    updates: int, staleness: int, choice: str, engine: str, expected: tuple[bool, bool]
) -> None:
    content: dict[str, Any] = {
        "steps": 1,
        "model": {"path": "m"},
        "task": {"type": "arithmetic"},
        "batch": {"updates_per_step": updates},
        "trainer": {"old_logprobs": choice},
        "algorithm": {"type": "dapo", "dynamic_sampling": {"max_staleness": staleness}},
    }
    assert _old_logprobs(parse_config(content, what="it"), engine, "float32") == expected
