from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from dapo.algorithms.value import ReferenceSettings
from dapo.models.load import load_model
from dapo.trainers.forward import PaddedForward
from dapo.trainers.reference import Reference
from tests.contract.parts import model_config

Tiny = Callable[..., Path]


def opened(tiny: Tiny, refresh_updates: int | None) -> tuple[PreTrainedModel, Reference]:
    policy = load_model(model_config(tiny()), torch.float32)
    return policy, Reference(ReferenceSettings(refresh_updates=refresh_updates), policy, PaddedForward)


def weights(reference: Reference) -> torch.Tensor:
    return reference.forward.model.get_input_embeddings().weight.detach().clone()


def move(policy: PreTrainedModel) -> None:
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)


def test_it_is_a_frozen_copy_of_the_policy_as_it_was(tiny: Tiny) -> None:
    policy, reference = opened(tiny, None)
    before = weights(reference)
    move(policy)
    assert torch.equal(weights(reference), before)
    assert not any(parameter.requires_grad for parameter in reference.forward.model.parameters())
    assert all(parameter.requires_grad for parameter in policy.parameters())
    for updates in range(5):
        reference.refresh_if_due(updates, policy)
    assert torch.equal(weights(reference), before)


def test_it_takes_over_the_policy_when_that_is_due(tiny: Tiny) -> None:
    policy, reference = opened(tiny, 3)
    before = weights(reference)
    move(policy)
    reference.refresh_if_due(2, policy)
    assert torch.equal(weights(reference), before)
    reference.refresh_if_due(3, policy)
    assert torch.equal(weights(reference), before + 1)


def test_it_is_saved_only_where_it_may_have_changed(tiny: Tiny, tmp_path: Path) -> None:
    _, fixed = opened(tiny, None)
    assert fixed.state() == {}
    fixed.restore(tmp_path)

    policy, reference = opened(tiny, 1)
    move(policy)
    reference.refresh_if_due(1, policy)
    save_file(reference.state(), tmp_path / Reference.FILE)
    _, other = opened(tiny, 1)
    assert not torch.equal(weights(other), weights(reference))
    other.restore(tmp_path)
    assert torch.equal(weights(other), weights(reference))
