"""A change that should not alter results leaves the stored trajectories as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.make import ALGORITHMS, HERE, STEPS, furnish, trajectory

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    furnish(folder)
    return folder


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_twenty_steps_go_as_they_went(shop: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    stored = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    assert [step["step"] for step in stored] == list(range(1, STEPS + 1))

    found = trajectory(name, shop / "runs" / name)

    for one, other in zip(found, stored, strict=True):
        # A mean over comparisons within groups is 0 but for rounding where no ratio has moved.
        assert one == pytest.approx(other, rel=TOLERANCE, abs=2e-6), f"step {other['step']} of {name}"


def test_every_algorithm_has_a_trajectory_and_no_trajectory_is_idle() -> None:
    import typing

    from dapo.algorithms.config import AlgorithmConfig

    kinds = {kind.model_fields["type"].default for kind in typing.get_args(typing.get_args(AlgorithmConfig)[0])}
    assert {settings[0].removeprefix("type=") for settings in ALGORITHMS.values()} == kinds - {"custom"}
    assert {path.stem for path in HERE.glob("*.json")} == set(ALGORITHMS)
