"""The product's parts for a benchmark, made from the quickstart's recipe."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dapo.config import RunConfig, parse_config
from dapo.types import Message, Problem, Prompt

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/quickstart.toml"


def recipe(**sections: Mapping[str, Any] | int) -> RunConfig:
    """The quickstart's recipe with whole fields or single fields of sections replaced."""
    content = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    for name, value in sections.items():
        if isinstance(value, Mapping) and name != "task":
            content[name] = {**content.get(name, {}), **value}
        else:
            content[name] = value
    return parse_config(content, what="the benchmark's recipe")


def make_problem(content: Mapping[str, Any]) -> Problem:
    """A problem from its JSON."""
    messages = tuple(Message(role=one["role"], content=one["content"]) for one in content["messages"])
    return Problem(id=content["id"], messages=messages, answer=content["answer"])


def make_prompts(problems: Sequence[Mapping[str, Any]]) -> list[Prompt]:
    """Prompts whose token ids were rendered before."""
    return [Prompt(problem=make_problem(one), text="", token_ids=tuple(one["token_ids"])) for one in problems]


def lengths_by_prompt(
    problems: Sequence[Mapping[str, Any]], lengths: Sequence[Sequence[int]]
) -> dict[tuple[int, ...], list[int]]:
    """The lengths of each prompt's replies, by its token ids."""
    table = {tuple(one["token_ids"]): list(own) for one, own in zip(problems, lengths, strict=True)}
    assert len(table) == len(problems), "two problems have the same prompt"
    return table
