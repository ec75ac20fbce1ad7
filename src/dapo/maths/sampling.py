"""Drawing tokens from logits. Letters: B rows, V vocabulary."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BLOCK = 512
_ROWS_AT_ONCE = 32


def inverse_cdf(weights_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Draw one index a row, index i with chance weights[i] / sum(weights); `uniform_B` in [0, 1) decides. [B].

    The vocabulary is summed in blocks, and only the block that holds the draw is walked through: one pass over the
    weights. Blocks are added up in float64, so that a rare token keeps its chance at the end of a long row. An index
    of weight 0 is never drawn.
    """
    return _index_and_total(weights_BV, uniform_B)[0]


def _index_and_total(weights_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """The indices [B], and the sums of the weights [B] in float64."""
    rows, vocabulary = weights_BV.shape
    padding = -vocabulary % _BLOCK
    padded = torch.nn.functional.pad(weights_BV, (0, padding)) if padding else weights_BV
    blocks = padded.view(rows, -1, _BLOCK)
    cumulative = blocks.sum(dim=2).to(torch.float64).cumsum(dim=1)
    target = (uniform_B.to(torch.float64) * cumulative[:, -1]).unsqueeze(1)
    block = torch.searchsorted(cumulative, target, right=True).clamp(max=cumulative.shape[1] - 1)
    before = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(rows, device=blocks.device), block.squeeze(1)].to(torch.float64)
    inside_cumulative = inside.cumsum(dim=1)
    # Rounding may put the target just beyond its block's own sum; the last index with weight is right then.
    remaining = torch.minimum(target - before, inside_cumulative[:, -1:] * (1 - 1e-15))
    offset = torch.searchsorted(inside_cumulative, remaining, right=True).clamp(max=_BLOCK - 1)
    last_with_weight = _BLOCK - 1 - (inside > 0).flip(1).to(torch.int8).argmax(dim=1, keepdim=True)
    offset = torch.minimum(offset, last_with_weight)
    # Where weights are not finite nothing is found; the index stays one of the row, and `draw` says so.
    return (block * _BLOCK + offset).squeeze(1).clamp(max=vocabulary - 1), cumulative[:, -1]


def restrict(logits_BV: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Set the logits that top-k, top-p (nucleus) or min-p leave out to -inf. For evaluation; training refuses these.

    top_p keeps the smallest set of likeliest tokens whose probabilities reach it; min_p keeps tokens at least `min_p`
    times as likely as the likeliest. The likeliest token always stays.
    """
    if top_k > 0:
        kth = logits_BV.topk(min(top_k, logits_BV.shape[1]), dim=1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < kth, -torch.inf)
    if min_p > 0.0:
        floor = logits_BV.amax(dim=1, keepdim=True) + math.log(min_p)
        logits_BV = logits_BV.masked_fill(logits_BV < floor, -torch.inf)
    if top_p < 1.0:
        ordered, index = logits_BV.softmax(dim=1).sort(dim=1, descending=True)
        outside = ordered.cumsum(dim=1) - ordered >= top_p
        outside[:, 0] = False
        logits_BV = logits_BV.masked_fill(torch.zeros_like(outside).scatter(1, index, outside), -torch.inf)
    return logits_BV


def draw(
    logits_BV: Tensor, uniform_B: Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Draw one token a row; return (tokens_B, logprobs_B) under the distribution that was drawn from.

    temperature 0 is greedy: the likeliest token, of log-probability 0. Raises FloatingPointError if a row of logits is not
    finite: a NaN or an infinity in it reaches what is drawn, so that only one number a row needs to be looked at.
    """
    if temperature == 0.0:
        tokens_B = logits_BV.argmax(dim=1)
        _refuse_not_finite(logits_BV.gather(1, tokens_B.unsqueeze(1)), temperature)
        return tokens_B, torch.zeros_like(tokens_B, dtype=torch.float32)
    parts = [
        _draw_rows(logits_BV[rows], uniform_B[rows], 1.0 / temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        for rows in _slices(logits_BV.shape[0])
    ]
    logprobs_B = torch.cat([logprobs_B for _, logprobs_B in parts])
    _refuse_not_finite(logprobs_B, temperature)
    return torch.cat([tokens_B for tokens_B, _ in parts]), logprobs_B


def _refuse_not_finite(drawn: Tensor, temperature: float) -> None:
    """Raise FloatingPointError if a number of what was drawn, one a row, is not finite."""
    if bool(drawn.isfinite().all()):
        return
    raise FloatingPointError(
        f"the logits are not finite (NaN or infinity) in {int((~drawn.isfinite()).sum())} of {drawn.shape[0]} rows at "
        f"temperature {temperature:g}, so no token can be drawn. Look at optim/grad_norm of the steps before: "
        "a learning rate that is too high breaks the weights; so may a model's own weights in a lower precision, or a "
        "temperature near 0."
    )


def _draw_rows(
    logits_BV: Tensor, uniform_B: Tensor, factor: float, *, top_k: int, top_p: float, min_p: float
) -> tuple[Tensor, Tensor]:
    """Draw for a few rows, in place on a float32 copy that fits the processor's cache."""
    scaled_BV = logits_BV.to(torch.float32, copy=True)
    if factor != 1.0:
        scaled_BV.mul_(factor)
    scaled_BV = restrict(scaled_BV, top_k=top_k, top_p=top_p, min_p=min_p)
    weights_BV = scaled_BV.sub_(scaled_BV.amax(dim=1, keepdim=True)).exp_()
    tokens_B, total_B = _index_and_total(weights_BV, uniform_B)
    chosen_B = weights_BV.gather(1, tokens_B.unsqueeze(1)).squeeze(1).to(torch.float64)
    return tokens_B, (chosen_B / total_B).log().to(torch.float32)


def _slices(rows: int) -> list[slice]:
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, rows, _ROWS_AT_ONCE)]
