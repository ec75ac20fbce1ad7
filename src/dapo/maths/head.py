"""Log-probabilities straight from hidden states: the logits of all tokens never exist at once.

Letters: M tokens, D hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_LOGITS = 1 << 24
"""Logits that exist at a time: 64 MB in float32."""


def head_logprobs(hidden_MD: Tensor, weight_VD: Tensor, tokens_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return (logprobs_M, entropy_M), float32 nats at `temperature`, for logits = hidden @ weight^T.

    Differentiable in `hidden_MD` and `weight_VD` through the log-probabilities; the entropy carries no gradient. Memory is
    bounded by a chunk of tokens: backward makes each chunk's logits again.
    """
    logprobs_M, entropy_M = _HeadLogprobs.apply(hidden_MD, weight_VD, tokens_M, temperature)  # type: ignore[no-untyped-call]
    return logprobs_M, entropy_M


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, hidden_MD: Tensor, weight_VD: Tensor, tokens_M: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies, normalisers = [], [], []
        for chunk in _chunks(hidden_MD, weight_VD):
            scaled = _scaled_logits(hidden_MD[chunk], weight_VD, temperature)
            normaliser = scaled.logsumexp(dim=1)
            chosen = scaled.gather(1, tokens_M[chunk].unsqueeze(1)).squeeze(1)
            weights = (scaled - normaliser.unsqueeze(1)).exp_()
            entropies.append(normaliser - torch.linalg.vecdot(weights, scaled))
            logprobs.append(chosen - normaliser)
            normalisers.append(normaliser)
        context.save_for_backward(hidden_MD, weight_VD, tokens_M, torch.cat(normalisers))
        context.temperature = temperature
        entropy_M = torch.cat(entropies)
        context.mark_non_differentiable(entropy_M)
        return torch.cat(logprobs), entropy_M

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MD, weight_VD, tokens_M, normaliser_M = context.saved_tensors
        scale_M = gradients[0] / context.temperature
        hidden_gradient = torch.empty_like(hidden_MD) if context.needs_input_grad[0] else None
        weight_gradient: Tensor | None = None
        for chunk in _chunks(hidden_MD, weight_VD):
            # d logprob / d logits = (one_hot - softmax) / temperature
            gradient = _scaled_logits(hidden_MD[chunk], weight_VD, context.temperature)
            gradient.sub_(normaliser_M[chunk].unsqueeze(1)).exp_().mul_(-scale_M[chunk].unsqueeze(1))
            gradient.scatter_add_(1, tokens_M[chunk].unsqueeze(1), scale_M[chunk].unsqueeze(1))
            narrow = gradient.to(weight_VD.dtype)
            if hidden_gradient is not None:
                torch.matmul(narrow, weight_VD, out=hidden_gradient[chunk])
            if context.needs_input_grad[1]:
                part = torch.matmul(narrow.t(), hidden_MD[chunk])
                # Several chunks are added up in float32 at least; one needs no copy.
                weight_gradient = part if weight_gradient is None else weight_gradient.to(gradient.dtype).add_(part)
        if weight_gradient is not None:
            weight_gradient = weight_gradient.to(weight_VD.dtype)
        return hidden_gradient, weight_gradient, None, None


def _scaled_logits(hidden_MD: Tensor, weight_VD: Tensor, temperature: float) -> Tensor:
    logits = torch.matmul(hidden_MD, weight_VD.t())
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide if temperature == 1.0 else wide / temperature


def _chunks(hidden_MD: Tensor, weight_VD: Tensor) -> list[slice]:
    size = max(1, CHUNK_LOGITS // weight_VD.shape[0])
    return [slice(start, start + size) for start in range(0, hidden_MD.shape[0], size)]
