"""From logits to log-probabilities and entropy. Letters: V vocabulary; `...` any leading shape."""

from __future__ import annotations

import torch
from torch import Tensor


def logprobs_and_entropy(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each token and entropy of the whole distribution, in nats, both at `temperature`.

    logits [..., V], tokens [...] -> ([...], [...]), float32 (float64 in, float64 out). The temperature divides the
    logits, never the log-probabilities: only so is the ratio 1 before the first update. The entropy carries no
    gradient: it is watched, not optimised.
    """
    scaled = (logits if logits.dtype == torch.float64 else logits.float()) / temperature
    normaliser = scaled.logsumexp(dim=-1)
    logprobs = scaled.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - normaliser
    with torch.no_grad():
        # H = log Z - sum(p * logit): one pass over the vocabulary less than -sum(p * log p).
        probabilities = (scaled - normaliser.unsqueeze(-1)).exp()
        entropy = normaliser - (probabilities * scaled).sum(dim=-1)
    return logprobs, entropy
