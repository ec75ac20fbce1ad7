"""The local trainer: model, optimizer, and the only `backward()`. It knows no algorithm by name and no ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.algorithms.value import OLD_LOGPROBS, Loss
from dapo.batching import select_rows
from dapo.maths.logprobs import kl_k3
from dapo.models.weights import copy_weights
from dapo.trainers.forward import ReplyLogprobs, pick_forward, why_not_packed
from dapo.trainers.precision import ComputeCopy
from dapo.trainers.state import load_trainer_state, save_trainer_state
from dapo.types import Batch, Columns, Mean, Minibatch, Peak, Stat, TokenLoss, Total, Update, Weights, merge_stats


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """AdamW with a linear warm-up, counted in optimizer updates, then a constant rate."""

    learning_rate: float
    warmup_updates: int = 0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0

    def rate(self, update: int) -> float:
        """The learning rate of the update number `update`, counted from 0."""
        if update >= self.warmup_updates:
            return self.learning_rate
        return self.learning_rate * (update + 1) / (self.warmup_updates + 1)


class LocalTrainer:
    """Trains one model in this process. Weights are float32; matrix products run in `precision`."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        settings: OptimizerSettings,
        *,
        temperature: float,
        precision: torch.dtype = torch.float32,
        micro_batch_tokens: int = 4096,
    ) -> None:
        self._model = model
        self._loss = loss
        self._settings = settings
        self._temperature = temperature
        self._precision = precision
        self._micro_batch_tokens = micro_batch_tokens
        self._updates = 0
        obstacle = why_not_packed(model)
        self._compute = ComputeCopy(model, precision)
        self._forward = pick_forward(self._compute.model, obstacle)
        self._optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=model.device.type in ("cpu", "cuda"),
        )

    @property
    def precision(self) -> torch.dtype:
        """The precision of the trainer's matrix products."""
        return self._precision

    @property
    def policy_version(self) -> int:
        """How many updates the policy has had."""
        return self._updates

    @torch.no_grad()
    def annotate(self, batch: Batch, needs: frozenset[str]) -> Columns:
        """Compute `old_logprobs` [B, T] if asked for: the present policy's, at the sampling temperature."""
        unknown = needs - {OLD_LOGPROBS}
        if unknown:
            raise ValueError(f"the local trainer was asked for the columns {sorted(unknown)}; it knows {OLD_LOGPROBS}")
        if OLD_LOGPROBS not in needs:
            return {}
        old_BT = torch.zeros_like(batch.sampled_logprobs_BT)
        for rows in self._micro_batches(batch):
            width = int(batch.lengths_B[rows].max())
            forward = self._forward(
                tuple(batch.prompt_ids[row] for row in rows),
                batch.tokens_BT[rows, :width],
                batch.lengths_B[rows],
                self._temperature,
            )
            old_BT[rows, :width] = forward.logprobs_BT.cpu()
        return {OLD_LOGPROBS: old_BT}

    def step(self, minibatch: Minibatch) -> Update:
        """Make one optimizer step: the sum of weight_BT * loss_BT over all micro-batches, then AdamW."""
        self._optimizer.zero_grad(set_to_none=True)
        stats: dict[str, Stat] = {}
        for rows in self._micro_batches(minibatch):
            stats = merge_stats(stats, self._backward(select_rows(minibatch, rows)))
        loss = stats.pop("optim/loss")
        rate = self._settings.rate(self._updates)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.max_grad_norm)
        self._optimizer.step()
        self._compute.refresh()
        self._optimizer.zero_grad(set_to_none=True)
        self._updates += 1
        stats["optim/loss"] = Mean(total=loss.value, count=1)
        stats["optim/grad_norm"] = Mean(total=float(norm), count=1)
        stats["optim/lr"] = Peak(value=rate)
        stats["optim/updates"] = Peak(value=float(self._updates))
        return Update(policy_version=self._updates, stats=stats)

    def gradient(self, minibatch: Minibatch) -> Mapping[str, Tensor]:
        """The gradient that `step` would use, before it is clipped, by parameter name; nothing is updated."""
        self._optimizer.zero_grad(set_to_none=True)
        for rows in self._micro_batches(minibatch):
            self._backward(select_rows(minibatch, rows))
        found = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            for name, parameter in self._model.named_parameters()
        }
        self._optimizer.zero_grad(set_to_none=True)
        return found

    def publish(self) -> Weights:
        """The present policy. The tensors are the live ones: an engine copies them before the next step."""
        return Weights(policy_version=self._updates, source=self._model.state_dict())

    def save(self, folder: Path) -> None:
        """Write the policy in Hugging Face format into `folder`, and the optimizer's state into `folder/trainer`."""
        self._model.save_pretrained(str(folder))
        save_trainer_state(folder / "trainer", self._model, self._optimizer, updates=self._updates)

    def restore(self, folder: Path) -> None:
        """Take back policy, optimizer state and counters."""
        copy_weights(self._model, folder, what=f"The checkpoint {folder}")
        self._compute.refresh()
        self._updates = load_trainer_state(folder / "trainer", self._model, self._optimizer)

    def close(self) -> None:
        """Drop gradients; the model is freed with the trainer."""
        self._optimizer.zero_grad(set_to_none=True)

    def _micro_batches(self, rows: Batch | Minibatch) -> list[list[int]]:
        return self._forward.micro_batches(rows.prompt_ids, rows.lengths_B, self._micro_batch_tokens)

    def _backward(self, micro: Minibatch) -> dict[str, Stat]:
        forward = self._forward(micro.prompt_ids, micro.tokens_BT, micro.lengths_B, self._temperature)
        device = forward.logprobs_BT.device
        columns = {name: column.to(device) for name, column in micro.columns.items()}
        trained_BT, weight_BT = micro.trained_BT.to(device), micro.weight_BT.to(device)
        # Padding is set to 0 before any exp: 0 * inf would be NaN.
        logprobs_BT = torch.where(trained_BT, forward.logprobs_BT, 0.0)
        columns = {name: torch.where(trained_BT, column, 0.0) for name, column in columns.items()}
        token_loss = self._loss(logprobs_BT, columns)
        total = (weight_BT * token_loss.loss_BT).sum()
        total.backward()  # type: ignore[no-untyped-call]
        stats = watch(token_loss, forward, trained_BT)
        stats["optim/loss"] = Total(value=total.item())
        fresh_B = (micro.version_B == self._updates).to(device)
        sampled_BT = micro.sampled_logprobs_BT.to(device)
        return stats | mismatch(forward.logprobs_BT.detach(), sampled_BT, trained_BT & fresh_B.unsqueeze(1))


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
