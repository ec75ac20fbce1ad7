"""The algorithm that docs/algorithms/relatives.md shows as one of your own is complete, and runs."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from dapo.algorithms.custom import CustomConfig
from dapo.algorithms.value import ADVANTAGES, Algorithm
from dapo.batching import pack
from dapo.config import load_config
from dapo.errors import ConfigError
from dapo.run import train_run
from dapo.types import Batch
from tests.fakes import scored, scored_group
from tests.unit.test_docs import ROOT, code_blocks

PAGE = ROOT / "docs" / "algorithms" / "relatives.md"
RECIPE = """
steps = 1
model.path = "{model}"
task = {{ type = "arithmetic", train = 8, held_out = 2 }}
algorithm = {{ type = "custom", path = "my_algorithm:imitate", options = {{ threshold = -2.0 }} }}
batch = {{ groups_per_step = 2, group_size = 2, updates_per_step = 1, max_tokens = 6, max_prompt_tokens = 128 }}
trainer = {{ learning_rate = 0.01 }}
evaluation = {{ enabled = false }}
report = {{ console = false }}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that holds the page's `my_algorithm.py`."""
    (source,) = code_blocks(PAGE, "python")
    assert source.startswith("# my_algorithm.py\n")
    (tmp_path / "my_algorithm.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_algorithm", None)


def shown() -> CustomConfig:
    blocks = [tomllib.loads(block)["algorithm"] for block in code_blocks(PAGE, "toml")]
    (section,) = [block for block in blocks if block["type"] == "custom"]
    return CustomConfig.model_validate(section)


def batch_of(*rewards: float) -> Batch:
    return pack([scored_group(*(scored(correct=reward > 0, reward=reward) for reward in rewards))])


def test_it_trains_on_the_replies_above_the_threshold_that_the_recipe_gives_it(own: Path) -> None:
    algorithm = shown().build(max_tokens=40)
    assert isinstance(algorithm, Algorithm) and algorithm.needs == frozenset()
    batch = batch_of(1.0, 0.4, -1.0)
    labelled = algorithm.label(batch, {})
    assert labelled.trained_BT.any(dim=1).tolist() == [True, False, False]
    logprobs_BT = torch.full(batch.mask_BT.shape, -0.5, requires_grad=True)
    weight_BT = algorithm.weigh(labelled.trained_BT, batch.group_B)
    loss = (weight_BT * algorithm.loss(logprobs_BT, {ADVANTAGES: labelled.columns[ADVANTAGES]}).loss_BT).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0.5)
    assert logprobs_BT.grad is not None
    assert logprobs_BT.grad[0].sum().item() == pytest.approx(-1.0) and not logprobs_BT.grad[1:].any()


def test_it_filters_groups_as_the_recipe_says(own: Path) -> None:
    algorithm = shown().build(max_tokens=40)
    all_right = scored_group(scored(correct=True, reward=1.0), scored(correct=True, reward=1.0))
    assert algorithm.judge(all_right).value == "all_right"


def test_it_runs_from_a_recipe(own: Path, tiny: Callable[..., Path]) -> None:
    (own / "mine.toml").write_text(RECIPE.format(model=tiny()), encoding="utf-8")
    result = train_run(load_config(own / "mine.toml"), own / "run")
    assert result.outcome.steps == 1
    (line,) = (own / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = json.loads(line)
    assert metrics["optim/updates"] == 1 and metrics["optim/loss"] > 0 and metrics["optim/grad_norm"] > 0
    assert metrics["tokens/trained"] == metrics["sampling/tokens_generated"]


def test_a_maker_that_returns_something_else_is_refused(own: Path) -> None:
    (own / "my_algorithm.py").write_text(
        "def imitate(config, max_tokens, threshold):\n    return 7\n", encoding="utf-8"
    )
    with pytest.raises(
        ConfigError, match=r"my_algorithm:imitate' returned int, not a dapo\.algorithms\.value\.Algorithm"
    ):
        shown().build(max_tokens=40)
