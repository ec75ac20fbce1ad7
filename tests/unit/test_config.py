from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dapo.config import (
    RunConfig,
    apply_overrides,
    derived_numbers,
    load_config,
    parse_config,
    remarks,
)
from dapo.errors import ConfigError, RequestError
from dapo.sampling_plan import evaluation_sampling, held_out_problems, training_sampling
from dapo.types import Sampling
from tests.fakes import FakeTask, problems

RECIPE = """
steps = 4

[model]
path = "some/model"

[task]
type = "arithmetic"

[batch]
groups_per_step = 8
group_size = 4
updates_per_step = 2
max_tokens = 40
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def refusal(recipe: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(recipe, overrides)
    assert refused.value.exit_code == 2
    return str(refused.value)


# Reading


def test_a_recipe_is_its_file_over_the_defaults(recipe: Path) -> None:
    config = load_config(recipe)
    assert (config.steps, config.seed, config.model.path) == (4, 0, "some/model")
    assert (config.batch.groups_per_step, config.batch.max_prompt_tokens) == (8, 2048)
    assert config.algorithm.type == "dapo" and config.checkpoint.keep == 2


def test_the_defaults_are_the_paper_s() -> None:
    content = {"steps": 1, "model": {"path": "m"}, "task": {"type": "arithmetic"}}
    config = parse_config(content, what="it")
    assert config.batch.model_dump() == {
        "groups_per_step": 512,
        "group_size": 16,
        "updates_per_step": 16,
        "max_tokens": 20480,
        "max_prompt_tokens": 2048,
        "overlong_prompts": "refuse",
        "temperature": 1.0,
        "epochs": None,
        "overlap": False,
        "scoring_seconds": 300.0,
        "judging_seconds": 0.5,
        "max_skipped_in_a_row": 3,
    }
    assert (config.evaluation.temperature, config.evaluation.top_p) == (1.0, 0.7)
    trainer = config.trainer
    assert (trainer.learning_rate, trainer.weight_decay, trainer.max_grad_norm) == (1e-6, 0.1, 1.0)
    assert (trainer.beta1, trainer.beta2) == (0.9, 0.999)


def test_overrides_go_over_the_recipe_and_the_last_one_counts(recipe: Path) -> None:
    overrides = ["algorithm.type=dapo", "algorithm.clip_high=0.3", "seed=7", "seed = 8", "batch.epochs=2"]
    config = load_config(recipe, overrides)
    assert config.algorithm.model_dump()["clip_high"] == 0.3
    assert (config.seed, config.batch.epochs) == (8, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-5", 1e-5),
        ("true", True),
        ("abc", "abc"),
        ('"3"', "3"),
        ('["+", "-"]', ["+", "-"]),
        ("{ a = 1 }", {"a": 1}),
        ("a/b-c", "a/b-c"),
        ("x=y", "x=y"),
        ("", ""),
        ("105263157894736842", 105263157894736842),
    ],
)
def test_an_override_s_value_is_toml_and_what_is_not_is_text(text: str, value: object) -> None:
    content: dict[str, Any] = {}
    apply_overrides(content, [f"task.options.x={text}"])
    assert content == {"task": {"options": {"x": value}}}


def test_a_config_can_be_written_and_read_again(recipe: Path) -> None:
    config = load_config(recipe, ["algorithm.type=grpo", "task.operations=['+']"])
    assert parse_config(config.model_dump(mode="json"), what="config.json") == config


def test_a_config_is_read_only(recipe: Path) -> None:
    config = load_config(recipe)
    with pytest.raises(ValidationError, match="frozen"):
        config.steps = 5  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        config.batch.group_size = 5  # type: ignore[misc]


def test_every_part_of_a_recipe_refuses_names_that_it_does_not_know_and_explains_those_it_does() -> None:
    parts = RunConfig.model_json_schema()["$defs"]
    assert {"DAPOConfig", "GRPOConfig", "DynamicSampling", "BatchConfig", "CheckpointConfig"} <= set(parts)
    for title, part in parts.items():
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, title
            assert part["description"], title
            unexplained = [name for name, field in part["properties"].items() if "description" not in field]
            assert set(unexplained) <= {"type"}, title


# Refusals


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path / "none.toml")
    assert message.startswith(f"The recipe {tmp_path / 'none.toml'} is not a file") and "recipes/" in message
    assert "is not a file" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"steps = = 3", b"[model", b"\xff\xfe"])
def test_a_recipe_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert refusal(path).startswith(f"The recipe {path} is not valid TOML: ")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["algorithm.type=dapo", "algorithm.clip_hihg=0.3"], ["algorithm.clip_hihg: no such field", "'clip_high'"]),
        (["sepps=3"], ["sepps: no such field", "'steps'"]),
        (["steps=0"], ["steps = 0", "greater than or equal to 1"]),
        (["seed=-1"], ["seed = -1", "greater than or equal to 0"]),
        (["batch.temperature=1e-300"], ["batch.temperature = 1e-300", "greater than or equal to 0.001"]),
        (["evaluation.temperature=1e-300"], ["evaluation.temperature: 1e-300", "neither greedy", "at least 0.001"]),
        (["batch.temperature=0"], ["batch.temperature = 0", "greater than or equal to 0.001"]),
        (["trainer.type=local", "trainer.learning_rate=nan"], ["trainer.learning_rate = nan", "finite"]),
        (["checkpoint.keep=0"], ["checkpoint.keep = 0"]),
        (["evaluation.min_p=1"], ["evaluation.min_p = 1", "less than 1"]),
        (["algorithm.type=dapo", "algorithm.dual_clip=0.2"], ["algorithm.dual_clip = 0.2", "greater than 1"]),
        (["algorithm.type=dapo", "algorithm.dual_clip=1"], ["algorithm.dual_clip = 1", "greater than 1"]),
        (["batch.top_p=0.9"], ["batch.top_p: no such field", "top-p is refused in training", "[evaluation]"]),
        (["batch.top_k=20"], ["batch.top_k: no such field", "top-k is refused in training", "[evaluation]"]),
        (
            ["algorithm.type=dapo", "algorithm.soft_overlong.cache=40"],
            [
                "soft_overlong.cache = 40 leaves no length unpunished",
                "max_length (40)",
                "soft_overlong.enabled = false",
            ],
        ),
        (
            ["algorithm.type=dapo", "algorithm.soft_overlong.max_length=20", "algorithm.soft_overlong.cache=21"],
            ["soft_overlong.cache = 21", "= -1 tokens"],
        ),
        (["batch.group_size=1"], ["batch.group_size = 1", 'algorithm "dapo"', "dynamic sampling", "group_size >= 2"]),
        (["batch.updates_per_step=9"], ["batch.updates_per_step = 9 is more than batch.groups_per_step = 8"]),
        (["model.path="], ["model.path = ''"]),
        (["nonsense"], ["-o 'nonsense' is not of the form key=value", "-o algorithm.clip_high=0.3"]),
        (["=3"], ["is not of the form key=value"]),
        (["batch..x=3"], ["is not of the form key=value"]),
        (["steps.x=3"], ["-o 'steps.x=3'", "'steps' is a value and has no fields"]),
    ],
)
def test_what_cannot_be_is_refused_in_words(recipe: Path, overrides: list[str], words: list[str]) -> None:
    message = refusal(recipe, *overrides)
    for word in words:
        assert word in message


def test_all_faults_are_told_at_once(recipe: Path) -> None:
    message = refusal(recipe, "steps=0", "model.pth=x", "checkpoint.keep=0")
    assert message.startswith(f"{recipe} cannot be used:\n")
    assert [line.split()[1] for line in message.splitlines()[1:]] == ["steps", "model.pth:", "checkpoint.keep"]


def test_a_group_of_one_is_refused_only_where_it_would_be_dropped(recipe: Path) -> None:
    config = load_config(recipe, ["batch.group_size=1", "algorithm.type=grpo"])
    assert any("a group of one has advantage 0" in remark for remark in remarks(config))


@pytest.mark.parametrize(
    ("overrides", "compares"),
    [
        (["algorithm.type=ppo"], False),
        (["algorithm.type=reinforce_plus_plus"], False),
        (["algorithm.type=reinforce_plus_plus", "algorithm.group_baseline=true"], True),
        (["algorithm.type=rloo"], True),
        (["algorithm.type=custom", "algorithm.path=mine:make"], False),
    ],
)
def test_a_group_of_one_is_pointed_out_only_where_replies_are_compared(
    recipe: Path, overrides: list[str], compares: bool
) -> None:
    said = remarks(load_config(recipe, ["batch.group_size=1", *overrides]))
    assert any("a group of one has advantage 0" in remark for remark in said) is compares


def test_a_punishment_that_is_off_makes_no_demands(recipe: Path) -> None:
    off = ["algorithm.type=dapo", "algorithm.soft_overlong.enabled=false"]
    assert not load_config(recipe, off).algorithm.soft_overlong.enabled
    assert (
        load_config(recipe, [*off, "algorithm.soft_overlong.cache=99999", "batch.max_tokens=1"]).batch.max_tokens == 1
    )
    assert load_config(recipe, ["algorithm.type=grpo", "batch.max_tokens=1"])
    assert load_config(recipe).algorithm.soft_overlong.resolve(40) == (40, 8, 1.0)


# Remarks


def remarks_of(recipe: Path, *overrides: str) -> list[str]:
    return remarks(load_config(recipe, overrides))


def test_a_recipe_without_surprises_has_no_remark(recipe: Path) -> None:
    assert remarks_of(recipe) == []


def test_with_one_update_a_rollout_the_clip_cannot_act_and_that_is_said(recipe: Path) -> None:
    (remark,) = remarks_of(recipe, "batch.updates_per_step=1")
    assert "the ratio is 1 and no clip can act" in remark and "2 or more updates" in remark


def test_filtering_and_punishing_truncated_replies_together_is_explained(recipe: Path) -> None:
    (remark,) = remarks_of(recipe, "algorithm.type=dapo", "algorithm.overlong_filtering=true")
    assert "overlong_filtering and algorithm.soft_overlong are both on" in remark
    assert "truncated replies do not train at all" in remark and "mean of their group" in remark
    assert remarks_of(recipe, "algorithm.type=grpo", "algorithm.overlong_filtering=true") == []


def test_a_slope_that_ends_beyond_the_limit_is_pointed_out(recipe: Path) -> None:
    (remark,) = remarks_of(recipe, "algorithm.type=dapo", "algorithm.soft_overlong.max_length=50")
    assert "max_length = 50 lies above batch.max_tokens = 40" in remark


# What follows from it


def test_the_numbers_that_follow(recipe: Path) -> None:
    config = load_config(recipe, ["trainer.type=local", "trainer.warmup_updates=5"])
    assert derived_numbers(config) == {
        "replies a step": 32,
        "replies an update": 16,
        "updates a step": 2,
        "updates in all": 8,
        "warm-up, in steps": 3,
        "groups in a step's first round": 8,
        "prompt tokens a step, at most, each prompt once": 16384,
        "reply tokens a step, at most, without groups that are replaced": 1280,
        "positions a reply, at most, prompt and reply": 2088,
    }


def test_the_numbers_that_follow_where_groups_do_not_divide_evenly_and_rounds_are_larger(recipe: Path) -> None:
    overrides = ["batch.groups_per_step=5", "batch.group_size=4", "batch.updates_per_step=2"]
    dynamic = ["algorithm.type=dapo", "algorithm.dynamic_sampling.oversample=1.5"]
    numbers = derived_numbers(load_config(recipe, overrides + dynamic))
    assert (numbers["replies a step"], numbers["replies an update, at most"]) == (20, 12)
    assert "replies an update" not in numbers
    assert numbers["groups in a step's first round"] == 8
    switched_off = [*dynamic, "algorithm.dynamic_sampling.enabled=false"]
    assert derived_numbers(load_config(recipe, overrides + switched_off))["groups in a step's first round"] == 5


def test_training_draws_from_the_policy_itself_and_evaluation_as_it_is_told(recipe: Path) -> None:
    config = load_config(recipe, ["batch.temperature=0.6", "evaluation.top_k=5", "evaluation.min_p=0.1"])
    assert training_sampling(config) == Sampling(temperature=0.6, max_tokens=40)
    assert evaluation_sampling(config) == Sampling(temperature=1.0, max_tokens=40, top_p=0.7, top_k=5, min_p=0.1)
    longer = load_config(recipe, ["evaluation.max_tokens=90"])
    assert evaluation_sampling(longer).max_tokens == 90


def test_the_problems_that_are_measured_are_the_first_ones_and_there_must_be_some(recipe: Path) -> None:
    task = FakeTask(held_out=problems(5))
    assert held_out_problems(load_config(recipe), task) == problems(5)
    assert held_out_problems(load_config(recipe, ["evaluation.problems=2"]), task) == problems(5)[:2]
    with pytest.raises(RequestError, match=r"no held-out problems.*evaluation\.enabled = false"):
        held_out_problems(load_config(recipe), FakeTask())


def test_groups_that_would_be_too_old_when_they_are_used_are_refused() -> None:
    def made(batch: dict[str, Any], dynamic: dict[str, Any]) -> RunConfig:
        algorithm = {"type": "dapo", "dynamic_sampling": dynamic}
        content = {"steps": 1, "model": {"path": "m"}, "task": {"type": "arithmetic"}}
        return parse_config(content | {"batch": batch, "algorithm": algorithm}, what="it")

    four = {"updates_per_step": 4}
    with pytest.raises(ConfigError, match=r"max_staleness = 3 does not allow groups that old. Use max_staleness >= 4"):
        made({**four, "overlap": True}, {"max_staleness": 3})
    with pytest.raises(ConfigError, match=r"max_staleness = 3 is less than batch.updates_per_step = 4"):
        made(four, {"max_staleness": 3})
    assert made({**four, "overlap": True}, {"max_staleness": 4}).batch.overlap
    assert made(four, {"max_staleness": 0}).algorithm.dynamic_sampling.max_staleness == 0
    with pytest.raises(ConfigError, match=r"max_groups = 5 is less than batch.groups_per_step = 6"):
        made({"updates_per_step": 1, "groups_per_step": 6}, {"max_groups": 5})
    assert made({"updates_per_step": 1, "groups_per_step": 6}, {"max_groups": 6}).algorithm.dynamic_sampling.max_groups
