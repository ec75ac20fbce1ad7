"""A flat row of tokens through the model, for generation. Letters: N tokens, M of them whose logits are wanted, V vocabulary,
H query heads, K key-value heads, D head width.

Two ways, one result: `FusedForward` for the Llama-like family, with few and large steps; `ModelForward` through the model's
own code for every model whose attention can be planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dapo.engines.native.products import Product, lays_out_weights
from dapo.maths.decoder import rotate
from dapo.models.attention import PLAN, AttentionPlan
from dapo.models.decoder import DecoderLayer, read_decoder
from dapo.models.weights import WeightNames, copy_weights, read_weights

_LEAST_ROWS = 48
_ROW_STEP = 16
"""Below 48 rows, and between multiples of 16, the processor's matrix kernels may add up in another order. Rows are filled up to
these, so that a token's values depend less on how many others are computed beside it: in float32 not at all (tested), in
bfloat16 not for most shapes; some wide ones still have two or three classes of row counts."""


class Forward(Protocol):
    """Runs tokens through the weights that were loaded last."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def layers(self) -> int: ...

    def load(self, source: Mapping[str, Tensor] | Path, *, what: str) -> None:
        """Take over weights by name: all or none. Raises RunError on a misfit."""
        ...

    def logits(self, tokens_N: Tensor, positions_N: Tensor, plan: AttentionPlan, keep_M: Tensor | None) -> Tensor:
        """The logits [M, V] at the places `keep_M`, or at all of them."""
        ...


class ModelForward:
    """The model's own forward. Its attention must have been switched to plans."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    @property
    def dtype(self) -> torch.dtype:
        return self._model.dtype

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def layers(self) -> int:
        return int(self._model.config.get_text_config().num_hidden_layers)

    def load(self, source: Mapping[str, Tensor] | Path, *, what: str) -> None:
        copy_weights(self._model, source, what=what)

    def logits(self, tokens_N: Tensor, positions_N: Tensor, plan: AttentionPlan, keep_M: Tensor | None) -> Tensor:
        output = self._model(
            input_ids=tokens_N.unsqueeze(0),
            position_ids=positions_N.unsqueeze(0),
            use_cache=False,
            logits_to_keep=0 if keep_M is None else keep_M,
            **{PLAN: plan},
        )
        logits: Tensor = output.logits[0]
        return logits


class _Layer(NamedTuple):
    """A layer's weights, laid out: query, key and value in one product."""

    attention_norm: Tensor
    projections: Product
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Product
    feed_forward_norm: Tensor
    gate: Product
    up: Product
    down: Product


class FusedForward:
    """A Llama-like decoder in few steps, with weights of its own. `release` empties the model that they came from."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._decoder = read_decoder(model)
        self._names = WeightNames.of(model)
        self._name_of = {id(parameter): name for name, parameter in model.named_parameters(remove_duplicate=False)}
        self._dtype, self._device = model.dtype, model.device
        self._fills_rows = lays_out_weights(model.device, model.dtype)
        self._model = model
        self._layers: dict[int, _Layer] = {}
        self._head: Product | None = None
        self._norm = torch.empty_like(self._decoder.norm.weight.detach())  # type: ignore[operator]
        self._embedding = torch.empty_like(self._decoder.embedding.weight.detach())
        self._take(model.state_dict())

    def release(self) -> None:
        """Give back the memory of the model's own weights; it cannot be run any more."""
        for parameter in self._model.parameters():
            parameter.data = parameter.data.new_empty(0)

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def layers(self) -> int:
        return len(self._decoder.layers)

    @torch.no_grad()
    def load(self, source: Mapping[str, Tensor] | Path, *, what: str) -> None:
        self._take(self._names.resolve(read_weights(source), what=what))

    def logits(self, tokens_N: Tensor, positions_N: Tensor, plan: AttentionPlan, keep_M: Tensor | None) -> Tensor:
        count = tokens_N.shape[0]
        tokens_N, positions_N = self._filled(tokens_N), self._filled(positions_N)
        hidden_NE = self._embedding[tokens_N]
        cosine_N1D, sine_N1D = self._rotation(positions_N)
        for number, layer in self._layers.items():
            attended = self._attend(number, layer, hidden_NE, (cosine_N1D, sine_N1D), plan, count)
            hidden_NE = layer.output.plus(attended, hidden_NE)
            narrow = self._normed(hidden_NE, layer.feed_forward_norm, self._decoder.layers[number].feed_forward_norm)
            hidden_NE = layer.down.plus(layer.up.times(narrow, layer.gate.swish(narrow)), hidden_NE)
        wanted = count if keep_M is None else keep_M.shape[0]
        hidden_ME = hidden_NE if keep_M is None else hidden_NE[self._filled(keep_M)]
        assert self._head is not None
        return self._head(self._normed(hidden_ME, self._norm, self._decoder.norm))[:wanted]

    def _attend(
        self,
        number: int,
        layer: _Layer,
        hidden_NE: Tensor,
        rotation: tuple[Tensor, Tensor],
        plan: AttentionPlan,
        count: int,
    ) -> Tensor:
        parts, decoder = self._decoder.layers[number], self._decoder
        heads, both = decoder.heads, decoder.heads + decoder.kv_heads
        projected = layer.projections(self._normed(hidden_NE, layer.attention_norm, parts.attention_norm))
        projected_NAD = projected.view(hidden_NE.shape[0], both + decoder.kv_heads, decoder.width)
        turned_NBD = projected_NAD[:, :both]
        if layer.query_norm is not None and layer.key_norm is not None:
            query = self._normed(projected_NAD[:, :heads], layer.query_norm, parts.query_norm)
            key = self._normed(projected_NAD[:, heads:both], layer.key_norm, parts.key_norm)
            turned_NBD = torch.cat([query, key], dim=1)
        turned_NBD = rotate(turned_NBD, *rotation)
        output_NHD = plan.attend(
            number,
            turned_NBD[:count, :heads].transpose(0, 1),
            turned_NBD[:count, heads:].transpose(0, 1),
            projected_NAD[:count, both:].transpose(0, 1),
            parts.scaling,
        )
        return self._filled(output_NHD.reshape(count, heads * decoder.width))

    def _filled(self, tensor_N: Tensor) -> Tensor:
        """Fill rows up with zeros, where that makes a row's values independent of the number of rows."""
        count = tensor_N.shape[0]
        missing = max(_LEAST_ROWS, -(-count // _ROW_STEP) * _ROW_STEP) - count if self._fills_rows else 0
        if not missing:
            return tensor_N
        return torch.cat([tensor_N, tensor_N.new_zeros(missing, *tensor_N.shape[1:])])

    def _rotation(self, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        cosine, sine = self._decoder.rotary(self._embedding[:1], positions_N.unsqueeze(0))
        return cosine[0].unsqueeze(1), sine[0].unsqueeze(1)

    def _normed(self, x: Tensor, weight: Tensor, module: nn.Module | None) -> Tensor:
        assert module is not None
        wide = x.to(torch.float32, copy=True)  # a copy in float32 too: the caller goes on with `x`
        mean = torch.linalg.vecdot(wide, wide).div_(x.shape[-1]).add_(float(module.variance_epsilon))  # type: ignore[arg-type]
        return wide.mul_(mean.rsqrt_().unsqueeze(-1)).to(x.dtype).mul_(weight)

    def _take(self, tensors: Mapping[str, Tensor]) -> None:
        """Lay out a whole set of weights, a layer at a time, so that no second copy of the model ever exists."""

        def cast(parameter: Tensor) -> Tensor:
            return tensors[self._name_of[id(parameter)]].to(self._device, self._dtype)

        def product(*linear: nn.Linear) -> Product:
            biases = [cast(one.bias) for one in linear if one.bias is not None]
            return Product([cast(one.weight) for one in linear], biases)

        for number, layer in enumerate(self._decoder.layers):
            self._layers.pop(number, None)  # its memory is the next one's
            self._layers[number] = _laid_out(layer, cast, product)
        self._head = None
        self._head = product(self._decoder.head)
        self._norm.copy_(tensors[self._name_of[id(self._decoder.norm.weight)]])
        self._embedding.copy_(tensors[self._name_of[id(self._decoder.embedding.weight)]])


def _laid_out(layer: DecoderLayer, cast: Callable[[Tensor], Tensor], product: Callable[..., Product]) -> _Layer:
    def norm(module: nn.Module | None) -> Tensor | None:
        return None if module is None else cast(module.weight).clone()  # type: ignore[arg-type]

    attention_norm, feed_forward_norm = norm(layer.attention_norm), norm(layer.feed_forward_norm)
    assert attention_norm is not None and feed_forward_norm is not None
    return _Layer(
        attention_norm=attention_norm,
        projections=product(layer.query, layer.key, layer.value),
        query_norm=norm(layer.query_norm),
        key_norm=norm(layer.key_norm),
        output=product(layer.output),
        feed_forward_norm=feed_forward_norm,
        gate=product(layer.gate),
        up=product(layer.up),
        down=product(layer.down),
    )
