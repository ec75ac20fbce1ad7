"""Log-probabilities and entropy of replies under a model. Letters: B rows, T reply tokens, M reply tokens in a flat row.

Two ways, one result: `PackedForward` wastes nothing and needs a model whose attention can be planned; `PaddedForward`
serves every causal model.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.batching import packed_micro_batches, padded_micro_batches
from dapo.maths.head import head_logprobs
from dapo.maths.logprobs import logprobs_and_entropy
from dapo.models.attention import PLAN, UnsupportedAttentionError, use_planned_attention
from dapo.trainers.packing import PackedPlan, pack_flat


class ReplyLogprobs(NamedTuple):
    """Both [B, T], float32, at the sampling temperature; beyond a reply's length the values mean nothing."""

    logprobs_BT: Tensor
    entropy_BT: Tensor


class Forward(Protocol):
    """A way to run rows through the model, and to spread rows over micro-batches for it."""

    def __call__(
        self, prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor, temperature: float
    ) -> ReplyLogprobs: ...

    def micro_batches(
        self, prompt_ids: Sequence[tuple[int, ...]], lengths_B: Tensor, max_tokens: int
    ) -> list[list[int]]: ...


class PackedForward:
    """One flat row without padding; a group's prompt goes through the model once; the head sees reply positions alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        use_planned_attention(model)
        self._model = model

    def __call__(
        self, prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor, temperature: float
    ) -> ReplyLogprobs:
        packing = pack_flat(prompt_ids, tokens_BT, lengths_B)
        device = self._model.device
        hidden_ND = self._hidden(packing.tokens_N, packing.positions_N, PackedPlan(groups=packing.groups))
        tokens_M = tokens_BT[packing.row_M, packing.column_M].to(device)
        head = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]
        logprobs_M, entropy_M = head_logprobs(
            hidden_ND[packing.predictor_M.to(device)], head.weight, tokens_M, temperature
        )
        place = (packing.row_M.to(device), packing.column_M.to(device))
        empty_BT = torch.zeros(tokens_BT.shape, dtype=logprobs_M.dtype, device=device)
        return ReplyLogprobs(empty_BT.index_put(place, logprobs_M), empty_BT.index_put(place, entropy_M))

    def micro_batches(
        self, prompt_ids: Sequence[tuple[int, ...]], lengths_B: Tensor, max_tokens: int
    ) -> list[list[int]]:
        return packed_micro_batches(prompt_ids, lengths_B, max_tokens)

    def _hidden(self, tokens_N: Tensor, positions_N: Tensor, plan: PackedPlan) -> Tensor:
        device = self._model.device
        output = self._model.base_model(
            input_ids=tokens_N.unsqueeze(0).to(device),
            position_ids=positions_N.unsqueeze(0).to(device),
            use_cache=False,
            **{PLAN: plan},
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden


class PaddedForward:
    """Prompts padded on the left and replies on the right, through the model's own forward.

    So reply token t stands in the same column in every row, and the logits that predict it are those one column before.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(
        self, prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor, temperature: float
    ) -> ReplyLogprobs:
        device = self._model.device
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
        keep = reply_width + 1  # the last prompt position predicts the first reply token
        output = self._model(
            input_ids=input_ids.to(device),
            attention_mask=attention_mask.to(device),
            position_ids=position_ids.to(device),
            use_cache=False,
            **({"logits_to_keep": keep} if self._takes_keep else {}),
        )
        logits = output.logits[:, -keep:-1]
        return ReplyLogprobs(*logprobs_and_entropy(logits, tokens_BT.to(device), temperature))

    def micro_batches(
        self, prompt_ids: Sequence[tuple[int, ...]], lengths_B: Tensor, max_tokens: int
    ) -> list[list[int]]:
        return padded_micro_batches(prompt_ids, lengths_B, max_tokens)


def why_not_packed(model: PreTrainedModel) -> str | None:
    """None where packed rows give the model's own result on a short example; else what is in the way. Float32 models only.

    Leaves the model with the attention that it had.
    """
    vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    tokens_BT = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6], [2, 7, 1, 8]]) % vocabulary
    prompts = ((1, 2, 3), (1, 2, 3), (4, 3))
    lengths_B = torch.tensor([4, 2, 3])
    usual = str(model.config._attn_implementation)
    try:
        with torch.no_grad():
            expected = PaddedForward(model)(prompts, tokens_BT, lengths_B, 1.0).logprobs_BT
            found = PackedForward(model)(prompts, tokens_BT, lengths_B, 1.0).logprobs_BT
    except (UnsupportedAttentionError, TypeError, AttributeError) as error:
        return str(error)
    finally:
        model.set_attn_implementation(usual)
    inside_BT = torch.arange(4, device=found.device) < lengths_B.to(found.device).unsqueeze(1)
    gap = float((found - expected)[inside_BT].abs().max())
    return None if gap <= 1e-3 else f"its packed log-probabilities differ by {gap:.2g} from its own"


def pick_forward(model: PreTrainedModel, obstacle: str | None) -> Forward:
    """Packed where nothing is in the way; padded elsewhere, with a warning that says why."""
    if obstacle is None:
        return PackedForward(model)
    warnings.warn(
        f"{type(model).__name__} trains on padded rows, which is slower: {obstacle}.", RuntimeWarning, stacklevel=2
    )
    return PaddedForward(model)
