from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dapo.trainers.state import Buffers, load_trainer_state, moments, take_snapshot


def made(seed: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, whole: bool = True) -> None:
    optimizer.zero_grad()
    assert isinstance(model, nn.Sequential)
    (model if whole else model[0])(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def write(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, updates: int) -> None:
    take_snapshot(model, optimizer, {}, updates=updates, buffers=Buffers()).write_parts(folder)  # type: ignore[arg-type]


def test_moments_and_counters_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = made(1)
    step(model, optimizer)
    step(model, optimizer)
    write(tmp_path / "trainer", model, optimizer, updates=2)
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
    write(tmp_path, model, optimizer, updates=1)
    other, fresh = made(2)
    assert load_trainer_state(tmp_path, other, fresh) == 1
    assert len(fresh.state) == 2


def test_what_is_written_is_json_and_safetensors(tmp_path: Path) -> None:
    model, optimizer = made(3)
    step(model, optimizer)
    write(tmp_path, model, optimizer, updates=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["optimizer.safetensors", "trainer.json"]
    assert (tmp_path / "trainer.json").read_text(encoding="utf-8") == '{"updates": 7}\n'


def test_a_snapshot_is_apart_from_what_it_was_taken_of() -> None:
    model, optimizer = made(4)
    step(model, optimizer)
    snapshot = take_snapshot(model, optimizer, {"more.safetensors": {"a": torch.ones(2)}}, updates=1, buffers=Buffers())  # type: ignore[arg-type]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step(model, optimizer)
    assert snapshot.policy.keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot.policy.items())
    assert snapshot.parts["optimizer.safetensors"]["0.weight/step"].item() == 1
    assert optimizer.state[next(model.parameters())]["step"].item() == 2
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert snapshot.num_bytes == 3 * weights + 4 * 4 + 2 * 4  # weights, two moments, four counts of steps, and `a`


def test_one_tensor_under_two_names_stays_one_and_is_counted_once() -> None:
    model = nn.ModuleDict({"embed": nn.Linear(3, 3, bias=False), "head": nn.Linear(3, 3, bias=False)})
    model["head"].weight = model["embed"].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    snapshot = take_snapshot(model, optimizer, {"none.safetensors": {}}, updates=0, buffers=Buffers())  # type: ignore[arg-type]
    assert snapshot.policy["embed.weight"] is snapshot.policy["head.weight"]
    assert snapshot.num_bytes == 3 * 3 * 4
    assert list(snapshot.parts) == ["optimizer.safetensors"]


def test_the_next_snapshot_takes_the_memory_of_the_last() -> None:
    buffers = Buffers()
    first = buffers.copy("policy", {"a": torch.ones(3), "b": torch.ones(2)})
    second = buffers.copy("policy", {"a": torch.zeros(3), "b": torch.zeros(4)})
    assert second["a"] is first["a"] and second["a"].tolist() == [0.0, 0.0, 0.0]
    assert second["b"] is not first["b"] and second["b"].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert buffers.copy("optimizer", {"a": torch.ones(3)})["a"] is not second["a"]
