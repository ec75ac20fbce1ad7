from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from dapo.algorithms.custom import CustomConfig
from dapo.algorithms.value import Algorithm
from dapo.batching import pack
from dapo.errors import ConfigError
from dapo.types import Reason
from tests.fakes import scored, scored_group
from tests.golden.make import ALGORITHMS, furnish, trajectory

MODULE = """
from dapo.algorithms.objectives import reinforce_loss
from dapo.algorithms.value import Algorithm
from dapo.maths.weights import token_mean


def sign_of_reward(rewards_B, group_B, counted_B):
    return rewards_B.sign()


def make(config, max_tokens, *, factor=1.0):
    if factor <= 0:
        raise ValueError(f"factor = {factor} would unlearn")
    return Algorithm(
        needs=frozenset(),
        judge=config.judge(),
        penalise=config.penalise(max_tokens),
        label=config.label_by_group(lambda *columns: factor * sign_of_reward(*columns)),
        weigh=token_mean,
        loss=reinforce_loss(),
    )


def make_nothing(config, max_tokens):
    return None


constant = 3
"""
NAME = "an_algorithm_of_my_own"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a user's module in the working directory, forgotten after the test."""
    (tmp_path / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return NAME


def test_a_maker_gets_the_section_the_limit_and_its_options_and_brings_only_what_is_new(module: str) -> None:
    config = CustomConfig.model_validate(
        {
            "path": f"{module}:make",
            "options": {"factor": 2.5},
            "dynamic_sampling": {"enabled": True},
            "soft_overlong": {"enabled": True, "cache": 5},
        }
    )
    algorithm = config.build(10)
    assert isinstance(algorithm, Algorithm)
    replies = (scored(0.5), scored(-3, length=2))
    assert algorithm.judge(scored_group(scored(1), scored(1))) is Reason.ALL_RIGHT
    assert algorithm.penalise(scored(1, length=9).rollout) == {"overlong": -0.8}
    labelled = algorithm.label(pack([scored_group(*replies)]), {})
    assert labelled.columns["advantages"].tolist() == [[2.5, 0.0], [-2.5, -2.5]]
    logprobs_BT = torch.full((2, 2), -0.5)
    assert algorithm.loss(logprobs_BT, labelled.columns).loss_BT.tolist() == [[1.25, 0.0], [-1.25, -1.25]]


def test_it_trains_end_to_end(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(tmp_path)
    monkeypatch.setitem(ALGORITHMS, "own", ("type=custom", f"path={module}:make", "options.factor=0.5"))
    steps = trajectory("own", tmp_path / "run")

    assert [step["step"] for step in steps] == list(range(1, 21))
    assert all(step["optim/grad_norm"] > 0 for step in steps)
    assert steps[-1]["reward/mean"] > steps[0]["reward/mean"] + 0.5
    stored = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["algorithm"]
    assert (stored["type"], stored["path"], stored["options"]) == ("custom", f"{module}:make", {"factor": 0.5})


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("make", {}, "does not name an object"),
        ("no_such_module_here:make", {}, "no module 'no_such_module_here'"),
        (f"{NAME}:mak", {}, "did you mean 'make'"),
        (f"{NAME}:constant", {}, "is a int and cannot be called"),
        (f"{NAME}:make_nothing", {}, "returned NoneType, not a dapo.algorithms.value.Algorithm"),
        (f"{NAME}:make", {"facto": 1}, "raised TypeError: .*'facto'; correct the maker or algorithm.options"),
        (f"{NAME}:make", {"factor": -1}, "raised ValueError: factor = -1 would unlearn"),
    ],
)
def test_what_is_wrong_with_a_maker_is_said(module: str, path: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CustomConfig.model_validate({"path": path, "options": options}).build(10)
