"""The frozen reference: a copy of the policy as it was, in the precision of the trainer's passes."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from dapo.algorithms.value import ReferenceSettings
from dapo.trainers.forward import Forward
from dapo.trainers.pick import MakeForward


class Reference:
    """Begins as the policy that the run starts from. Loaded only where an algorithm asks for it."""

    FILE = "reference.safetensors"
    """Where its state lies in a checkpoint, if it has any."""

    def __init__(self, settings: ReferenceSettings, policy: PreTrainedModel, make_forward: MakeForward) -> None:
        self._settings = settings
        self._model = copy.deepcopy(policy)
        self._model.requires_grad_(False)
        self.forward: Forward = make_forward(self._model)

    @torch.no_grad()
    def refresh_if_due(self, updates: int, policy: PreTrainedModel) -> None:
        """Take over the policy after every so many updates."""
        every = self._settings.refresh_updates
        if every is not None and updates % every == 0:
            for own, new in zip(self._model.parameters(), policy.parameters(), strict=True):
                own.copy_(new)

    def state(self) -> dict[str, torch.Tensor]:
        """The live weights; nothing while they are those that the run started from."""
        return {} if self._settings.refresh_updates is None else self._named()

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Take back `state` from its file in `folder`, if there is one."""
        if not (folder / self.FILE).is_file():
            return
        stored = load_file(folder / self.FILE)
        for name, tensor in self._named().items():
            tensor.copy_(stored[name])

    def _named(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() for name, parameter in self._model.named_parameters()}
