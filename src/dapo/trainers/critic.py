"""The critic: a scalar head on a backbone, its own or the policy's. Letters: B rows, T reply tokens, M reply tokens."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from dapo.algorithms.value import CriticSettings
from dapo.errors import ModelError
from dapo.trainers.forward import Forward
from dapo.trainers.pick import MakeForward
from dapo.trainers.precision import ComputeCopy
from dapo.trainers.state import load_moments, moments
from dapo.types import Columns, Mean, Minibatch, Stat


class Critic:
    """Values of the states before each reply token, and the updates that teach them.

    `policy` is the trainer's own way through its model. With a backbone of its own the critic begins from a copy of it;
    with a shared one it reads the policy's hidden states, and its gradient, times a coefficient, goes into the policy too.
    The head begins at zero: an untrained critic says 0 everywhere, and the first advantages are the returns.
    """

    FILE = "critic.safetensors"
    """Where its state lies in a checkpoint."""

    def __init__(
        self,
        settings: CriticSettings,
        policy: Forward,
        master: PreTrainedModel,
        make_forward: MakeForward,
        *,
        precision: torch.dtype,
    ) -> None:
        self._settings = settings
        width = int(master.config.get_text_config().hidden_size)
        self.head = nn.Linear(width, 1, device=master.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._backbone: PreTrainedModel | None = None
        self._copy: ComputeCopy | None = None
        self._forward = policy
        if not settings.shares_backbone:
            self._backbone = copy.deepcopy(master)
            self._copy = ComputeCopy(self._backbone, precision)
            self._forward = make_forward(self._copy.model)
        self._updates = 0
        self._optimizer = torch.optim.AdamW(
            self.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )

    @property
    def is_warming_up(self) -> bool:
        """Whether the critic is trained alone for now."""
        return self._updates < self._settings.warmup_updates

    def parameters(self) -> list[nn.Parameter]:
        """What the critic's own optimizer moves. The language head of its backbone has no part in a value."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The same by name."""
        own = [(f"head.{name}", parameter) for name, parameter in self.head.named_parameters()]
        if self._backbone is None:
            return own
        return own + [
            (f"backbone.{name}", parameter) for name, parameter in self._backbone.base_model.named_parameters()
        ]

    def values(self, prompt_ids: tuple[tuple[int, ...], ...], tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """The value before each reply token, [B, T] float32; 0 beyond a reply's length."""
        hidden_MD, row_M, column_M = self._forward.hidden(prompt_ids, tokens_BT, lengths_B)
        if self._settings.shares_backbone and self.is_warming_up:
            hidden_MD = hidden_MD.detach()
        values_M = cast(Tensor, self.head(hidden_MD.to(self.head.weight.dtype))).squeeze(-1)
        return torch.zeros(tokens_BT.shape, device=values_M.device).index_put((row_M, column_M), values_M)

    def backward(self, micro: Minibatch, columns: Columns, trained_BT: Tensor, weight_BT: Tensor) -> dict[str, Stat]:
        """Add the gradient of the value loss of one micro-batch. `weight_BT` holds the whole normalisation."""
        values_BT = torch.where(trained_BT, self.values(micro.prompt_ids, micro.tokens_BT, micro.lengths_B), 0.0)
        token_loss = self._settings.loss(values_BT, columns)
        scale = self._settings.coefficient if self._settings.shares_backbone else 1.0
        total = scale * (weight_BT * token_loss.loss_BT).sum()
        total.backward()  # type: ignore[no-untyped-call]
        count = float(trained_BT.sum())
        with torch.no_grad():
            return {
                name: Mean(total=float(torch.where(trained_BT, tensor, 0.0).sum(dtype=torch.float64)), count=count)
                for name, tensor in token_loss.watch.items()
            }

    def clip(self) -> float:
        """Scale the gradients down to their limit; return their norm from before that."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters(), self._settings.max_grad_norm))

    def drop_gradients(self) -> None:
        """Forget the gradients that were added up."""
        self._optimizer.zero_grad(set_to_none=True)

    def update(self) -> None:
        """Make the critic's optimizer step with the gradients that were added up."""
        self._optimizer.step()
        self.drop_gradients()
        if self._copy is not None:
            self._copy.refresh()
        self._updates += 1

    def state(self) -> dict[str, Tensor]:
        """Weights, moments and the count of updates, as the live tensors."""
        state = {name: parameter.detach() for name, parameter in self.named_parameters()}
        state |= {
            f"optimizer.{name}": tensor for name, tensor in moments(self.named_parameters(), self._optimizer).items()
        }
        return state | {"updates": torch.tensor(self._updates)}

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Take back `state` from its file in `folder`. Raises ModelError where the file holds no such critic."""
        stored = self._read(folder / self.FILE)
        for name, parameter in self.named_parameters():
            parameter.copy_(stored[name])
        prefix = "optimizer."
        own = {name.removeprefix(prefix): tensor for name, tensor in stored.items() if name.startswith(prefix)}
        load_moments(self.named_parameters(), self._optimizer, own)
        self._updates = int(stored["updates"])
        if self._copy is not None:
            self._copy.refresh()

    def _read(self, path: Path) -> dict[str, Tensor]:
        if not path.is_file():
            raise ModelError(
                f"{path.parent.parent} was made without a critic, and this algorithm needs one. Begin a new run, or use the "
                "algorithm that the checkpoint was made with."
            )
        stored = load_file(path)
        own = {name: parameter.shape for name, parameter in self.named_parameters()}
        wrong = [name for name, shape in own.items() if name not in stored or stored[name].shape != shape]
        if wrong:
            raise ModelError(
                f"The critic in {path} does not fit this one: {len(wrong)} of its weights are missing or of another shape, "
                f"{wrong[0]} among them. Use the model and critic that the checkpoint was made with."
            )
        return stored
