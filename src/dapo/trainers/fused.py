"""Packed rows through a Llama-like decoder whose layers have a gradient written by hand, on the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from dapo.batching import packed_micro_batches
from dapo.maths.decoder import rms_norm, rms_norm_gradients
from dapo.models.attention import UnsupportedAttentionError
from dapo.models.decoder import read_decoder
from dapo.trainers.blocks import blocks_of
from dapo.trainers.decoder_layer import LayerSetting, layer_weights, run_layer
from dapo.trainers.forward import ReplyHidden, ReplyLogprobs, logprobs_of_hidden
from dapo.trainers.packed_attention import PackedAttention
from dapo.trainers.packing import pack_flat


class FusedForward:
    """Packed rows through few and large steps. Raises UnsupportedAttentionError for another model or device."""

    def __init__(self, model: PreTrainedModel, *, checkpointing: bool = False) -> None:
        if model.device.type != "cpu":
            raise UnsupportedAttentionError(f"Fused layers run on the processor; the model is on {model.device}.")
        self.model = model
        self._decoder = read_decoder(model)
        self._checkpointing = checkpointing

    def logprobs(
        self, prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor, temperature: float
    ) -> ReplyLogprobs:
        return logprobs_of_hidden(
            self.hidden(prompt_ids, tokens_BT, lengths_B), self._decoder.head.weight, tokens_BT, temperature
        )

    def hidden(self, prompt_ids: Sequence[tuple[int, ...]], tokens_BT: Tensor, lengths_B: Tensor) -> ReplyHidden:
        decoder = self._decoder
        packing = pack_flat(prompt_ids, tokens_BT, lengths_B)
        hidden_NE = embedding(packing.tokens_N, decoder.embedding.weight)
        cosine, sine = decoder.rotary(hidden_NE[:1], packing.positions_N.unsqueeze(0))
        attention = PackedAttention.over(
            blocks_of(packing.groups), decoder.heads, decoder.kv_heads, decoder.layers[0].scaling, like=hidden_NE
        )
        for layer in decoder.layers:
            setting = LayerSetting(
                attention=replace(attention, scaling=layer.scaling),
                cosine_N1D=cosine[0].unsqueeze(1),
                sine_N1D=sine[0].unsqueeze(1),
                epsilon=_epsilon(layer.attention_norm),
                keeps_all=not self._checkpointing,
            )
            hidden_NE = run_layer(hidden_NE, setting, layer_weights(layer))
        hidden_ME = hidden_NE.index_select(0, packing.predictor_M)
        normed_ME: Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
            hidden_ME, decoder.norm.weight, _epsilon(decoder.norm)
        )
        return ReplyHidden(normed_ME, packing.row_M, packing.column_M)

    def micro_batches(
        self, prompt_ids: Sequence[tuple[int, ...]], lengths_B: Tensor, max_tokens: int
    ) -> list[list[int]]:
        return packed_micro_batches(prompt_ids, lengths_B, max_tokens)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden_ME: Tensor, weight_E: Tensor, epsilon: float) -> Tensor:
        normed_ME, root = rms_norm(hidden_ME, weight_E, epsilon)
        context.save_for_backward(hidden_ME, weight_E, root)
        return normed_ME

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *rms_norm_gradients(gradients[0], *context.saved_tensors), None


def _epsilon(norm: Any) -> float:
    return float(norm.variance_epsilon)
