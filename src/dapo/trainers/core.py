"""The local trainer: model, optimizer, and the only `backward()`. It knows no algorithm by name and no ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dapo.algorithms.value import (
    ADVANTAGES,
    OLD_LOGPROBS,
    REFERENCE_LOGPROBS,
    TRAINED,
    VALUES,
    CriticSettings,
    Loss,
    ReferenceSettings,
)
from dapo.batching import select_rows
from dapo.models.weights import copy_weights
from dapo.trainers.critic import Critic
from dapo.trainers.forward import Forward
from dapo.trainers.pick import choose_forward
from dapo.trainers.precision import ComputeCopy
from dapo.trainers.reference import Reference
from dapo.trainers.state import Buffers, TrainerSnapshot, load_trainer_state, take_snapshot
from dapo.trainers.watching import mismatch, watch
from dapo.types import Batch, Columns, Mean, Minibatch, Peak, Stat, Total, Update, Weights, merge_stats

Rows = tuple[tuple[tuple[int, ...], ...], Tensor, Tensor]
"""Prompts, reply tokens [B, T] and lengths [B]."""


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
    """Trains one model in this process. Weights are float32; matrix products run in `precision`.

    A critic and a frozen reference stand beside the policy where the algorithm asks for them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        settings: OptimizerSettings,
        *,
        temperature: float,
        precision: torch.dtype = torch.float32,
        micro_batch_tokens: int = 4096,
        activation_checkpointing: bool = False,
        skips_zero_advantage: bool = False,
        critic: CriticSettings | None = None,
        reference: ReferenceSettings | None = None,
    ) -> None:
        self._model = model
        self._loss = loss
        self._settings = settings
        self._temperature = temperature
        self._precision = precision
        self._micro_batch_tokens = micro_batch_tokens
        self._skips_zero_advantage = skips_zero_advantage and critic is None  # a critic learns from every reply
        self._updates = 0
        self._buffers = Buffers()
        make_forward = choose_forward(model, checkpointing=activation_checkpointing)
        self._compute = ComputeCopy(model, precision)
        self._forward = make_forward(self._compute.model)
        self._critic = (
            Critic(critic, self._forward, model, make_forward, precision=precision) if critic is not None else None
        )
        self._reference = Reference(reference, self._compute.model, make_forward) if reference is not None else None
        self._optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=model.device.type in ("cpu", "cuda"),
        )

    @property
    def precision(self) -> str:
        """The precision of the trainer's matrix products."""
        return str(self._precision).removeprefix("torch.")

    @property
    def policy_version(self) -> int:
        """How many updates the policy has had."""
        return self._updates

    @torch.no_grad()
    def annotate(self, batch: Batch | Minibatch, needs: frozenset[str]) -> Columns:
        """Columns [B, T] of the whole batch under the present models, at the sampling temperature, for what is asked of
        `old_logprobs`, `reference_logprobs` (where there is a reference) and `values` (where there is a critic)."""
        passes: dict[str, Callable[[Rows], Tensor]] = {OLD_LOGPROBS: lambda rows: self._logprobs(self._forward, rows)}
        if self._reference is not None:
            reference = self._reference.forward
            passes[REFERENCE_LOGPROBS] = lambda rows: self._logprobs(reference, rows)
        if self._critic is not None:
            passes[VALUES] = self._critic_values
        unknown = needs - passes.keys()
        if unknown:
            raise ValueError(f"the trainer was asked for the columns {sorted(unknown)}; it has {sorted(passes)}")
        return {name: self._over_rows(batch, passes[name]) for name in sorted(needs)}

    def step(self, minibatch: Minibatch) -> Update:
        """Make one optimizer step: the sum of weight_BT * loss_BT over all micro-batches, then AdamW.

        While the critic warms up, it alone is trained, and the policy keeps its version. Where a loss or gradient is not
        finite nothing is updated, and the update says so and names the rows.
        """
        trains_policy = self._critic is None or not self._critic.is_warming_up
        self._optimizer.zero_grad(set_to_none=True)
        stats, suspects = self._accumulate(minibatch, trains_policy=trains_policy)
        norms = self._clip(trains_policy=trains_policy)
        if suspects or not all(math.isfinite(norm) for norm in norms.values()):
            return self._skipped(suspects or tuple(range(minibatch.num_rows)))
        if trains_policy:
            stats |= self._update_policy(stats.pop("optim/loss").value, norms["optim/grad_norm"])
        if self._critic is not None:
            self._critic.update()
            stats["value/grad_norm"] = Mean(total=norms["value/grad_norm"], count=1)
        if trains_policy and self._reference is not None:
            self._reference.refresh_if_due(self._updates, self._compute.model)
        return Update(policy_version=self._updates, stats=stats | {"optim/skipped": Total(value=0.0)})

    def gradient(self, minibatch: Minibatch) -> Mapping[str, Tensor]:
        """The gradient that `step` would use, before it is clipped, by parameter name; nothing is updated."""
        self._optimizer.zero_grad(set_to_none=True)
        self._accumulate(minibatch, trains_policy=True)
        named = [*self._model.named_parameters()]
        if self._critic is not None:
            named += [(f"critic.{name}", parameter) for name, parameter in self._critic.named_parameters()]
        found = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            for name, parameter in named
        }
        for _, parameter in named:
            parameter.grad = None
        return found

    def publish(self) -> Weights:
        """The present policy. The tensors are the live ones: an engine copies them before the next step."""
        return Weights(policy_version=self._updates, source=self._model.state_dict())

    def snapshot(self) -> TrainerSnapshot:
        """Copy policy, critic, reference, optimizer states and counters to the processor's memory, over the last copy."""
        parts = {part.FILE: part.state() for part in (self._critic, self._reference) if part is not None}
        return take_snapshot(self._model, self._optimizer, parts, updates=self._updates, buffers=self._buffers)

    def save(self, folder: Path) -> None:
        """Write a snapshot of the present state into `folder`."""
        self.snapshot().write(folder)

    def restore(self, folder: Path) -> None:
        """Take back policy, critic, reference, optimizer states and counters."""
        copy_weights(self._model, folder, what=f"The checkpoint {folder}")
        self._compute.refresh()
        self._updates = load_trainer_state(folder / "trainer", self._model, self._optimizer)
        for part in (self._critic, self._reference):
            if part is not None:
                part.restore(folder / "trainer")

    def close(self) -> None:
        """Drop gradients; the model is freed with the trainer."""
        self._optimizer.zero_grad(set_to_none=True)

    def _micro_batches(self, rows: Batch | Minibatch) -> list[list[int]]:
        return self._forward.micro_batches(rows.prompt_ids, rows.lengths_B, self._micro_batch_tokens)

    def _training_rows(self, minibatch: Minibatch) -> list[list[int]]:
        """The micro-batches of the rows that have a gradient."""
        if not self._skips_zero_advantage:
            return self._micro_batches(minibatch)
        live_B = ((minibatch.columns[ADVANTAGES] != 0) & minibatch.trained_BT).any(dim=1)
        rows = live_B.nonzero().squeeze(1).tolist()
        if not rows:
            return []
        parts = self._micro_batches(select_rows(minibatch, rows))
        return [[rows[row] for row in part] for part in parts]

    def _over_rows(self, batch: Batch | Minibatch, run: Callable[[Rows], Tensor]) -> Tensor:
        """Collect [B, T] from passes over micro-batches of rows (prompts, tokens, lengths)."""
        found_BT = torch.zeros_like(batch.sampled_logprobs_BT)
        for rows in self._micro_batches(batch):
            width = int(batch.lengths_B[rows].max())
            prompts = tuple(batch.prompt_ids[row] for row in rows)
            found_BT[rows, :width] = run((prompts, batch.tokens_BT[rows, :width], batch.lengths_B[rows])).cpu()
        return found_BT

    def _logprobs(self, forward: Forward, rows: Rows) -> Tensor:
        return forward.logprobs(*rows, self._temperature).logprobs_BT

    def _critic_values(self, rows: Rows) -> Tensor:
        assert self._critic is not None
        return self._critic.values(*rows)

    def _clip(self, *, trains_policy: bool) -> dict[str, float]:
        """Scale gradients down to their limits; return their norms from before that, by metric name."""
        norms: dict[str, float] = {}
        if trains_policy:
            limit = self._settings.max_grad_norm
            norms["optim/grad_norm"] = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), limit))
        if self._critic is not None:
            norms["value/grad_norm"] = self._critic.clip()
        return norms

    def _skipped(self, suspects: tuple[int, ...]) -> Update:
        """Drop what was added up; its numbers would only make other numbers useless."""
        self._optimizer.zero_grad(set_to_none=True)
        if self._critic is not None:
            self._critic.drop_gradients()
        return Update(
            policy_version=self._updates,
            stats={"optim/skipped": Total(value=1.0)},
            is_skipped=True,
            suspect_rows=suspects,
        )

    def _accumulate(self, minibatch: Minibatch, *, trains_policy: bool) -> tuple[dict[str, Stat], tuple[int, ...]]:
        """Add up the gradients of all micro-batches. Rows whose loss is not finite are returned beside the statistics."""
        stats: dict[str, Stat] = {"optim/loss": Total(value=0.0)} if trains_policy else {}
        suspects: list[int] = []
        for rows in self._training_rows(minibatch):
            micro = select_rows(minibatch, rows)
            device = self._model.device
            trained_BT = micro.trained_BT.to(device)
            # Padding is set to 0 before any exp: 0 * inf would be NaN.
            columns = {name: torch.where(trained_BT, column.to(device), 0.0) for name, column in micro.columns.items()}
            columns[TRAINED] = trained_BT.float()
            if trains_policy:
                found, bad_B = self._backward(micro, columns, trained_BT)
                stats = merge_stats(stats, found)
                suspects += [row for row, bad in zip(rows, bad_B, strict=True) if bad]
            if self._critic is not None:
                # The same weights as the policy's: a mean of this rank's own tokens would not add up to the step's.
                weight_BT = micro.weight_BT.to(device)
                stats = merge_stats(stats, self._critic.backward(micro, columns, trained_BT, weight_BT))
        if trains_policy:
            stats["tokens/trained"] = Total(value=float(minibatch.trained_BT.sum()))  # with rows that were left out
        return stats, tuple(sorted(suspects))

    def _backward(
        self, micro: Minibatch, columns: Columns, trained_BT: Tensor
    ) -> tuple[dict[str, Stat], Sequence[bool]]:
        """Add the policy's gradient of one micro-batch. Also says of each row whether its loss is not finite."""
        forward = self._forward.logprobs(micro.prompt_ids, micro.tokens_BT, micro.lengths_B, self._temperature)
        device = forward.logprobs_BT.device
        token_loss = self._loss(torch.where(trained_BT, forward.logprobs_BT, 0.0), columns)
        loss_BT = micro.weight_BT.to(device) * token_loss.loss_BT
        bad_B = ~loss_BT.detach().isfinite().all(dim=1)
        total = loss_BT.sum()
        total.backward()  # type: ignore[no-untyped-call]
        stats = watch(token_loss, forward, trained_BT)
        stats["optim/loss"] = Total(value=total.item())
        fresh_B = (micro.version_B == self._updates).to(device)
        sampled_BT = micro.sampled_logprobs_BT.to(device)
        gap = mismatch(forward.logprobs_BT.detach(), sampled_BT, trained_BT & fresh_B.unsqueeze(1))
        return stats | gap, bad_B.tolist()

    def _update_policy(self, loss: float, norm: float) -> dict[str, Stat]:
        rate = self._settings.rate(self._updates)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._compute.refresh()
        self._updates += 1
        return {
            "optim/loss": Mean(total=loss, count=1),
            "optim/grad_norm": Mean(total=norm, count=1),
            "optim/lr": Peak(value=rate),
            "optim/updates": Peak(value=float(self._updates)),
        }
