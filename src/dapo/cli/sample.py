"""`dapo sample`: talk to a model."""

from __future__ import annotations

from typing import Annotated

import typer

from dapo.cli.options import AsJson, print_json


def sample(
    model: Annotated[
        str, typer.Argument(help="A run folder, a model folder, a Hub id, or package:NAME.", metavar="MODEL_OR_RUN")
    ],
    question: Annotated[str, typer.Argument(help="What to ask.")],
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many replies to draw.")] = 1,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 takes the likeliest token.")
    ] = 0.0,
    top_p: Annotated[float, typer.Option(min=1e-6, max=1.0, help="Nucleus sampling.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Limit on new tokens.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Ask a trained model something."""
    from dapo.inference import open_policy, sample_replies
    from dapo.types import Sampling

    policy = open_policy(model)
    replies = sample_replies(
        policy, question, number, Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens), seed
    )
    if as_json:
        print_json(
            {
                "model": policy.name,
                "question": question,
                "replies": [
                    {"text": reply.text, "finish": reply.finish.value, "tokens": reply.length} for reply in replies
                ],
            }
        )
        return
    for reply in replies:
        print(reply.text + (" […cut off by --max-tokens]" if reply.is_truncated else ""))
