from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dapo.maths import attention_gradients
from dapo.maths.attention import (
    attend_causally,
    attend_to_shared_prompt,
    attend_to_shared_prompt_plainly,
    attend_with_normaliser,
    fused_attention,
    join_parts,
)

SAME = 2e-6
"""Scores are float32 in every way of computing; the rest is float64."""
DEPTH = 8
SCALING = 0.3

heads = pytest.mark.parametrize(("query_heads", "kv_heads"), [(4, 4), (4, 2), (6, 1), (1, 1)])
shapes = pytest.mark.parametrize(
    ("replies", "width", "prompt"), [(3, 5, 4), (1, 1, 1), (4, 1, 3), (2, 6, 1), (1, 7, 9)]
)
Attend = Callable[..., Tensor]


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(map(math.prod, shapes)))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def shared_parts(query_heads: int, kv_heads: int, replies: int, width: int, prompt: int) -> list[Tensor]:
    own = (kv_heads, replies, width, DEPTH)
    return drawn((query_heads, replies, width, DEPTH), own, own, (kv_heads, prompt, DEPTH), (kv_heads, prompt, DEPTH))


def one_query_at_a_time(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax over the keys [S, D] that one query [D] may look at."""
    weights = (key @ query * SCALING).softmax(dim=0)
    return weights @ value


def slow_shared(query: Tensor, key: Tensor, value: Tensor, prompt_key: Tensor, prompt_value: Tensor) -> Tensor:
    """Each reply token looks at the whole prompt and at its own reply up to itself."""
    query_heads, replies, width, _ = query.shape
    per_head = query_heads // key.shape[0]
    rows = [
        one_query_at_a_time(
            query[head, reply, place],
            torch.cat([prompt_key[head // per_head], key[head // per_head, reply, : place + 1]]),
            torch.cat([prompt_value[head // per_head], value[head // per_head, reply, : place + 1]]),
        )
        for head in range(query_heads)
        for reply in range(replies)
        for place in range(width)
    ]
    return torch.stack(rows).view(query.shape)


def slow_causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    per_head = query.shape[0] // key.shape[0]
    rows = [
        one_query_at_a_time(
            query[head, place], key[head // per_head, : place + 1], value[head // per_head, : place + 1]
        )
        for head in range(query.shape[0])
        for place in range(query.shape[1])
    ]
    return torch.stack(rows).view(query.shape)


def check_equal(found: Attend, wanted: Attend, inputs: list[Tensor]) -> None:
    """Same values, and the same gradients by every input for an upstream gradient that weighs each entry apart."""
    one, two = found(*inputs), wanted(*inputs)
    assert one.shape == two.shape
    assert (one - two).abs().max() < SAME
    upstream = torch.linspace(-1, 1, one.numel(), dtype=torch.float64).view(one.shape).sin()
    gradients = torch.autograd.grad((upstream * one).sum(), inputs)
    expected = torch.autograd.grad((upstream * two).sum(), inputs)
    for gradient, own, tensor in zip(gradients, expected, inputs, strict=True):
        assert gradient.shape == tensor.shape
        assert (gradient - own).abs().max() < SAME * (1 + own.abs().max())


@shapes
@heads
def test_attention_to_a_shared_prompt_is_softmax_query_by_query(
    query_heads: int, kv_heads: int, replies: int, width: int, prompt: int
) -> None:
    inputs = shared_parts(query_heads, kv_heads, replies, width, prompt)
    check_equal(lambda *parts: attend_to_shared_prompt(*parts, SCALING), slow_shared, inputs)
    check_equal(lambda *parts: attend_to_shared_prompt_plainly(*parts, SCALING), slow_shared, inputs)


@pytest.mark.parametrize("width", [1, 2, 9])
@heads
def test_causal_attention_is_softmax_query_by_query(query_heads: int, kv_heads: int, width: int) -> None:
    inputs = drawn((query_heads, width, DEPTH), (kv_heads, width, DEPTH), (kv_heads, width, DEPTH))
    check_equal(lambda *parts: attend_causally(*parts, SCALING), slow_causal, inputs)


@pytest.mark.parametrize("limit", [1, 7, 64, 1 << 24])
def test_a_gradient_in_slices_is_the_gradient(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradients, "SCORE_LIMIT", limit)
    inputs = shared_parts(4, 2, 3, 5, 4)
    check_equal(lambda *parts: attend_to_shared_prompt(*parts, SCALING), slow_shared, inputs)
    causal = drawn((4, 6, DEPTH), (2, 6, DEPTH), (2, 6, DEPTH))
    check_equal(lambda *parts: attend_causally(*parts, SCALING), slow_causal, causal)


@pytest.mark.parametrize("limit", [1, 12, 1 << 24])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@heads
def test_attention_gradients_are_those_of_the_plain_computation(
    query_heads: int, kv_heads: int, with_bias: bool, causal: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_gradients, "SCORE_LIMIT", limit)
    places = 4
    own = (2, kv_heads, places, DEPTH)
    query, key, value = drawn((2, query_heads, places, DEPTH), own, own)
    key_bias = torch.tensor([[0.0, 0.5, 0.0, -math.inf], [0.0, 0.0, -math.inf, 0.0]]) if with_bias else None
    repeats = query_heads // kv_heads
    scores = query @ key.repeat_interleave(repeats, dim=1).transpose(2, 3) * SCALING
    if causal:
        scores = scores.masked_fill(torch.ones(places, places, dtype=torch.bool).triu(1), -math.inf)
    if key_bias is not None:
        scores = scores + key_bias[:, None, None, :]
    output = scores.softmax(dim=3) @ value.repeat_interleave(repeats, dim=1)
    upstream = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape)
    expected = torch.autograd.grad((upstream * output).sum(), (query, key, value))
    parts = [tensor.detach() for tensor in (query, key, value, output, scores.logsumexp(dim=3).float())]
    found = attention_gradients.attention_gradients(upstream, *parts, SCALING, causal=causal, key_bias_BS=key_bias)
    for gradient, wanted in zip(found, expected, strict=True):
        assert (gradient - wanted).abs().max() < SAME
    if not (causal and with_bias):
        again, normaliser = fused_attention(*parts[:3], SCALING, causal=causal, key_bias_BS=key_bias)
        assert (again - parts[3]).abs().max() < SAME
        assert (normaliser - parts[4]).abs().max() < SAME


def test_what_stands_in_the_padding_changes_nothing_before_it() -> None:
    """Replies of 2 and 4 tokens padded to 4: the first reply's two places and all gradients there stay as they are."""
    inputs = shared_parts(4, 2, 2, 4, 3)
    valid_NT = torch.tensor([[True, True, False, False], [True] * 4])

    def run(own: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        output = attend_to_shared_prompt(*own, SCALING)
        inside = output * valid_NT[None, :, :, None]
        return inside.detach(), torch.autograd.grad(inside.square().sum(), own)

    other = [tensor.detach().clone() for tensor in inputs]
    for tensor in other[:3]:
        tensor[:, 0, 2:] = 1e3
    plain, plain_gradients = run(inputs)
    found, gradients = run([tensor.requires_grad_() for tensor in other])
    assert (found - plain).abs().max() < SAME
    for one, two in zip(gradients, plain_gradients, strict=True):
        assert (one - two).abs().max() < SAME * (1 + two.abs().max())
    assert not gradients[1][:, 0, 2:].any() and not gradients[2][:, 0, 2:].any()


def test_two_parts_joined_are_the_whole() -> None:
    query, key, value = (tensor.detach() for tensor in drawn((1, 2, 3, DEPTH), (1, 2, 7, DEPTH), (1, 2, 7, DEPTH)))
    whole = (query @ key.transpose(-1, -2) * SCALING).softmax(dim=-1) @ value
    for cut in (1, 3, 6):
        parts = [
            attend_with_normaliser(query, key[:, :, part], value[:, :, part], None, SCALING)
            for part in (slice(0, cut), slice(cut, 7))
        ]
        assert (join_parts(parts[0], parts[1]) - whole).abs().max() < SAME
