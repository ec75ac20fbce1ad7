from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dapo.config import derived_numbers, load_config, parse_config, remarks

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
every_recipe = pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.stem)


def test_there_are_recipes() -> None:
    assert (RECIPES / "quickstart.toml").is_file()


@every_recipe
def test_it_loads_and_can_be_written_and_read_again(path: Path) -> None:
    config = load_config(path)
    assert parse_config(config.model_dump(mode="json"), what=path.name) == config


@every_recipe
def test_its_algorithm_can_be_built_and_its_numbers_make_sense(path: Path) -> None:
    config = load_config(path)
    assert callable(config.algorithm.build(config.batch.max_tokens).loss)
    numbers = derived_numbers(config)
    assert numbers["updates in all"] == config.steps * config.batch.updates_per_step
    assert numbers["replies an update"] * config.batch.updates_per_step == numbers["replies a step"]
    assert all(isinstance(remark, str) for remark in remarks(config))


@every_recipe
def test_it_names_its_model_its_task_and_its_steps(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {"steps", "model", "task"} <= set(content)


def test_the_quickstart_is_the_recipe_that_it_is_said_to_be() -> None:
    config = load_config(RECIPES / "quickstart.toml")
    assert config.algorithm.type == "dapo" and config.task.type == "arithmetic"
    assert remarks(config) == []
