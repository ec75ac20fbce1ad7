from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dapo.trainers.state import load_trainer_state, moments, save_trainer_state


def made(seed: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, whole: bool = True) -> None:
    optimizer.zero_grad()
    assert isinstance(model, nn.Sequential)
    (model if whole else model[0])(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def test_moments_and_counters_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = made(1)
    step(model, optimizer)
    step(model, optimizer)
    save_trainer_state(tmp_path / "trainer", model, optimizer, updates=2)
    other, fresh = made(1)
    other.load_state_dict(model.state_dict())

    assert load_trainer_state(tmp_path / "trainer", other, fresh) == 2

    for _ in range(2):
        step(model, optimizer)
        step(other, fresh)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


def test_a_parameter_that_was_never_updated_has_no_moments(tmp_path: Path) -> None:
    model, optimizer = made(2)
    step(model, optimizer, whole=False)
    names = {name.rpartition("/")[0] for name in moments(model.named_parameters(), optimizer)}
    assert names == {"0.weight", "0.bias"}
    save_trainer_state(tmp_path, model, optimizer, updates=1)
    other, fresh = made(2)
    assert load_trainer_state(tmp_path, other, fresh) == 1
    assert len(fresh.state) == 2


def test_what_is_written_is_json_and_safetensors(tmp_path: Path) -> None:
    model, optimizer = made(3)
    step(model, optimizer)
    save_trainer_state(tmp_path, model, optimizer, updates=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["optimizer.safetensors", "trainer.json"]
    assert (tmp_path / "trainer.json").read_text(encoding="utf-8") == '{"updates": 7}\n'
