"""What an engine refuses before it begins."""

from __future__ import annotations

from transformers import PreTrainedModel

from dapo.errors import EngineError
from dapo.types import Prompt, Sampling


def positions_of(model: PreTrainedModel) -> int | None:
    """How many positions a model has, where its settings say."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if limit is None else int(limit)


def refuse_nothing(n: int, sampling: Sampling) -> None:
    """Refuse a request for no reply, or for replies of no token. Raises EngineError."""
    if n < 1 or sampling.max_tokens < 1:
        raise EngineError(
            f"{n} replies of at most {sampling.max_tokens} tokens were asked for. Ask for one reply of one token at least."
        )


def refuse_too_long(limit: int | None, prompt: Prompt, sampling: Sampling) -> None:
    """Refuse a request that needs more positions than the model's `limit`. Raises EngineError."""
    wanted = len(prompt.token_ids) + sampling.max_tokens
    if limit is not None and wanted > limit:
        raise EngineError(
            f"The prompt {prompt.problem.id} of {len(prompt.token_ids)} tokens and {sampling.max_tokens} new ones are "
            f"{wanted} positions, and the model has {limit}. Shorten the prompt or lower batch.max_tokens."
        )
