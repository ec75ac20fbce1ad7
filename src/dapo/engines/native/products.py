"""Matrix products whose right side stays as it is for many steps, laid out once for the processor.

Letters: N tokens, I width in, O width out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

_TYPICAL_ROWS = 128  # what the layout is chosen for; any number of rows is right


class Product:
    """`x @ W^T + b`, with what follows it done in the same pass where the processor's kernels can.

    On the processor, weights are kept in the layout of its matrix kernels: no step has to rearrange them. Elsewhere, and where
    those kernels are missing, they are kept as they are.
    """

    def __init__(self, weights_OI: Sequence[Tensor], biases_O: Sequence[Tensor]) -> None:
        weight = torch.cat(list(weights_OI))  # a copy, also of one: the caller's may change
        self._bias = torch.cat(list(biases_O)) if biases_O else None
        self._packed = lays_out_weights(weight.device, weight.dtype)
        self._weight = _reordered(weight) if self._packed else weight

    def __call__(self, x_NI: Tensor) -> Tensor:
        """[N, O]."""
        return self._pointwise(x_NI, "none") if self._packed else linear(x_NI, self._weight, self._bias)

    def swish(self, x_NI: Tensor) -> Tensor:
        """silu of the product, [N, O]."""
        return self._pointwise(x_NI, "swish") if self._packed else silu(linear(x_NI, self._weight, self._bias))

    def plus(self, x_NI: Tensor, other_NO: Tensor) -> Tensor:
        """The product plus `other_NO`."""
        return self._with(x_NI, other_NO, "add") if self._packed else linear(x_NI, self._weight, self._bias) + other_NO

    def times(self, x_NI: Tensor, other_NO: Tensor) -> Tensor:
        """The product times `other_NO`, entry by entry."""
        return self._with(x_NI, other_NO, "mul") if self._packed else linear(x_NI, self._weight, self._bias) * other_NO

    def _pointwise(self, x_NI: Tensor, kind: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, self._weight, self._bias, kind, [], "")
        return result

    def _with(self, x_NI: Tensor, other_NO: Tensor, kind: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x_NI, other_NO, self._weight, self._bias, kind)
        return result


def _reordered(weight_OI: Tensor) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), _TYPICAL_ROWS)
    return reordered


_WORKS: dict[tuple[str, torch.dtype], bool] = {}


def lays_out_weights(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the processor's matrix kernels take weights in their own layout here, and compute the same with them."""
    place = (device.type, dtype)
    if place not in _WORKS:
        _WORKS[place] = device.type == "cpu" and _agrees(dtype)
    return _WORKS[place]


def _agrees(dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    x, weight, other = (torch.randn(shape, generator=generator).to(dtype) for shape in ((48, 32), (64, 32), (48, 64)))
    bias = torch.randn(64, generator=generator).to(dtype)
    plain = linear(x.float(), weight.float(), bias.float())
    operations: Any = torch.ops.mkldnn
    checks: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
        (lambda laid: operations._linear_pointwise(x, laid, bias, "none", [], ""), plain),
        (lambda laid: operations._linear_pointwise(x, laid, bias, "swish", [], ""), silu(plain)),
        (lambda laid: operations._linear_pointwise.binary(x, other, laid, bias, "add"), plain + other),
        (lambda laid: operations._linear_pointwise.binary(x, other, laid, bias, "mul"), plain * other),
    ]
    try:
        laid = _reordered(weight)
        gaps = [float((compute(laid).float() - right).norm() / right.norm()) for compute, right in checks]
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return max(gaps) < (1e-5 if dtype == torch.float32 else 0.02)
