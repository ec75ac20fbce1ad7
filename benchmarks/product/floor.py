"""What the processor needs for the matrix products alone: the same shapes in the same order, and nothing between them.

Every layer has weights of its own, as in the model, so that they come from memory as they do there. Several ways are timed,
and the fastest one is the floor: each projection by itself; with query, key and value, and gate and up, in one product; and
for forward products the latter with weights that were laid out for the processor's kernels before.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The widths of a Llama-like model."""

    layers: int
    hidden: int
    query: int
    key_value: int
    inner: int
    vocabulary: int

    def shapes(self, *, fused: bool) -> list[tuple[int, int]]:
        """(out, in) of the products of one layer."""
        attention = [(self.query, self.hidden), (self.key_value, self.hidden), (self.key_value, self.hidden)]
        feed_forward = [(self.inner, self.hidden), (self.inner, self.hidden)]
        if fused:
            attention = [(self.query + 2 * self.key_value, self.hidden)]
            feed_forward = [(2 * self.inner, self.hidden)]
        return [*attention, (self.hidden, self.query), *feed_forward, (self.hidden, self.inner)]


def read_sizes(model: Path) -> Sizes:
    """Read the widths from a model's config.json."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    head_width = config.get("head_dim") or config["hidden_size"] // heads
    return Sizes(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        query=heads * head_width,
        key_value=config.get("num_key_value_heads", heads) * head_width,
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass through the model: the rows of the layers' products, and of the head's."""

    rows: int
    head_rows: int


def decoding_passes(prompt_tokens: int, prompts: int, lengths: Sequence[int]) -> list[Pass]:
    """Reading the prompts once each, then one pass a token with the replies that still run."""
    first = Pass(rows=prompt_tokens, head_rows=prompts)
    running = [sum(length >= place for length in lengths) for place in range(2, max(lengths) + 1)]
    return [first, *(Pass(rows=rows, head_rows=rows) for rows in running)]


Layers = Sequence[Sequence[Tensor]]
REPEATS = 2


class Floor:
    """The products of one model. Each method times a list of passes in all ways, twice; seconds of the fastest."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype = torch.bfloat16) -> None:
        generator = torch.Generator().manual_seed(0)

        def weight(shape: tuple[int, int]) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        self._dtype = dtype
        self._sizes = sizes
        self._apart, self._fused = (
            [[weight(shape) for shape in sizes.shapes(fused=fused)] for _ in range(sizes.layers)]
            for fused in (False, True)
        )
        self._head = weight((sizes.vocabulary, sizes.hidden))

    @torch.inference_mode()
    def forward(self, passes: Sequence[Pass]) -> float:
        """Seconds of forward products, also with the weights laid out ahead for the processor where that can be."""
        inputs = self._inputs(passes)
        ways = self._as_they_are(passes, inputs)
        with contextlib.suppress(RuntimeError, AttributeError, NotImplementedError):  # not every torch has the layout
            ways.append(self._laid_out(passes, inputs))
        return fastest(ways)

    @torch.inference_mode()
    def plain_forward(self, passes: Sequence[Pass]) -> float:
        """Seconds of forward products of the weights as a model holds them."""
        return fastest(self._as_they_are(passes, self._inputs(passes)))

    def _as_they_are(self, passes: Sequence[Pass], inputs: dict[int, Tensor]) -> list[Callable[[], None]]:
        """The products one by one, and with those of one input joined."""

        def plain(layers: Layers) -> Callable[[], None]:
            def product(weight: Tensor, width: int, rows: int) -> None:
                linear(inputs[width][:rows], weight)

            return self._runner(passes, layers, self._head, self._widths(layers), product)

        return [plain(self._apart), plain(self._fused)]

    @torch.inference_mode()
    def backward(self, passes: Sequence[Pass]) -> float:
        """Seconds of backward products: gradients of the inputs and of the weights."""
        return self._training(passes, forward=False)

    @torch.inference_mode()
    def training(self, passes: Sequence[Pass]) -> float:
        """Seconds of forward and backward products."""
        return self._training(passes, forward=True)

    def _training(self, passes: Sequence[Pass], *, forward: bool) -> float:
        inputs, outputs = self._inputs(passes), self._outputs(passes)

        def product(weight: Tensor, width: int, rows: int) -> None:
            value, gradient = inputs[width][:rows], outputs[weight.shape[0]][:rows]
            if forward:
                linear(value, weight)
            gradient @ weight
            gradient.T @ value

        return fastest(
            [
                self._runner(passes, layers, self._head, self._widths(layers), product)
                for layers in (self._apart, self._fused)
            ]
        )

    def _laid_out(self, passes: Sequence[Pass], inputs: dict[int, Tensor]) -> Callable[[], None]:
        """The fused products with weights in the layout of the processor's kernels, which is not timed."""
        operations = torch.ops.mkldnn
        typical = sorted(one.rows for one in passes)[len(passes) // 2]

        def lay_out(weight: Tensor) -> Tensor:
            laid: Tensor = operations._reorder_linear_weight(weight, typical)
            return laid

        def product(weight: Tensor, width: int, rows: int) -> None:
            operations._linear_pointwise(inputs[width][:rows], weight, None, "none", [], "")

        layers = [[lay_out(weight) for weight in weights] for weights in self._fused]
        return self._runner(passes, layers, lay_out(self._head), self._widths(self._fused), product)

    def _runner(
        self,
        passes: Sequence[Pass],
        layers: Layers,
        head: Tensor,
        widths: Sequence[int],
        product: Callable[[Tensor, int, int], None],
    ) -> Callable[[], None]:
        def run() -> None:
            for one in passes:
                for weights in layers:
                    for weight, width in zip(weights, widths, strict=True):
                        product(weight, width, one.rows)
                product(head, self._sizes.hidden, one.head_rows)

        return run

    @staticmethod
    def _widths(layers: Layers) -> list[int]:
        return [weight.shape[1] for weight in layers[0]]

    def _inputs(self, passes: Sequence[Pass]) -> dict[int, Tensor]:
        rows = max(max(one.rows, one.head_rows) for one in passes)
        widths = {self._sizes.hidden, self._sizes.query, self._sizes.inner}
        return {width: torch.randn(rows, width).to(self._dtype) for width in widths}

    def _outputs(self, passes: Sequence[Pass]) -> dict[int, Tensor]:
        rows, head_rows = max(one.rows for one in passes), max(one.head_rows for one in passes)
        widths = {weight.shape[0]: rows for layers in (self._apart, self._fused) for weight in layers[0]}
        widths[self._sizes.vocabulary] = head_rows
        return {width: torch.randn(count, width).to(self._dtype) for width, count in widths.items()}


def fastest(ways: Sequence[Callable[[], None]]) -> float:
    """Seconds of the fastest of several ways, each timed `REPEATS` times: the first time also makes the kernels."""
    seconds = []
    for _ in range(REPEATS):
        for way in ways:
            started = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - started)
    return min(seconds)


def training_passes(prompt_tokens: int, reply_tokens: int, micro_batch_tokens: int) -> list[Pass]:
    """The least rows of an optimizer step: each prompt once, each reply token once; the head on reply tokens alone."""
    rows = prompt_tokens + reply_tokens
    count = -(-rows // micro_batch_tokens)
    return [Pass(rows=rows // count, head_rows=reply_tokens // count)] * count


def update_seconds(parameters: int) -> float:
    """Seconds of AdamW on one flat float32 tensor of that many parameters."""
    weight = torch.nn.Parameter(torch.zeros(parameters))
    optimizer = torch.optim.AdamW([weight], fused=True)
    seconds = []
    for _ in range(3):
        weight.grad = torch.ones(parameters)
        started = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def copy_seconds(parameters: int) -> float:
    """Seconds of one copy of that many float32 numbers into bfloat16 ones."""
    source, target = torch.zeros(parameters), torch.zeros(parameters, dtype=torch.bfloat16)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
