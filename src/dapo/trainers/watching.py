"""What is measured of a pass: over the tokens that train, and of the gap between engine and trainer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dapo.maths.kl import kl_k3
from dapo.trainers.forward import ReplyLogprobs
from dapo.types import Mean, Peak, Stat, TokenLoss, Total


@torch.no_grad()
def watch(token_loss: TokenLoss, forward: ReplyLogprobs, trained_BT: Tensor) -> dict[str, Stat]:
    """Measure what is watched, over the tokens that train and no others."""
    count = float(trained_BT.sum())
    means = {
        "policy/entropy": forward.entropy_BT,
        "policy/prob_mean": forward.logprobs_BT.exp(),
        **token_loss.watch,
    }
    stats: dict[str, Stat] = {
        name: Mean(total=float(torch.where(trained_BT, tensor, 0.0).sum(dtype=torch.float64)), count=count)
        for name, tensor in means.items()
    }
    if count:
        stats |= {name: Peak(value=float(tensor[trained_BT].max())) for name, tensor in token_loss.peaks.items()}
    stats["tokens/trained"] = Total(value=count)
    return stats


@torch.no_grad()
def mismatch(logprobs_BT: Tensor, sampled_BT: Tensor, measured_BT: Tensor) -> dict[str, Stat]:
    """How far the engine's log-probabilities lie from the trainer's on tokens that the present policy sampled.

    `mismatch/kl` estimates KL(engine || trainer) in nats a token; `mismatch/max_ratio` is the largest factor between
    the two probabilities of a token, either way.
    """
    if not bool(measured_BT.any()):
        return {}
    engine, trainer = sampled_BT[measured_BT], logprobs_BT[measured_BT]
    terms = kl_k3(engine, trainer)
    widest = math.exp(min(50.0, float((engine - trainer).abs().max())))
    return {
        "mismatch/kl": Mean(total=float(terms.sum(dtype=torch.float64)), count=float(terms.numel())),
        "mismatch/max_ratio": Peak(value=widest),
    }
