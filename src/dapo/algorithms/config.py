"""The recipe's `[algorithm]` section: one class an algorithm, told apart by `type`. No torch until `build`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dapo.algorithms.custom import CustomConfig
from dapo.algorithms.dapo import DAPOConfig
from dapo.algorithms.grpo import GRPOConfig
from dapo.algorithms.parts import DynamicSampling, SoftOverlong
from dapo.algorithms.ppo import PPOConfig
from dapo.algorithms.relatives import (
    CISPOConfig,
    ClipCovConfig,
    DrGRPOConfig,
    GSPOConfig,
    KLCovConfig,
    ReinforcePlusPlusConfig,
    RLOOConfig,
)

__all__ = ["AlgorithmConfig", "DAPOConfig", "DynamicSampling", "GRPOConfig", "PPOConfig", "SoftOverlong"]

AlgorithmConfig = Annotated[
    DAPOConfig
    | GRPOConfig
    | PPOConfig
    | DrGRPOConfig
    | GSPOConfig
    | CISPOConfig
    | RLOOConfig
    | ReinforcePlusPlusConfig
    | ClipCovConfig
    | KLCovConfig
    | CustomConfig,
    Field(discriminator="type"),
]
