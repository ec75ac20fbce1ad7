"""The fastest way through a model for training that gives the model's own result."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from dapo.models.attention import UnsupportedAttentionError
from dapo.trainers.forward import Forward, PackedForward, PaddedForward
from dapo.trainers.fused import FusedForward

MakeForward = Callable[[PreTrainedModel], Forward]
"""Makes the forward of a model, and of copies of it."""


def choose_forward(model: PreTrainedModel, *, checkpointing: bool = False) -> MakeForward:
    """Fused layers where they serve, else packed rows, else padded ones with a warning that says why.

    Each is tried on a short example in float32, and never used where its result is another. Leaves the model with the
    attention that it had. `checkpointing` trades time for memory: layers are run again in the backward pass.
    """
    if why_not(model, FusedForward) is None:
        return lambda copy: FusedForward(copy, checkpointing=checkpointing)
    obstacle = why_not(model, PackedForward)
    if obstacle is not None:
        warnings.warn(
            f"{type(model).__name__} trains on padded rows, which is slower: {obstacle}.", RuntimeWarning, stacklevel=2
        )
    make: MakeForward = PackedForward if obstacle is None else PaddedForward

    def checkpointed(copy: PreTrainedModel) -> Forward:
        if checkpointing:
            copy.gradient_checkpointing_enable({"use_reentrant": False})
            for module in copy.modules():  # transformers does it only in training mode; what is inside keeps its own
                if isinstance(module, GradientCheckpointingLayer):
                    module.training = True
        return make(copy)

    return checkpointed


def why_not(model: PreTrainedModel, make: MakeForward) -> str | None:
    """None where a way gives the model's own log-probabilities on a short example; else what is in the way."""
    vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    tokens_BT = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6], [2, 7, 1, 8]]) % vocabulary
    prompts = ((1, 2, 3), (1, 2, 3), (4, 3))
    lengths_B = torch.tensor([4, 2, 3])
    usual = str(model.config._attn_implementation)
    try:
        with torch.no_grad():
            expected = PaddedForward(model).logprobs(prompts, tokens_BT, lengths_B, 1.0).logprobs_BT
            found = make(model).logprobs(prompts, tokens_BT, lengths_B, 1.0).logprobs_BT
    except (UnsupportedAttentionError, TypeError, AttributeError, RuntimeError) as error:
        return str(error)
    finally:
        model.set_attn_implementation(usual)
    inside_BT = torch.arange(4, device=found.device) < lengths_B.to(found.device).unsqueeze(1)
    gap = float((found - expected)[inside_BT].abs().max())
    return None if gap <= 1e-3 else f"its packed log-probabilities differ by {gap:.2g} from its own"
