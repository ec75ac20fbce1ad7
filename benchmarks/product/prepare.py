"""Prompts and reply lengths of the benchmarks, as JSON, for both sides. Converts the model on its first use.

The quickstart's lengths are those that the untrained policy writes itself; `long` prompts are the same questions behind
words that fill them up to a given number of tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.product.exchange import say, serve
from benchmarks.product.parts import recipe
from dapo.models.load import open_renderer
from dapo.models.render import Renderer
from dapo.models.source import resolve_source
from dapo.ports import Engine
from dapo.types import Message, Problem, Prompt, Sampling

FILLER = "Read the question that follows these words with care. "


def as_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt with its token ids."""
    problem = prompt.problem
    messages = [{"role": one.role, "content": one.content} for one in problem.messages]
    return {"id": problem.id, "messages": messages, "answer": problem.answer, "token_ids": list(prompt.token_ids)}


def filled(problem: Problem, renderer: Renderer, tokens: int) -> Prompt:
    """The problem behind filling words, exactly `tokens` long."""
    words = (FILLER * tokens).split(" ")
    question = problem.messages[-1].content

    def prompt(count: int) -> Prompt:
        content = f"{' '.join(words[:count])} {question}"
        changed = Problem(id=problem.id, messages=(Message(role="user", content=content),), answer=problem.answer)
        return renderer.prompt(changed)

    for count in range(1, len(words)):
        made = prompt(count)
        if len(made.token_ids) == tokens:
            return made
    raise ValueError(f"no number of filling words makes a prompt of {tokens} tokens")


async def natural_lengths(
    engine: Engine, prompts: Sequence[Prompt], group_size: int, max_tokens: int
) -> list[list[int]]:
    """How long the policy's own replies are."""
    sampling = Sampling(temperature=1.0, max_tokens=max_tokens)
    groups = await asyncio.gather(
        *(engine.sample(prompt, group_size, sampling, seed) for seed, prompt in enumerate(prompts))
    )
    await engine.close()
    return [[rollout.length for rollout in group.rollouts] for group in groups]


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make everything that the requests of both sides are made of."""
    config = recipe()
    say("converting the model, if this is its first use")
    source = resolve_source(config.model)
    renderer = open_renderer(config.model)
    problems = config.task.build(config.seed).train_problems()
    prompts = [renderer.prompt(problem) for problem in problems]
    quickstart = prompts[: config.batch.groups_per_step]
    engine = config.engine.build(config.model, renderer)
    say("drawing the quickstart's reply lengths")
    lengths = asyncio.run(natural_lengths(engine, quickstart, config.batch.group_size, config.batch.max_tokens))
    return {
        "model": source.name,
        "problems": [as_json(prompt) for prompt in prompts],
        "quickstart_lengths": lengths,
        "long_problems": [
            as_json(filled(prompt.problem, renderer, request["long_prompt_tokens"])) for prompt in quickstart
        ],
    }


if __name__ == "__main__":
    serve(work)
