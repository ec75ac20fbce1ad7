from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from dapo.engines.native import products
from dapo.engines.native.products import Product, lays_out_weights

DTYPES = [torch.float32, torch.bfloat16]

WIDTHS = pytest.mark.parametrize(
    ("width", "widths"),
    [(64, (64,)), (64, (105,)), (96, (64,)), (64, (64, 32, 32)), (5, (3,)), (32, (1, 7, 40)), (1, (1,))],
    ids=str,
)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
biases = pytest.mark.parametrize("with_biases", [False, True], ids=["no bias", "biases"])


@pytest.fixture(params=["laid out", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the processor's layout where it is supported, and without it."""
    name: str = request.param
    if name == "plain":
        monkeypatch.setattr(products, "lays_out_weights", lambda device, dtype: False)
    elif not all(lays_out_weights(torch.device("cpu"), dtype) for dtype in DTYPES):
        pytest.skip("this processor's kernels take no weights in a layout of their own")
    yield name


def drawn(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def parts(width: int, widths: tuple[int, ...], with_biases: bool, dtype: torch.dtype) -> tuple[list[Tensor], ...]:
    weights = [drawn(out, width, seed=number, dtype=dtype) for number, out in enumerate(widths)]
    own = [drawn(out, seed=10 + number, dtype=dtype) for number, out in enumerate(widths)] if with_biases else []
    return weights, own


def far(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("rows", [1, 3, 48, 65])
@every_dtype
@biases
@WIDTHS
def test_it_is_the_plain_product_with_what_follows_it(
    width: int, widths: tuple[int, ...], with_biases: bool, dtype: torch.dtype, rows: int, way: str
) -> None:
    """Each weight's outputs stand side by side, as if the products had been made one by one in float64."""
    weights, own = parts(width, widths, with_biases, dtype)
    x, other = drawn(rows, width, seed=20, dtype=dtype), drawn(rows, sum(widths), seed=21, dtype=dtype)
    kept = x.clone(), other.clone()
    product = Product(weights, own)
    wide = torch.cat(
        [
            linear(x.double(), weight.double(), own[number].double() if own else None)
            for number, weight in enumerate(weights)
        ],
        dim=1,
    )
    results = {
        "itself": (product(x), wide),
        "swish": (product.swish(x), silu(wide)),
        "plus": (product.plus(x, other), wide + other.double()),
        "times": (product.times(x, other), wide * other.double()),
    }
    for name, (found, wanted) in results.items():
        assert found.shape == (rows, sum(widths)) and found.dtype == dtype, name
        assert far(found, wanted) < (1e-6 if dtype == torch.float32 else 2**-7), name
    assert torch.equal(x, kept[0]) and torch.equal(other, kept[1])


@every_dtype
@pytest.mark.parametrize("widths", [(64,), (48, 16)], ids=str)
def test_it_keeps_its_own_copy_of_what_it_was_given(widths: tuple[int, ...], dtype: torch.dtype, way: str) -> None:
    weights, own = parts(32, widths, True, dtype)
    x = drawn(5, 32, seed=20, dtype=dtype)
    product = Product(weights, own)
    before = product(x)
    kept = [tensor.clone() for tensor in (*weights, *own)]
    assert all(torch.equal(tensor, copy) for tensor, copy in zip((*weights, *own), kept, strict=True))
    for tensor in (*weights, *own):
        tensor.fill_(torch.nan)
    assert torch.equal(product(x), before)


@every_dtype
def test_rows_of_a_wider_tensor_and_a_residual_may_be_given(dtype: torch.dtype, way: str) -> None:
    """What is added may be the input itself, and the input a part of another tensor."""
    weights, own = parts(64, (64,), True, dtype)
    product = Product(weights, own)
    whole = drawn(6, 128, seed=20, dtype=dtype)
    x = whole[:, :64]
    assert torch.equal(product(x), product(x.contiguous()))
    assert torch.equal(product.plus(x, x), product.plus(x.contiguous(), x.contiguous()))


@every_dtype
def test_a_row_does_not_depend_on_the_number_of_rows_beside_it_in_steps_of_16_from_48(dtype: torch.dtype) -> None:
    """What the engine's filling up of rows stands on; more than 256 rows are only read from prompts."""
    if not lays_out_weights(torch.device("cpu"), dtype):
        pytest.skip("this processor's kernels take no weights in a layout of their own")
    for width, out in ((64, 128), (96, 64), (64, 105)):
        weights, own = parts(width, (out,), True, dtype)
        product = Product(weights, own)
        x, other = drawn(256, width, seed=20, dtype=dtype), drawn(256, out, seed=21, dtype=dtype)
        whole = product(x), product.swish(x), product.plus(x, other), product.times(x, other)
        for rows in range(48, 256, 16):
            for start in {0, 16, 256 - rows}:
                part = slice(start, start + rows)
                few = (
                    product(x[part]),
                    product.swish(x[part]),
                    product.plus(x[part], other[part]),
                    product.times(x[part], other[part]),
                )
                assert all(torch.equal(one, all_of_it[part]) for one, all_of_it in zip(few, whole, strict=True))


def test_weights_are_laid_out_only_where_it_was_seen_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_WORKS", {})
    assert not lays_out_weights(torch.device("meta"), torch.float32)
    assert not lays_out_weights(torch.device("cuda"), torch.bfloat16)
    assert not lays_out_weights(torch.device("cpu"), torch.float64)  # the kernels have no such precision

    monkeypatch.setattr(products, "_WORKS", {})
    monkeypatch.setattr(products, "_reordered", lambda weight: weight * 1.1)
    assert not any(lays_out_weights(torch.device("cpu"), dtype) for dtype in DTYPES)
