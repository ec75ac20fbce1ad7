"""The recipe's `[trainer]` section. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dapo.frozen import Frozen

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm
    from dapo.models.config import ModelConfig
    from dapo.trainers.core import LocalTrainer


class LocalConfig(Frozen):
    """One process, on the processor or one GPU."""

    type: Literal["local"] = "local"
    learning_rate: float = Field(1e-6, gt=0)
    """AdamW's learning rate after the warm-up, constant (the paper: 1e-6)."""
    warmup_updates: int = Field(0, ge=0)
    """Optimizer updates over which the rate rises linearly. The paper warms up over 20 rollout steps of 16 updates."""
    weight_decay: float = Field(0.1, ge=0)
    """AdamW's decoupled weight decay (the authors' script: 0.1)."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's decay of the first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """AdamW's decay of the second moment."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient is scaled down to this norm (the authors' script: 1.0)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights and optimizer stay float32. `auto`: bfloat16 where that is fast."""
    micro_batch_tokens: int = Field(2048, ge=1)
    """Positions (prompt, reply, padding) that go through the model at once; changes memory and speed, not the gradient."""
    activation_checkpointing: bool = False
    """Keep only each layer's input and run the layer again in the backward pass: less memory, a third more time."""
    old_logprobs: Literal["auto", "trainer", "engine"] = "auto"
    """Whose log-probabilities the ratio divides by. `auto`: the engine's where both sides compute in float32, else the
    trainer's own, which costs a forward pass if a rollout is used for more than one update."""

    def build(self, model: ModelConfig, algorithm: Algorithm, temperature: float) -> LocalTrainer:
        """Load the policy and make its optimizer."""
        import torch

        from dapo.models.load import load_model, resolve_precision
        from dapo.trainers.core import LocalTrainer, OptimizerSettings

        return LocalTrainer(
            load_model(model, torch.float32),
            algorithm.loss,
            OptimizerSettings(
                learning_rate=self.learning_rate,
                warmup_updates=self.warmup_updates,
                weight_decay=self.weight_decay,
                betas=(self.beta1, self.beta2),
                max_grad_norm=self.max_grad_norm,
            ),
            temperature=temperature,
            precision=resolve_precision(self.precision, model.device),
            micro_batch_tokens=self.micro_batch_tokens,
            activation_checkpointing=self.activation_checkpointing,
            skips_zero_advantage=algorithm.skips_zero_advantage,
            critic=algorithm.critic,
            reference=algorithm.reference,
        )


TrainerConfig = LocalConfig
