from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from dapo.algorithms.config import AlgorithmConfig, DAPOConfig, GRPOConfig, SoftOverlong
from dapo.errors import ConfigError
from dapo.types import Reason
from tests.fakes import scored, scored_group

ADAPTER: TypeAdapter[Any] = TypeAdapter(AlgorithmConfig)


def test_the_defaults_of_dapo_are_the_paper_s() -> None:
    assert DAPOConfig().model_dump() == {
        "type": "dapo",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": None,
        "loss_mean": "token_mean",
        "micro_batch_rows": 1,
        "dynamic_sampling": {
            "enabled": True,
            "max_rounds": 10,
            "oversample": 1.0,
            "max_groups": None,
            "max_tokens": None,
            "when_short": "train_partial",
            "max_staleness": 0,
        },
        "overlong_filtering": False,
        "overlong_in_statistics": True,
        "soft_overlong": {"enabled": True, "max_length": None, "cache": None, "factor": 1.0},
    }


def test_the_defaults_of_grpo() -> None:
    config = GRPOConfig()
    assert (config.clip, config.loss_mean, config.dual_clip) == (0.2, "sequence_mean", None)
    assert (config.kl_beta, config.kl_estimator, config.reference.refresh_updates) == (0.04, "k3", None)
    assert not config.dynamic_sampling.enabled and not config.soft_overlong.enabled and not config.overlong_filtering


@pytest.mark.parametrize("constant", [1.0, 0.2, 0.0, -3.0])
def test_a_dual_clip_that_would_cut_into_the_clip_itself_is_refused(constant: float) -> None:
    with pytest.raises(ValidationError, match="greater than 1"):
        DAPOConfig(dual_clip=constant)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_low": 0.0},
        {"clip_low": 1.0},
        {"clip_high": 0.0},
        {"clip_high": float("nan")},
        {"loss_mean": "mean"},
        {"dynamic_sampling": {"max_rounds": 0}},
        {"dynamic_sampling": {"oversample": 0.5}},
        {"soft_overlong": {"factor": 0.0}},
        {"soft_overlong": {"cache": 0}},
        {"clip": 0.2},
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DAPOConfig.model_validate(settings)


def test_the_slope_must_leave_a_length_that_is_not_punished() -> None:
    assert SoftOverlong(max_length=100, cache=99).resolve(1000) == (100, 99, 1.0)
    for cache in (100, 101):
        with pytest.raises(ConfigError, match=r"soft_overlong\.cache = 10[01] leaves no length unpunished"):
            SoftOverlong(max_length=100, cache=cache).resolve(1000)


def test_the_slope_s_defaults_follow_the_limit() -> None:
    assert SoftOverlong().resolve(20480) == (20480, 4096, 1.0)
    assert SoftOverlong(cache=7, factor=0.5).resolve(40) == (40, 7, 0.5)
    assert SoftOverlong(max_length=30).resolve(40) == (30, 6, 1.0)
    assert SoftOverlong().resolve(3) == (3, 1, 1.0)


@pytest.mark.parametrize(
    "soft", [{"enabled": False}, {"enabled": False, "max_length": 10, "cache": 10}, {"enabled": False, "cache": 10**6}]
)
def test_a_punishment_that_is_off_needs_none_of_its_other_settings(soft: dict[str, Any]) -> None:
    algorithm = DAPOConfig.model_validate({"soft_overlong": soft}).build(100)
    assert algorithm.penalise(scored(1, length=100).rollout) == {}


def test_the_value_is_put_together_from_what_the_recipe_says() -> None:
    mask_BT, group_B = torch.tensor([[True, False], [True, True]]), torch.tensor([0, 0])
    all_right = scored_group(scored(1), scored(1))
    dapo, grpo = DAPOConfig().build(10), GRPOConfig().build(10)
    assert (dapo.judge(all_right), grpo.judge(all_right)) == (Reason.ALL_RIGHT, Reason.KEPT)
    assert torch.allclose(dapo.weigh(mask_BT, group_B), mask_BT / 3)
    assert torch.allclose(grpo.weigh(mask_BT, group_B), torch.tensor([[0.5, 0.0], [0.25, 0.25]]))
    constant = DAPOConfig(loss_mean="constant_length").build(10)
    assert torch.allclose(constant.weigh(mask_BT, group_B), mask_BT / 20)
    far_up = {"advantages": torch.ones(1, 1), "old_logprobs": torch.full((1, 1), -5.0)}
    far_up["reference_logprobs"] = torch.zeros(1, 1)
    losses = [algorithm.loss(torch.zeros(1, 1), far_up).loss_BT.item() for algorithm in (dapo, grpo)]
    assert losses == pytest.approx([-1.28, -1.2])
    assert (dapo.needs, grpo.needs) == (frozenset(), {"reference_logprobs"})
    assert GRPOConfig(kl_beta=0.0).build(10).needs == frozenset()


def test_the_type_chooses_and_every_setting_is_explained() -> None:
    assert type(ADAPTER.validate_python({"type": "grpo"})) is GRPOConfig
    with pytest.raises(ValidationError, match="'dapo', 'grpo'"):
        ADAPTER.validate_python({"type": "reinforce"})
    for kind in (DAPOConfig, GRPOConfig, SoftOverlong):
        assert all(field.description for name, field in kind.model_fields.items() if name != "type")


def test_a_config_is_read_without_torch() -> None:
    code = "import dapo.algorithms.config, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
