"""Log-probabilities straight from hidden states: the logits of all tokens never exist at once.

Letters: M tokens, D hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_LOGITS = 1 << 25
"""Logits that exist at a time: 64 MB in bfloat16. Large enough for a matrix product at full speed."""

SLICE_LOGITS = 1 << 19
"""Logits that are worked on at a time in float32: 2 MB, so that the passes over them stay within the processor's cache."""


def head_logprobs(hidden_MD: Tensor, weight_VD: Tensor, tokens_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return (logprobs_M, entropy_M), float32 nats at `temperature`, for logits = hidden @ weight^T.

    Differentiable in `hidden_MD` and `weight_VD` through the log-probabilities; the entropy carries no gradient. Memory is
    bounded by a chunk of tokens: backward makes each chunk's logits again, for tokens whose gradient is not 0.
    """
    logprobs_M, entropy_M = _HeadLogprobs.apply(hidden_MD, weight_VD, tokens_M, temperature)  # type: ignore[no-untyped-call]
    return logprobs_M, entropy_M


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, hidden_MD: Tensor, weight_VD: Tensor, tokens_M: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_MD.dtype, torch.float32)
        normaliser_M, entropy_M, chosen_M = (hidden_MD.new_empty(hidden_MD.shape[0], dtype=wide) for _ in range(3))
        chunks = _slices(hidden_MD.shape[0], weight_VD.shape[0], CHUNK_LOGITS)
        room = _room(chunks, hidden_MD, weight_VD)
        for chunk in chunks:
            hidden = hidden_MD[chunk]
            logits = torch.matmul(hidden, weight_VD.t(), out=room[: hidden.shape[0]])
            for rows in _slices(logits.shape[0], logits.shape[1], SLICE_LOGITS):
                place = slice(chunk.start + rows.start, chunk.start + rows.stop)
                scaled = _scaled(logits[rows], temperature)
                highest = scaled.amax(dim=1, keepdim=True)
                weights = (scaled - highest).exp_()
                total = weights.sum(dim=1)
                normaliser = total.log().add_(highest.squeeze(1))
                normaliser_M[place] = normaliser
                chosen_M[place] = scaled.gather(1, tokens_M[place].unsqueeze(1)).squeeze(1)
                entropy_M[place] = normaliser - weights.mul_(scaled).sum(dim=1).div_(total)
        context.save_for_backward(hidden_MD, weight_VD, tokens_M, normaliser_M)
        context.temperature = temperature
        context.mark_non_differentiable(entropy_M)
        return chosen_M - normaliser_M, entropy_M

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        all_MD, weight_VD, all_tokens_M, all_normaliser_M = context.saved_tensors
        live = gradients[0].nonzero().squeeze(1)
        hidden_MD, tokens_M, normaliser_M = all_MD[live], all_tokens_M[live], all_normaliser_M[live]
        scale_M = (gradients[0][live] / context.temperature).to(normaliser_M.dtype)
        hidden_gradient = torch.empty_like(hidden_MD)
        weight_gradient: Tensor | None = None
        chunks = _slices(hidden_MD.shape[0], weight_VD.shape[0], CHUNK_LOGITS)
        room = _room(chunks, hidden_MD, weight_VD)
        by_weight = torch.empty_like(weight_VD) if context.needs_input_grad[1] and chunks else None
        for chunk in chunks:
            hidden = hidden_MD[chunk]
            by_logits = torch.matmul(hidden, weight_VD.t(), out=room[: hidden.shape[0]])
            for rows in _slices(by_logits.shape[0], by_logits.shape[1], SLICE_LOGITS):
                place = slice(chunk.start + rows.start, chunk.start + rows.stop)
                # d logprob / d logits = (one_hot - softmax) / temperature
                scale = scale_M[place].unsqueeze(1)
                part = _scaled(by_logits[rows], context.temperature).sub_(normaliser_M[place].unsqueeze(1))
                part.exp_().mul_(-scale).scatter_add_(1, tokens_M[place].unsqueeze(1), scale)
                by_logits[rows] = part
            torch.matmul(by_logits, weight_VD, out=hidden_gradient[chunk])
            if by_weight is not None:
                torch.matmul(by_logits.t(), hidden, out=by_weight)
                # Several chunks are added up in float32 at least; one needs no copy.
                if len(chunks) == 1:
                    weight_gradient = by_weight
                elif weight_gradient is None:
                    weight_gradient = by_weight.to(normaliser_M.dtype, copy=True)
                else:
                    weight_gradient.add_(by_weight)
        if context.needs_input_grad[1]:
            if weight_gradient is None:
                weight_gradient = torch.zeros_like(weight_VD)
            elif by_weight is not None and weight_gradient is not by_weight:
                weight_gradient = by_weight.copy_(weight_gradient)
        whole = torch.zeros_like(all_MD).index_copy_(0, live, hidden_gradient)
        return whole if context.needs_input_grad[0] else None, weight_gradient, None, None


def _room(chunks: list[slice], hidden_MD: Tensor, weight_VD: Tensor) -> Tensor:
    """Memory for the logits of one chunk, used for all: to get it from the system each time would cost much of the product."""
    most = max((chunk.stop - chunk.start for chunk in chunks), default=0)
    return hidden_MD.new_empty(most, weight_VD.shape[0])


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """A copy in float32 at least, divided by the temperature."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    return wide if temperature == 1.0 else wide.div_(temperature)


def _slices(rows: int, width: int, limit: int) -> list[slice]:
    """Slices of rows of at most `limit` entries each, one row at least."""
    size = max(1, limit // width)
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
