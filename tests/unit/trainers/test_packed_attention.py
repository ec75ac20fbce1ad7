from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.maths import attention_gradients
from dapo.trainers import packed_attention
from dapo.trainers.blocks import blocks_of
from dapo.trainers.packed_attention import PackedAttention
from dapo.trainers.packing import pack_flat

Groups = list[tuple[int, list[int]]]
"""Of each group the length of its prompt, and the lengths of its replies."""

DEPTH = 4
SCALING = 0.4
SAME = 1e-12

HEADS = [(1, 1), (2, 2), (4, 2), (6, 1), (6, 2)]
"""Query heads and key-value heads."""

EXAMPLES: dict[str, Groups] = {
    "one token": [(1, [1])],
    "one reply": [(3, [5])],
    "a group": [(3, [4, 4, 4])],
    "replies of different length": [(2, [1, 6, 3])],
    "groups alike": [(3, [2, 2]), (3, [2, 2])],
    "prompts of different length": [(5, [3, 3]), (1, [3, 3]), (3, [3, 3])],
    "padding everywhere": [(5, [4, 2]), (1, [3, 4]), (2, [4, 4])],
    "groups of unequal size": [(2, [3]), (4, [3, 1, 2]), (3, [1, 2])],
    "long and short": [(1, [12, 1]), (7, [1, 1])],
}


def attention_of(groups: Groups, heads: int, kv_heads: int, like: Tensor) -> PackedAttention:
    rows = [((number,) * prompt, length) for number, (prompt, lengths) in enumerate(groups) for length in lengths]
    packing = pack_flat(
        tuple(prompt for prompt, _ in rows),
        torch.zeros(len(rows), max(length for _, length in rows), dtype=torch.long),
        torch.tensor([length for _, length in rows]),
    )
    return PackedAttention.over(blocks_of(packing.groups), heads, kv_heads, SCALING, like=like)


def mask_of(groups: Groups) -> Tensor:
    """[N, N]: true where the token of the row may look at that of the column, place by place."""
    owner: list[tuple[int, int]] = []  # the group, and the reply within it; -1 in a prompt
    for number, (prompt, lengths) in enumerate(groups):
        owner += [(number, -1)] * prompt
        for reply, length in enumerate(lengths):
            owner += [(number, reply)] * length
    return torch.tensor(
        [
            [
                there <= here and owner[there][0] == owner[here][0] and owner[there][1] in (-1, owner[here][1])
                for there in range(len(owner))
            ]
            for here in range(len(owner))
        ]
    )


@pytest.fixture(params=["short", "long"], autouse=True)
def _replies_count_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of attending, whatever the size."""
    if request.param == "long":
        monkeypatch.setattr(packed_attention, "_SHORT", 0)


def dense(joint_NAD: Tensor, mask_NN: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """Attention over the whole flat row with a mask, and the log of its normaliser: [N, H, D] and [N, H]."""
    query = joint_NAD[:, :heads]
    key, value = (
        joint_NAD[:, heads + part * kv_heads : heads + (part + 1) * kv_heads].repeat_interleave(
            heads // kv_heads, dim=1
        )
        for part in (0, 1)
    )
    scores = torch.einsum("qhd,khd->hqk", query, key) * SCALING
    scores = scores.masked_fill(~mask_NN, -torch.inf)
    output = torch.einsum("hqk,khd->qhd", scores.softmax(dim=2), value)
    return output, scores.logsumexp(dim=2).T


def check(groups: Groups, heads: int, kv_heads: int, *, seed: int = 0, spread: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = mask_of(groups)
    tokens = mask.shape[0]
    joint = spread * torch.randn(tokens, heads + 2 * kv_heads, DEPTH, generator=generator, dtype=torch.float64)
    upstream = torch.randn(tokens, heads, DEPTH, generator=generator, dtype=torch.float64)
    inputs = joint.clone().requires_grad_()
    wanted, wanted_normaliser = dense(inputs, mask, heads, kv_heads)
    (wanted_gradient,) = torch.autograd.grad((upstream * wanted).sum(), inputs)
    kept = joint.clone(), upstream.clone()
    attention = attention_of(groups, heads, kv_heads, joint)

    output, normaliser = attention.forward(joint)
    gradient = attention.backward(upstream, joint, output, normaliser)

    assert (output - wanted).abs().max() < SAME * spread
    assert (normaliser - wanted_normaliser).abs().max() < SAME * (1 + wanted_normaliser.abs().max())
    assert (gradient - wanted_gradient).abs().max() < SAME * (1 + wanted_gradient.abs().max()) * spread
    assert normaliser.dtype == torch.float64
    assert torch.equal(joint, kept[0]) and torch.equal(upstream, kept[1])


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_output_and_gradient_are_those_of_dense_masked_attention(name: str, heads: int, kv_heads: int) -> None:
    check(EXAMPLES[name], heads, kv_heads)


@given(
    groups=st.lists(
        st.tuples(st.integers(1, 7), st.lists(st.integers(1, 8), min_size=1, max_size=4)), min_size=1, max_size=5
    ),
    heads=st.sampled_from(HEADS),
    seed=st.integers(0, 100),
)
@settings(max_examples=50, deadline=None)
def test_output_and_gradient_are_those_of_dense_masked_attention_for_any_packing(
    groups: Groups, heads: tuple[int, int], seed: int
) -> None:
    check(groups, *heads, seed=seed)


@pytest.mark.parametrize("limit", [1, 17, 60])
def test_a_gradient_in_blocks_of_queries_is_the_gradient(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradients, "SCORE_LIMIT", limit)
    for groups in EXAMPLES.values():
        check(groups, 4, 2)


def test_padding_stays_out_of_the_gradient_however_large_the_scores_are() -> None:
    """A place of padding holds the reply's first token, which in a wider row stands before keys that it never saw.

    Their scores may be greater by hundreds than those in its normaliser: exp of that is inf, and 0 * inf is no number.
    """
    for name in ("replies of different length", "padding everywhere"):
        for seed in range(3):
            groups = EXAMPLES[name]
            joint = 60.0 * torch.randn(
                mask_of(groups).shape[0], 8, DEPTH, generator=torch.Generator().manual_seed(seed)
            )
            attention = attention_of(groups, 4, 2, joint)
            output, normaliser = attention.forward(joint)
            gradient = attention.backward(torch.ones_like(output), joint, output, normaliser)
            inputs = joint.double().requires_grad_()
            (wanted,) = torch.autograd.grad(dense(inputs, mask_of(groups), 4, 2)[0].sum(), inputs)
            assert bool(gradient.isfinite().all())
            assert (gradient - wanted).norm() < 1e-2 * (1 + wanted.norm())


def test_bfloat16_is_the_dense_one_within_rounding() -> None:
    groups = EXAMPLES["padding everywhere"]
    mask = mask_of(groups)
    generator = torch.Generator().manual_seed(0)
    joint = torch.randn(mask.shape[0], 8, 16, generator=generator).bfloat16()
    upstream = torch.randn(mask.shape[0], 4, 16, generator=generator).bfloat16()
    inputs = joint.double().requires_grad_()
    wanted, wanted_normaliser = dense(inputs, mask, 4, 2)
    (wanted_gradient,) = torch.autograd.grad((upstream.double() * wanted).sum(), inputs)
    attention = attention_of(groups, 4, 2, joint)

    output, normaliser = attention.forward(joint)
    gradient = attention.backward(upstream, joint, output, normaliser)

    assert output.dtype == gradient.dtype == torch.bfloat16
    assert normaliser.dtype == torch.float32
    assert (output.double() - wanted).norm() < 0.01 * wanted.norm()
    assert (normaliser - wanted_normaliser).abs().max() < 0.02
    assert (gradient.double() - wanted_gradient).norm() < 0.01 * wanted_gradient.norm()
