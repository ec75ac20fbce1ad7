"""Log-probabilities and entropy of replies under a model. Letters: B rows, T reply tokens."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.maths.logprobs import logprobs_and_entropy


class Forward(NamedTuple):
    """Both [B, T], float32, at the sampling temperature; beyond a reply's length the values mean nothing."""

    logprobs_BT: Tensor
    entropy_BT: Tensor


def reply_logprobs(
    model: PreTrainedModel,
    prompt_ids: Sequence[Sequence[int]],
    tokens_BT: Tensor,
    lengths_B: Tensor,
    *,
    temperature: float,
) -> Forward:
    """Run prompts and replies through the model; only reply positions go through its head.

    Prompts are padded on the left and replies on the right, so that reply token t stands in the same column in every
    row and the logits that predict it are those one column before.
    """
    device = model.device
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
    takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
    output = model(
        input_ids=input_ids.to(device),
        attention_mask=attention_mask.to(device),
        position_ids=position_ids.to(device),
        use_cache=False,
        **({"logits_to_keep": keep} if takes_keep else {}),
    )
    logits = output.logits[:, -keep:-1]
    return Forward(*logprobs_and_entropy(logits, tokens_BT.to(device), temperature))
