from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dapo.maths.decoder import (
    gated,
    gated_gradients,
    rms_norm,
    rms_norm_again,
    rms_norm_gradients,
    rotate,
)

EPSILON = 1e-3
"""Large, so that leaving it out would show."""

shapes = pytest.mark.parametrize("shape", [(1, 1), (1, 6), (7, 6), (5, 3, 4), (2, 1, 8)], ids=str)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / ((x * x).mean(dim=-1, keepdim=True) + EPSILON) ** 0.5 * weight


def far(found: Tensor, wanted: Tensor) -> float:
    """Norm of the difference over the norm, in float64."""
    wanted = wanted.detach().double()
    return float((found.double() - wanted).norm() / wanted.norm())


def test_a_norm_written_out() -> None:
    """The root of (9 + 16) / 2 is 3.5355..., and the second row has nothing but the epsilon."""
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    normed, inverse = rms_norm(x, torch.tensor([1.0, 2.0], dtype=torch.float64), 0.0 + 1e-4)
    root = math.sqrt(12.5 + 1e-4)
    assert normed.flatten().tolist() == pytest.approx([3 / root, -8 / root, 0.0, 0.0], abs=1e-15)
    assert inverse.flatten().tolist() == pytest.approx([1 / root, 100.0], rel=1e-14)


@shapes
def test_the_norm_and_its_gradients_are_those_of_the_plain_formula(shape: tuple[int, ...]) -> None:
    x, weight, upstream = drawn(*shape), drawn(shape[-1], seed=1), drawn(*shape, seed=2)
    kept = x.clone()
    inputs = (x.clone().requires_grad_(), weight.clone().requires_grad_())
    wanted = plain_norm(*inputs)
    wanted_gradients = torch.autograd.grad((upstream * wanted).sum(), inputs)

    normed, inverse = rms_norm(x, weight, EPSILON)
    by_x, by_weight = rms_norm_gradients(upstream, x, weight, inverse)

    assert normed.dtype == inverse.dtype == by_x.dtype == by_weight.dtype == torch.float64
    assert inverse.shape == (*shape[:-1], 1)
    assert by_x.shape == shape and by_weight.shape == weight.shape
    assert torch.allclose(normed, wanted, rtol=0, atol=1e-13)
    assert torch.allclose(by_x, wanted_gradients[0], rtol=0, atol=1e-12)
    assert torch.allclose(by_weight, wanted_gradients[1], rtol=0, atol=1e-12)
    assert torch.equal(x, kept)  # the layer goes on with it
    assert torch.allclose(rms_norm_again(x, weight, inverse), normed, rtol=0, atol=1e-14)


def test_the_norm_of_part_of_the_heads_reads_no_other_part() -> None:
    """Queries and keys are normed as slices of one tensor."""
    joint, upstream, weight = drawn(5, 6, 4), drawn(5, 6, 4, seed=1), drawn(4, seed=2)
    for part in (slice(0, 4), slice(4, 6)):
        alone = rms_norm(joint[:, part].contiguous(), weight, EPSILON)
        sliced = rms_norm(joint[:, part], weight, EPSILON)
        assert all(torch.equal(one, other) for one, other in zip(sliced, alone, strict=True))
        found = rms_norm_gradients(upstream[:, part], joint[:, part], weight, sliced[1])
        wanted = rms_norm_gradients(upstream[:, part].contiguous(), joint[:, part].contiguous(), weight, alone[1])
        assert all(torch.allclose(one, other, rtol=0, atol=1e-14) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("shape", [(40, 64), (10, 4, 16)], ids=str)
def test_the_norm_in_bfloat16_is_the_plain_one_within_rounding(shape: tuple[int, ...]) -> None:
    """Values are rounded twice (by the norm and by the weight), the gradients once; the inner sums are wide."""
    x, upstream = drawn(*shape, dtype=torch.bfloat16), drawn(*shape, seed=2, dtype=torch.bfloat16)
    weight = drawn(shape[-1], seed=1, dtype=torch.bfloat16)
    inputs = (x.double().requires_grad_(), weight.double().requires_grad_())
    wanted = plain_norm(*inputs)
    by_x, by_weight = torch.autograd.grad((upstream.double() * wanted).sum(), inputs)

    normed, inverse = rms_norm(x, weight, EPSILON)
    found = rms_norm_gradients(upstream, x, weight, inverse)

    assert normed.dtype == found[0].dtype == found[1].dtype == torch.bfloat16
    assert inverse.dtype == torch.float32
    assert far(inverse, 1 / (x.double().square().mean(dim=-1, keepdim=True) + EPSILON).sqrt()) < 1e-6
    assert (normed.double() - wanted).abs().max() <= 2**-7 * wanted.abs().max()
    assert far(normed, wanted) < 2**-8
    assert far(found[0], by_x) < 2**-8 and far(found[1], by_weight) < 2**-8
    assert torch.equal(rms_norm_again(x, weight, inverse), normed)


def angles(tokens: int, depth: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Cosine and sine [N, 1, D], both halves alike."""
    angle = drawn(tokens, 1, depth // 2, seed=7) * 3
    return tuple(torch.cat([part, part], dim=-1).to(dtype) for part in (angle.cos(), angle.sin()))  # type: ignore[return-value]


def test_a_turn_written_out() -> None:
    """Two pairs, (1, 3) by a quarter and (2, 4) by a half turn."""
    cosine, sine = (torch.tensor([[values * 2]]) for values in ([0.0, -1.0], [1.0, 0.0]))
    turned = rotate(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), cosine, sine)
    assert turned.tolist() == [[[-3.0, -2.0, 1.0, -4.0]]]


@pytest.mark.parametrize(("tokens", "heads", "depth"), [(1, 1, 2), (5, 3, 8), (4, 6, 6)])
def test_a_turn_is_that_of_complex_numbers(tokens: int, heads: int, depth: int) -> None:
    x, half = drawn(tokens, heads, depth), depth // 2
    cosine, sine = angles(tokens, depth)
    kept = x.clone()
    numbers = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cosine[..., :half], sine[..., :half])

    turned = rotate(x, cosine, sine)

    assert torch.allclose(turned, torch.cat([numbers.real, numbers.imag], dim=-1), rtol=0, atol=1e-14)
    assert torch.equal(x, kept)


def test_a_turn_by_the_negative_sine_undoes_it_and_is_its_gradient() -> None:
    x, upstream = drawn(5, 3, 8), drawn(5, 3, 8, seed=1)
    cosine, sine = angles(5, 8)
    assert torch.allclose(rotate(rotate(x, cosine, sine), cosine, -sine), x, rtol=0, atol=1e-14)

    # A scaled turn (some models stretch theirs) is not undone that way, but its gradient is.
    for scale in (1.0, 1.3):
        inputs = x.clone().requires_grad_()
        first, second = inputs[..., :4], inputs[..., 4:]
        plain = inputs * cosine * scale + torch.cat([-second, first], dim=-1) * sine * scale
        (wanted,) = torch.autograd.grad((upstream * plain).sum(), inputs)
        assert torch.allclose(rotate(x, cosine * scale, sine * scale), plain, rtol=0, atol=1e-14)
        assert torch.allclose(rotate(upstream, cosine * scale, -sine * scale), wanted, rtol=0, atol=1e-14)


def test_a_turn_in_bfloat16_is_the_plain_one_within_rounding() -> None:
    x = drawn(30, 4, 16, dtype=torch.bfloat16)
    cosine, sine = angles(30, 16, torch.bfloat16)
    turned = rotate(x, cosine, sine)
    assert turned.dtype == torch.bfloat16
    assert far(turned, rotate(x.double(), cosine.double(), sine.double())) < 2**-8


@shapes
def test_the_gate_and_its_gradients_are_those_of_the_plain_formula(shape: tuple[int, ...]) -> None:
    gate, up, upstream = (drawn(*shape, seed=seed) for seed in range(3))
    kept = gate.clone(), up.clone(), upstream.clone()
    inputs = (gate.clone().requires_grad_(), up.clone().requires_grad_())
    opened = inputs[0] / (1 + (-inputs[0]).exp())
    wanted = opened * inputs[1]
    by_gate, by_up = torch.autograd.grad((upstream * wanted).sum(), inputs)

    assert torch.allclose(gated(gate, up), wanted, rtol=0, atol=1e-14)
    found = gated_gradients(upstream, gate, up, opened.detach().clone())

    assert torch.allclose(found[0], by_gate, rtol=0, atol=1e-14)
    assert torch.allclose(found[1], by_up, rtol=0, atol=1e-14)
    assert all(torch.equal(one, other) for one, other in zip((gate, up, upstream), kept, strict=True))


def test_the_gate_in_bfloat16_is_the_plain_one_within_rounding() -> None:
    gate, up, upstream = (drawn(40, 32, seed=seed, dtype=torch.bfloat16) for seed in range(3))
    opened = torch.nn.functional.silu(gate)
    wide = [tensor.double() for tensor in (upstream, gate, up)]
    wanted = gated_gradients(*wide, torch.nn.functional.silu(wide[1]))
    found = gated_gradients(upstream, gate, up, opened.clone())
    assert gated(gate, up).dtype == found[0].dtype == found[1].dtype == torch.bfloat16
    assert far(gated(gate, up), opened.double() * up.double()) < 2**-8
    assert all(far(one, other) < 2**-7 for one, other in zip(found, wanted, strict=True))
