"""The frozen reference: a copy of the policy as it was, in the precision of the trainer's passes."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from dapo.algorithms.value import ReferenceSettings
from dapo.trainers.forward import Forward, pick_forward

_WEIGHTS = "reference.safetensors"


class Reference:
    """Begins as the policy that the run starts from. Loaded only where an algorithm asks for it."""

    def __init__(self, settings: ReferenceSettings, policy: PreTrainedModel, obstacle: str | None) -> None:
        self._settings = settings
        self._model = copy.deepcopy(policy)
        self._model.requires_grad_(False)
        self.forward: Forward = pick_forward(self._model, obstacle)

    @torch.no_grad()
    def refresh_if_due(self, updates: int, policy: PreTrainedModel) -> None:
        """Take over the policy after every so many updates."""
        every = self._settings.refresh_updates
        if every is not None and updates % every == 0:
            for own, new in zip(self._model.parameters(), policy.parameters(), strict=True):
                own.copy_(new)

    def save(self, folder: Path) -> None:
        """Write the weights, unless they are still those that the run started from."""
        if self._settings.refresh_updates is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.cpu().contiguous() for name, tensor in self._named().items()}, folder / _WEIGHTS)

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Take back what `save` wrote, if it wrote anything."""
        if not (folder / _WEIGHTS).is_file():
            return
        stored = load_file(folder / _WEIGHTS)
        for name, tensor in self._named().items():
            tensor.copy_(stored[name])

    def _named(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() for name, parameter in self._model.named_parameters()}
