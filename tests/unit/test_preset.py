"""The preset says what the paper and the authors' script say, value by value, and where each value comes from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dapo.config import derived_numbers, load_config, parse_config, remarks

PRESET = Path(__file__).resolve().parents[2] / "recipes" / "dapo-qwen2.5-32b.toml"
TEXT = PRESET.read_text(encoding="utf-8")

PAPER_AND_SCRIPT: list[tuple[str, Any, str]] = [
    # name, value, source: P the paper (arXiv 2503.14476), S the authors' script, F the default of its framework
    ("model.path", "Qwen/Qwen2.5-32B", "P 4, S"),
    ("model.chat_template", None, "S: messages rendered with the model's own template"),
    ("task.data.template", "dapo", "S: the instruction stands in the data"),
    ("task.held_out.template", "dapo", "S: the instruction stands in the data"),
    ("task.verifier.name", "dapo", "S reward_manager=dapo"),
    ("algorithm.type", "dapo", "P 3"),
    ("algorithm.clip_low", 0.2, "P 4.1, S clip_ratio_low"),
    ("algorithm.clip_high", 0.28, "P 4.1, S clip_ratio_high"),
    ("algorithm.dual_clip", 10.0, "S clip_ratio_c; not in P"),
    ("algorithm.loss_mean", "token_mean", "P 3.3, S loss_agg_mode=token-mean"),
    ("algorithm.overlong_filtering", False, "S: none; P Table 1 in the ablation alone"),
    ("algorithm.dynamic_sampling.enabled", True, "P 3.2, S enable_filter_groups"),
    ("algorithm.dynamic_sampling.oversample", 3.0, "S gen_prompt_bsz = 3 x 512"),
    ("algorithm.dynamic_sampling.max_rounds", 10, "S max_num_gen_batches"),
    ("algorithm.soft_overlong.enabled", True, "P 3.4, S enable_overlong_buffer"),
    ("algorithm.soft_overlong.max_length", 16384 + 4096, "P 4.1"),
    ("algorithm.soft_overlong.cache", 4096, "P 4.1, S overlong_buffer_len"),
    ("algorithm.soft_overlong.factor", 1.0, "P Eq. 13, S overlong_penalty_factor"),
    ("batch.groups_per_step", 512, "P 4.1, S train_prompt_bsz"),
    ("batch.group_size", 16, "P 4.1, S n_resp_per_prompt"),
    ("batch.updates_per_step", 16, "P 4.1, S 512 / train_prompt_mini_bsz = 512 / 32"),
    ("batch.max_tokens", 20480, "P 4.1, S max_response_length"),
    ("batch.max_prompt_tokens", 2048, "S max_prompt_length"),
    ("batch.temperature", 1.0, "P, S temperature"),
    ("batch.epochs", None, "S total_epochs=1 over about a hundred copies; the steps say it here"),
    ("trainer.learning_rate", 1e-6, "P 4.1, S actor.optim.lr"),
    ("trainer.warmup_updates", 20 * 16, "P 4.1: 20 rollout steps; S 10"),
    ("trainer.weight_decay", 0.1, "S actor.optim.weight_decay"),
    ("trainer.max_grad_norm", 1.0, "S actor.grad_clip"),
    ("trainer.beta1", 0.9, "F"),
    ("trainer.beta2", 0.999, "F"),
    ("trainer.micro_batch_tokens", 2048 + 20480, "S: tokens a device"),
    ("trainer.old_logprobs", "trainer", "F"),
    ("evaluation.enabled", True, "S val_before_train=True"),
    ("evaluation.every", 5, "S test_freq"),
    ("evaluation.samples", 32, "P 4.1: avg@32"),
    ("evaluation.temperature", 1.0, "P 4.1"),
    ("evaluation.top_p", 0.7, "P 4.1, S val_top_p"),
    ("evaluation.top_k", 0, "S top_k=-1: off"),
    ("evaluation.max_tokens", 20480, "S max_response_length"),
    ("checkpoint.every", 5, "S save_freq"),
]

OURS = {
    "steps",
    "seed",
    "task.type",
    "task.data.path",
    "task.held_out.path",
    "task.verifier.watch",
    "batch.overlong_prompts",
}
"""What neither source settles: file names, and choices whose reason stands beside them."""


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


RESOLVED = flat(load_config(PRESET).model_dump(mode="json"))
WRITTEN = flat(tomllib.loads(TEXT))


@pytest.mark.parametrize(("name", "value", "source"), PAPER_AND_SCRIPT, ids=[name for name, _, _ in PAPER_AND_SCRIPT])
def test_the_value_is_that_of_its_source(name: str, value: Any, source: str) -> None:
    assert (RESOLVED[name], type(RESOLVED[name])) == (value, type(value)), source


def test_every_value_that_is_written_has_a_source_or_is_named_as_ours() -> None:
    known = {name for name, _, _ in PAPER_AND_SCRIPT}
    assert not known & OURS
    assert set(WRITTEN) - known == OURS


def test_a_value_with_a_source_is_written_down_and_not_left_to_a_default_that_may_change() -> None:
    sourced = {name for name, value, _ in PAPER_AND_SCRIPT if value is not None}
    assert sourced - set(WRITTEN) == {"evaluation.enabled", "evaluation.top_k"}


def test_beside_every_value_stands_where_it_comes_from() -> None:
    lines = [line for line in TEXT.splitlines() if re.match(r"\w+ = ", line)]
    assert len(lines) == len(WRITTEN)
    without = [line for line in lines if not re.search(r"  # (?:paper|script|framework|choice)\b", line)]
    assert without == []


def test_what_the_sources_disagree_about_is_named_with_the_choice_made() -> None:
    head = re.sub(r"\s*#\s*", " ", TEXT[: TEXT.index("\nsteps = ")])
    for words in (
        "paper 20 rollout steps, script 10. The paper's 20 are taken",
        "script 10, not in the paper: Eq. 8 has no such bound. The script's 10 is taken",
        'The paper\'s mean is taken; loss_mean = "micro_batch_mean" is the other one',
        "absent from the script and from the authors' best runs. It is off",
    ):
        assert words in head, words


def test_the_other_reading_of_each_loads_too() -> None:
    warmup_of_the_script = ["trainer.warmup_updates=160"]
    mean_of_the_time = ["algorithm.loss_mean=micro_batch_mean", "algorithm.micro_batch_rows=16"]
    for overrides in (warmup_of_the_script, mean_of_the_time, ["algorithm.overlong_filtering=true"]):
        load_config(PRESET, overrides)
    content = tomllib.loads(TEXT)
    del content["algorithm"]["dual_clip"]
    assert parse_config(content, what="Eq. 8 alone").algorithm.dual_clip is None  # type: ignore[union-attr]


def test_the_numbers_that_follow() -> None:
    config = load_config(PRESET)
    assert derived_numbers(config) == {
        "replies a step": 8192,
        "replies an update": 512,
        "updates a step": 16,
        "updates in all": 18656,
        "warm-up, in steps": 20,
        "groups in a step's first round": 1536,
        "prompt tokens a step, at most, each prompt once": 1_048_576,
        "reply tokens a step, at most, without groups that are replaced": 167_772_160,
        "positions a reply, at most, prompt and reply": 22528,
    }
    assert remarks(config) == []


def test_the_steps_are_the_most_that_one_pass_over_the_authors_file_allows() -> None:
    rows_of_the_file = 1_791_700
    assert load_config(PRESET).steps == rows_of_the_file // 1536
