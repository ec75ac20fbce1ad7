"""A recipe: the whole description of a run. Frozen, strict, and read without torch.

Precedence: a field's default, then the recipe, then `-o key=value`. Each section is owned by the part it describes.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from dapo.algorithms.config import AlgorithmConfig, DAPOConfig, PPOConfig
from dapo.algorithms.custom import CustomConfig
from dapo.algorithms.parts import DynamicSampling
from dapo.algorithms.relatives import ReinforcePlusPlusConfig
from dapo.complaints import explain
from dapo.engines.config import EngineConfig, NativeConfig
from dapo.errors import ConfigError
from dapo.frozen import Frozen
from dapo.models.config import ModelConfig
from dapo.prompt_memory import PromptMemoryConfig
from dapo.reporting.config import ReportConfig
from dapo.tasks.config import TaskConfig
from dapo.trainers.config import LocalConfig, TrainerConfig

MIN_TEMPERATURE = 1e-3
"""Logits that are divided by less leave the range of numbers: sampling is greedy, and log-probabilities say nothing."""


class BatchConfig(Frozen):
    """How much is generated and trained on in a step. Defaults are the paper's (arXiv 2503.14476, section 4.1)."""

    groups_per_step: int = Field(512, ge=1)
    """Groups (prompts) that a step trains on."""
    group_size: int = Field(16, ge=1)
    """Replies to each prompt, G."""
    updates_per_step: int = Field(16, ge=1)
    """Optimizer updates that a step's groups are spread over."""
    max_tokens: int = Field(20480, ge=1)
    """Limit on new tokens of a reply; a reply that meets it is truncated."""
    max_prompt_tokens: int = Field(2048, ge=1)
    """Limit on a prompt's tokens, after the chat template."""
    overlong_prompts: Literal["refuse", "drop"] = "refuse"
    """A prompt over the limit: `refuse` ends the run before it starts, `drop` passes it over and counts it."""
    temperature: float = Field(1.0, ge=MIN_TEMPERATURE)
    """Sampling temperature, of the engine and of the ratio alike, at least 0.001. Top-p and top-k are for evaluation only."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the training problems before the data ends. Default: as many as the steps need."""
    overlap: bool = False
    """Generate the next step's groups while this step trains, with the weights of before it: faster where engine and
    trainer do not share a processor, and one step off policy. `algorithm.dynamic_sampling.max_staleness` must allow that."""
    scoring_seconds: float = Field(300.0, gt=0)
    """A reply is wrong, and counted in `reward/errors` (in evaluations as `errors`), when no score at all has come back for
    so long."""
    judging_seconds: float = Field(0.5, ge=0)
    """The engine writes no further token until the groups that it has handed out are judged, for so long at most. What it
    computes together then follows from outcomes and not from timing, so that a run can be repeated to the last bit. With
    scorers that take longer it does not; 0 never waits."""
    max_skipped_in_a_row: int = Field(3, ge=1)
    """An update whose loss or gradient is not finite is skipped. After so many on end the run stops with an error."""


class EvaluationConfig(Frozen):
    """How held-out accuracy is measured: before and after training, and on the way."""

    enabled: bool = True
    """Off: no held-out problems are looked at."""
    every: int | None = Field(None, ge=1)
    """Also evaluate after every so many steps."""
    problems: int | None = Field(None, ge=1)
    """How many of the held-out problems, from the front. Default: all."""
    samples: int = Field(1, ge=1)
    """Replies to each problem, k of avg@k."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature; 0 is greedy (the paper: 1)."""

    @field_validator("temperature")
    @classmethod
    def _temperature_makes_sense(cls, temperature: float) -> float:
        if 0 < temperature < MIN_TEMPERATURE:
            raise ValueError(
                f"{temperature:g} is neither greedy nor a temperature that logits can be divided by; give 0 for the "
                f"likeliest token, or at least {MIN_TEMPERATURE:g}"
            )
        return temperature

    top_p: float = Field(0.7, gt=0, le=1)
    """Nucleus sampling (the paper: 0.7)."""
    top_k: int = Field(0, ge=0)
    """Draw from the k likeliest tokens; 0 is off."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Leave out tokens less than this times as likely as the likeliest; 0 is off."""
    max_tokens: int | None = Field(None, ge=1)
    """Limit on new tokens. Default: `batch.max_tokens`."""


class CheckpointConfig(Frozen):
    """When the run is saved; it is always saved at its end."""

    every: int = Field(5, ge=1)
    """Also save after every so many steps (the authors' script: 5): no more than that is lost to a crash."""
    keep: int = Field(2, ge=1)
    """How many checkpoints stay, the newest."""
    keep_best: bool = True
    """Whether the one with the best held-out accuracy stays too; `checkpoints/best` points to it. Only a step that is both
    saved and evaluated can be the best: let `evaluation.every` be a multiple of `every`."""


class RunConfig(Frozen):
    """A recipe."""

    steps: int = Field(ge=1)
    """Rollout steps: each generates, trains and updates the engine once."""
    seed: int = Field(0, ge=0)
    """Every random choice of the run follows from it."""
    model: ModelConfig
    task: TaskConfig
    algorithm: AlgorithmConfig = DAPOConfig()
    batch: BatchConfig = BatchConfig()
    prompt_memory: PromptMemoryConfig = PromptMemoryConfig()
    engine: EngineConfig = NativeConfig()
    trainer: TrainerConfig = LocalConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    report: ReportConfig = ReportConfig()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> RunConfig:
        batch, algorithm = self.batch, self.algorithm
        if batch.group_size == 1 and algorithm.dynamic_sampling.enabled:
            raise ConfigError(
                f'batch.group_size = 1 leaves algorithm "{algorithm.type}" nothing to compare: a group of one is all right '
                "or all wrong, and dynamic sampling would drop every one. Use group_size >= 2."
            )
        if batch.group_size == 1 and self.prompt_memory.enabled:
            raise ConfigError(
                "prompt_memory.enabled = true and batch.group_size = 1: the memory looks for groups with both right and wrong "
                "replies, and a group of one never is. Use group_size >= 2, or prompt_memory.enabled = false."
            )
        if batch.updates_per_step > batch.groups_per_step:
            raise ConfigError(
                f"batch.updates_per_step = {batch.updates_per_step} is more than batch.groups_per_step = "
                f"{batch.groups_per_step}, and an update takes whole groups. Use at most one update a group."
            )
        _check_staleness(batch, algorithm.dynamic_sampling)
        if algorithm.soft_overlong.enabled:
            algorithm.soft_overlong.resolve(batch.max_tokens)
        return self


def _check_staleness(batch: BatchConfig, dynamic: DynamicSampling) -> None:
    """Refuse what could never train: groups that are too old by the time they are used, a cap below a step's groups."""
    if batch.overlap and dynamic.max_staleness < batch.updates_per_step:
        raise ConfigError(
            f"batch.overlap generates a step's groups before the {batch.updates_per_step} updates of the step before, and "
            f"algorithm.dynamic_sampling.max_staleness = {dynamic.max_staleness} does not allow groups that old. Use "
            f"max_staleness >= {batch.updates_per_step} (batch.updates_per_step), or batch.overlap = false."
        )
    if 0 < dynamic.max_staleness < batch.updates_per_step:
        raise ConfigError(
            f"algorithm.dynamic_sampling.max_staleness = {dynamic.max_staleness} is less than batch.updates_per_step = "
            f"{batch.updates_per_step}, so every group that is carried to the next step would be too old there. Use "
            f"max_staleness >= {batch.updates_per_step}, or 0 to carry none."
        )
    if dynamic.enabled and dynamic.max_groups is not None and dynamic.max_groups < batch.groups_per_step:
        raise ConfigError(
            f"algorithm.dynamic_sampling.max_groups = {dynamic.max_groups} is less than batch.groups_per_step = "
            f"{batch.groups_per_step}: no step could have its groups. Raise max_groups or lower groups_per_step."
        )


def remarks(config: RunConfig) -> list[str]:
    """What a person should know about a recipe that is allowed and yet may not do what they think."""
    found = []
    algorithm, batch = config.algorithm, config.batch
    if batch.updates_per_step == 1 and algorithm.dynamic_sampling.max_staleness == 0:
        found.append(
            "batch.updates_per_step = 1: the policy that samples is the one that is updated, so the ratio is 1 and no clip "
            "can act (clip-higher among them). Use 2 or more updates a step if the clip is to matter."
        )
    if algorithm.overlong_filtering and algorithm.soft_overlong.enabled:
        found.append(
            "algorithm.overlong_filtering and algorithm.soft_overlong are both on: truncated replies do not train at all, "
            "and their punishment acts only through the mean of their group. The paper's final recipe has the punishment "
            "alone."
        )
    if algorithm.soft_overlong.enabled:
        max_length, _, _ = algorithm.soft_overlong.resolve(batch.max_tokens)
        if max_length > batch.max_tokens:
            found.append(
                f"algorithm.soft_overlong.max_length = {max_length} lies above batch.max_tokens = {batch.max_tokens}: a "
                "reply is cut before it is fully punished."
            )
    checkpoint, every = config.checkpoint, config.evaluation.every
    if config.evaluation.enabled and every and checkpoint.keep_best and every % checkpoint.every:
        found.append(
            f"evaluation.every = {every} is no multiple of checkpoint.every = {checkpoint.every}: some steps are evaluated "
            "and not saved, so the best of them may not stay."
        )
    if batch.group_size == 1 and _compares_replies(algorithm):
        found.append("batch.group_size = 1: a group of one has advantage 0, so nothing is learnt from it.")
    return found + algorithm.remarks(batch.groups_per_step * batch.group_size * batch.max_tokens)


def _compares_replies(algorithm: AlgorithmConfig) -> bool:
    """Whether an advantage comes from the other replies to the prompt; an algorithm of the user's own may do as it likes."""
    if isinstance(algorithm, ReinforcePlusPlusConfig):
        return algorithm.group_baseline
    return not isinstance(algorithm, (PPOConfig, CustomConfig))


def derived_numbers(config: RunConfig) -> dict[str, int]:
    """The numbers that follow from a recipe, for `dapo show`. Steps are rollout steps, updates are the optimizer's."""
    batch, dynamic = config.batch, config.algorithm.dynamic_sampling
    replies = batch.groups_per_step * batch.group_size
    updates = batch.updates_per_step
    is_even = batch.groups_per_step % updates == 0
    return {
        "replies a step": replies,
        f"replies an update{'' if is_even else ', at most'}": -(-batch.groups_per_step // updates) * batch.group_size,
        "updates a step": updates,
        "updates in all": config.steps * updates,
        "warm-up, in steps": -(-config.trainer.warmup_updates // updates),
        "groups in a step's first round": math.ceil(
            batch.groups_per_step * (dynamic.oversample if dynamic.enabled else 1)
        ),
        "prompt tokens a step, at most, each prompt once": batch.groups_per_step * batch.max_prompt_tokens,
        "reply tokens a step, at most, without groups that are replaced": replies * batch.max_tokens,
        "positions a reply, at most, prompt and reply": batch.max_prompt_tokens + batch.max_tokens,
    }


def load_config(recipe: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe and apply overrides such as `algorithm.clip_high=0.3`. Raises ConfigError with every fault found."""
    if not recipe.is_file():
        raise ConfigError(f"The recipe {recipe} is not a file. Check the path; recipes/ holds examples.")
    try:
        content = tomllib.loads(recipe.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The recipe {recipe} is not valid TOML: {error}.") from error
    apply_overrides(content, overrides)
    return parse_config(content, what=str(recipe))


def parse_config(content: Mapping[str, Any], *, what: str) -> RunConfig:
    """Validate a recipe that was read already. `what` names it in errors. Raises ConfigError."""
    try:
        return RunConfig.model_validate(dict(content))
    except ValidationError as error:
        raise ConfigError(f"{what} cannot be used:\n{explain(error, RunConfig)}") from error


def apply_overrides(content: dict[str, Any], overrides: Sequence[str]) -> None:
    """Write overrides such as `algorithm.clip_high=0.3` into a recipe's content. Raises ConfigError."""
    for override in overrides:
        _apply(content, override)


def _apply(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"-o {override!r} is not of the form key=value, e.g. -o algorithm.clip_high=0.3")
    place = content
    for part in parts[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise ConfigError(f"-o {override!r}: {part!r} is a value and has no fields.")
    place[parts[-1]] = _toml_value(value.strip())


def _toml_value(text: str) -> Any:
    """Read the right side of an override as TOML; what is not TOML is a string, so quotes may be left away."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
