from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dapo.algorithms.config import GRPOConfig, PPOConfig
from dapo.algorithms.value import REFERENCE_LOGPROBS
from dapo.config import derived_numbers, load_config, parse_config, remarks

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
QUICKSTARTS = ("quickstart.toml", "quickstart-dapo.toml", "quickstart-grpo.toml", "quickstart-ppo.toml")
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
    assert numbers["updates a step"] == config.batch.updates_per_step
    assert numbers["replies an update"] * config.batch.updates_per_step == numbers["replies a step"]
    assert all(isinstance(remark, str) for remark in remarks(config))


@every_recipe
def test_it_names_its_model_its_task_and_its_steps(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {"steps", "model", "task"} <= set(content)


@every_recipe
def test_nothing_is_to_be_said_against_it(path: Path) -> None:
    assert remarks(load_config(path)) == []


def test_the_quickstart_that_make_runs_is_that_of_dapo_comments_aside() -> None:
    quickstart, of_dapo = (tomllib.loads((RECIPES / name).read_text(encoding="utf-8")) for name in QUICKSTARTS[:2])
    assert quickstart == of_dapo


@pytest.mark.parametrize("name", QUICKSTARTS[1:])
def test_a_quickstart_differs_from_the_others_in_its_algorithm_alone(name: str) -> None:
    mine, first = (tomllib.loads((RECIPES / each).read_text(encoding="utf-8")) for each in (name, QUICKSTARTS[0]))
    assert mine.pop("algorithm")["type"] == name.removeprefix("quickstart-").removesuffix(".toml")
    del first["algorithm"]
    assert mine == first
    assert "\n# reached: " in (RECIPES / name).read_text(encoding="utf-8")


def test_the_critic_of_the_quickstart_warms_up_within_the_run_and_leaves_the_policy_time() -> None:
    config = load_config(RECIPES / "quickstart-ppo.toml")
    assert isinstance(config.algorithm, PPOConfig)
    assert 0 < config.algorithm.critic.warmup_updates <= config.steps * config.batch.updates_per_step // 10


def test_grpo_of_the_quickstart_measures_against_a_reference() -> None:
    config = load_config(RECIPES / "quickstart-grpo.toml")
    assert isinstance(config.algorithm, GRPOConfig)
    assert 0.001 <= config.algorithm.kl_beta <= 0.04
    assert REFERENCE_LOGPROBS in config.algorithm.build(config.batch.max_tokens).needs


def test_the_quickstart_is_the_recipe_that_it_is_said_to_be() -> None:
    config = load_config(RECIPES / "quickstart.toml")
    assert config.algorithm.type == "dapo" and config.task.type == "arithmetic"
    assert remarks(config) == []
