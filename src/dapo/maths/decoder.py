"""The small steps of a decoder layer, forward and backward by hand. Letters: N tokens, E width, A heads, D head width."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def rms_norm(x_NE: Tensor, weight_E: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x / root-mean-square(x) * weight (arXiv 1910.07467), and the inverse root in float32 at least, [N, 1].

    As transformers does it: the norm in float32, the product with the weight in the precision of `x`.
    """
    wide = x_NE.to(torch.promote_types(x_NE.dtype, torch.float32), copy=True)
    inverse = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x_NE.shape[-1]).add_(epsilon).rsqrt_()
    return wide.mul_(inverse).to(x_NE.dtype).mul_(weight_E), inverse


def rms_norm_again(x_NE: Tensor, weight_E: Tensor, inverse: Tensor) -> Tensor:
    """The same from a known inverse root."""
    return (x_NE * inverse).to(x_NE.dtype).mul_(weight_E)


def rms_norm_gradients(gradient_NE: Tensor, x_NE: Tensor, weight_E: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by `x_NE` and `weight_E`.

    With n = x * inverse and g = gradient * weight: dx = inverse * (g - n * mean(g * n)), dweight = sum_N gradient * n.
    """
    normed = x_NE * inverse
    by_weight = gradient_NE * normed
    weight_gradient = by_weight.flatten(0, -2).sum(dim=0)
    mean = torch.mv(by_weight.flatten(0, -2), weight_E.to(by_weight.dtype)).div_(x_NE.shape[-1]).view(inverse.shape)
    by_x = torch.mul(gradient_NE, weight_E.to(by_weight.dtype), out=by_weight)
    by_x = by_x.addcmul_(normed, mean, value=-1).mul_(inverse)
    return by_x.to(x_NE.dtype), weight_gradient.to(weight_E.dtype)


def rotate(x_NAD: Tensor, cosine_N1D: Tensor, sine_N1D: Tensor) -> Tensor:
    """Turn each pair (first half, second half) of a head by its position's angle, RoFormer (arXiv 2104.09864)."""
    half = x_NAD.shape[-1] // 2
    turned = x_NAD * cosine_N1D
    turned[..., :half].addcmul_(x_NAD[..., half:], sine_N1D[..., :half], value=-1)
    turned[..., half:].addcmul_(x_NAD[..., :half], sine_N1D[..., half:])
    return turned


def gated(gate_NF: Tensor, up_NF: Tensor) -> Tensor:
    """silu(gate) * up, the middle of a SwiGLU feed-forward (arXiv 2002.05202)."""
    return silu(gate_NF).mul_(up_NF)


def gated_gradients(gradient_NF: Tensor, gate_NF: Tensor, up_NF: Tensor, opened_NF: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by gate and up. `opened_NF` is silu(gate), which is overwritten."""
    up_gradient = opened_NF.mul_(gradient_NF)
    gate_gradient: Tensor = torch.ops.aten.silu_backward(gradient_NF * up_NF, gate_NF)
    return gate_gradient, up_gradient
