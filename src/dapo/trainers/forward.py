"""Replies through a model: hidden states, log-probabilities, entropy. Letters: B rows, T reply tokens, M reply tokens in a
flat row, D hidden width.

Three ways, one result: `trainers.fused` runs Llama-like models on the processor; `PackedForward` needs a model whose attention
can be planned; `PaddedForward` serves every causal model. `trainers.pick` chooses.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.batching import packed_micro_batches, padded_micro_batches
from dapo.maths.head import head_logprobs
from dapo.maths.logprobs import logprobs_and_entropy
from dapo.models.attention import PLAN, use_planned_attention
from dapo.trainers.packing import PackedPlan, pack_flat

Prompts = Sequence[tuple[int, ...]]


class ReplyLogprobs(NamedTuple):
    """Both [B, T], float32, at the sampling temperature; beyond a reply's length the values mean nothing."""

    logprobs_BT: Tensor
    entropy_BT: Tensor


class ReplyHidden(NamedTuple):
    """The hidden state [M, D] from which each reply token is predicted, and where that token stands in [B, T]."""

    hidden_MD: Tensor
    row_M: Tensor
    column_M: Tensor


class Forward(Protocol):
    """A way to run rows through a model, and to spread rows over micro-batches for it."""

    model: PreTrainedModel

    def logprobs(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor, temperature: float) -> ReplyLogprobs:
        """Log-probability of each reply token, and the entropy there."""
        ...

    def hidden(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor) -> ReplyHidden:
        """The last layer's state before each reply token: what a critic's head reads."""
        ...

    def micro_batches(self, prompt_ids: Prompts, lengths_B: Tensor, max_tokens: int) -> list[list[int]]:
        """Row numbers of each micro-batch of at most `max_tokens` positions."""
        ...


def logprobs_of_hidden(hidden: ReplyHidden, weight_VD: Tensor, tokens_BT: Tensor, temperature: float) -> ReplyLogprobs:
    """Run the head on reply positions alone, a chunk of them at a time."""
    hidden_MD, row_M, column_M = hidden
    tokens_M = tokens_BT.to(hidden_MD.device)[row_M, column_M]
    logprobs_M, entropy_M = head_logprobs(hidden_MD, weight_VD, tokens_M, temperature)
    empty_BT = torch.zeros(tokens_BT.shape, dtype=logprobs_M.dtype, device=hidden_MD.device)
    place = (row_M, column_M)
    return ReplyLogprobs(empty_BT.index_put(place, logprobs_M), empty_BT.index_put(place, entropy_M))


class PackedForward:
    """One flat row without padding; a group's prompt goes through the model once; the head sees reply positions alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        use_planned_attention(model)
        self.model = model

    def logprobs(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor, temperature: float) -> ReplyLogprobs:
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        hidden = self.hidden(prompt_ids, tokens_BT, lengths_B)
        return logprobs_of_hidden(hidden, head.weight, tokens_BT, temperature)

    def hidden(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor) -> ReplyHidden:
        packing = pack_flat(prompt_ids, tokens_BT, lengths_B)
        device = self.model.device
        output = self.model.base_model(
            input_ids=packing.tokens_N.unsqueeze(0).to(device),
            position_ids=packing.positions_N.unsqueeze(0).to(device),
            use_cache=False,
            **{PLAN: PackedPlan(groups=packing.groups)},
        )
        hidden_MD = output.last_hidden_state[0][packing.predictor_M.to(device)]
        return ReplyHidden(hidden_MD, packing.row_M.to(device), packing.column_M.to(device))

    def micro_batches(self, prompt_ids: Prompts, lengths_B: Tensor, max_tokens: int) -> list[list[int]]:
        return packed_micro_batches(prompt_ids, lengths_B, max_tokens)


class PaddedForward:
    """Prompts padded on the left and replies on the right, through the model's own forward.

    So reply token t stands in the same column in every row, and the logits that predict it are those one column before.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters

    def logprobs(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor, temperature: float) -> ReplyLogprobs:
        keep = tokens_BT.shape[1] + 1  # the last prompt position predicts the first reply token
        output = self.model(
            **self._inputs(prompt_ids, tokens_BT, lengths_B),
            use_cache=False,
            **({"logits_to_keep": keep} if self._takes_keep else {}),
        )
        logits = output.logits[:, -keep:-1]
        return ReplyLogprobs(*logprobs_and_entropy(logits, tokens_BT.to(self.model.device), temperature))

    def hidden(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor) -> ReplyHidden:
        device = self.model.device
        output = self.model.base_model(**self._inputs(prompt_ids, tokens_BT, lengths_B), use_cache=False)
        width = tokens_BT.shape[1]
        inside_BT = torch.arange(width) < lengths_B.unsqueeze(1)
        row_M, column_M = inside_BT.to(device).nonzero(as_tuple=True)
        return ReplyHidden(output.last_hidden_state[:, -width - 1 : -1][row_M, column_M], row_M, column_M)

    def micro_batches(self, prompt_ids: Prompts, lengths_B: Tensor, max_tokens: int) -> list[list[int]]:
        return padded_micro_batches(prompt_ids, lengths_B, max_tokens)

    def _inputs(self, prompt_ids: Prompts, tokens_BT: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
        rows, reply_width = tokens_BT.shape
        prompt_width = max(len(prompt) for prompt in prompt_ids)
        input_ids = torch.zeros(rows, prompt_width + reply_width, dtype=torch.long)
        attention_mask = torch.zeros_like(input_ids)
        for row, prompt in enumerate(prompt_ids):
            input_ids[row, prompt_width - len(prompt) : prompt_width] = torch.tensor(prompt, dtype=torch.long)
            attention_mask[row, prompt_width - len(prompt) : prompt_width] = 1
        input_ids[:, prompt_width:] = tokens_BT
        attention_mask[:, prompt_width:] = torch.arange(reply_width) < lengths_B.unsqueeze(1)
        position_ids = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
