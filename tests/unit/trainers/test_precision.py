from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from dapo.models.load import load_model
from dapo.trainers.precision import ComputeCopy
from tests.contract.parts import model_config

Tiny = Callable[..., Path]
TOKENS = torch.tensor([[20, 30, 40, 50]])


def test_in_float32_nothing_is_copied(tiny: Tiny) -> None:
    master = load_model(model_config(tiny()), torch.float32)
    copy = ComputeCopy(master, torch.float32)
    assert copy.model is master
    copy.refresh()


def test_gradients_of_the_narrow_copy_are_added_up_at_the_wide_weights(tiny: Tiny) -> None:
    master = load_model(model_config(tiny()), torch.float32)
    copy = ComputeCopy(master, torch.bfloat16)
    once: list[torch.Tensor] = []
    for times in (1, 2):
        copy.model(input_ids=TOKENS).logits.float().square().mean().backward()
        found = [parameter.grad.clone() for parameter in master.parameters() if parameter.grad is not None]
        once = once or found
        assert all(gradient.dtype is torch.float32 for gradient in found)
        assert all(torch.equal(one, times * other) for one, other in zip(found, once, strict=True))
        assert all(parameter.grad is None for parameter in copy.model.parameters())
    assert len(once) == len(list(master.parameters())) and any(bool(gradient.any()) for gradient in once)


def test_the_copy_follows_an_update_when_it_is_refreshed_and_not_before(tiny: Tiny) -> None:
    master = load_model(model_config(tiny(tied=True)), torch.float32)
    copy = ComputeCopy(master, torch.bfloat16)
    wide, narrow = (model.get_input_embeddings().weight for model in (master, copy.model))
    with torch.no_grad():
        wide.add_(1.0)
    assert not torch.equal(narrow, wide.bfloat16())
    copy.refresh()
    assert torch.equal(narrow, wide.bfloat16())
    assert copy.model.get_output_embeddings().weight is narrow  # tied weights stay tied
    assert wide.dtype is torch.float32


def test_the_gradients_memory_is_used_again_and_holds_the_sum_of_each_updates_micro_batches(tiny: Tiny) -> None:
    master = load_model(model_config(tiny(kind="qwen2")), torch.float32)
    copy = ComputeCopy(master, torch.bfloat16)
    alone = load_model(model_config(tiny(kind="qwen2")), torch.bfloat16)
    updates = [[20, 30, 40, 50], [60, 21, 9, 33]], [[11, 12, 13, 14], [15, 16, 17, 18], [70, 80, 19, 20]], [[44, 45]]
    places: list[int] = []
    for number, micro_batches in enumerate(updates):
        wanted = [torch.zeros_like(parameter) for parameter in master.parameters()]
        for tokens in micro_batches:
            copy.model(input_ids=torch.tensor([tokens])).logits.float().square().mean().backward()
            alone.zero_grad()
            alone(input_ids=torch.tensor([tokens])).logits.float().square().mean().backward()
            for total, parameter in zip(wanted, alone.parameters(), strict=True):
                assert parameter.grad is not None
                total += parameter.grad
        gradients = [parameter.grad for parameter in master.parameters() if parameter.grad is not None]
        assert len(gradients) == len(wanted)
        assert all(gradient.dtype is torch.float32 for gradient in gradients)
        assert all(torch.equal(gradient, total) for gradient, total in zip(gradients, wanted, strict=True))
        places = places or [gradient.data_ptr() for gradient in gradients]
        assert [gradient.data_ptr() for gradient in gradients] == places, number
        for parameter in master.parameters():
            parameter.grad = None  # as `zero_grad(set_to_none=True)` between updates
