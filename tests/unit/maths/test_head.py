from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dapo.maths import head
from dapo.maths.head import head_logprobs
from tests import restatement

TOKENS, WIDTH, VOCABULARY = 7, 5, 11


def made(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    tokens = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), tokens


@pytest.fixture(params=[1, 2, 3, 6, 7, 100], ids=lambda count: f"{count} a chunk")
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Tokens a chunk; one that does not divide their number, one that is their number, and one beyond it among them."""
    count: int = request.param
    monkeypatch.setattr(head, "CHUNK_LOGITS", count * VOCABULARY)
    return count


def plain(hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    logprobs = (hidden @ weight.T / temperature).log_softmax(dim=1)
    return logprobs[torch.arange(TOKENS), tokens]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_value_entropy_and_gradients_are_those_of_the_whole_softmax(chunk: int, temperature: float) -> None:
    hidden, weight, tokens = made()
    scale = torch.linspace(-1, 2, TOKENS, dtype=torch.float64)
    expected = plain(hidden, weight, tokens, temperature)
    wanted = torch.autograd.grad((scale * expected).sum(), (hidden, weight))

    found, entropy = head_logprobs(hidden, weight, tokens, temperature)
    gradients = torch.autograd.grad((scale * found).sum(), (hidden, weight))

    assert found.dtype == gradients[0].dtype == gradients[1].dtype == torch.float64
    assert (found - expected).abs().max() < 1e-13
    assert all((one - two).abs().max() < 1e-13 for one, two in zip(gradients, wanted, strict=True))
    rows = (hidden @ weight.T).tolist()
    assert entropy.tolist() == pytest.approx([restatement.entropy(row, temperature) for row in rows], abs=1e-12)
    assert found.tolist() == pytest.approx(
        [restatement.log_softmax(row, temperature)[token] for row, token in zip(rows, tokens.tolist(), strict=True)],
        abs=1e-12,
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_its_gradient_is_that_of_finite_differences(chunk: int, temperature: float) -> None:
    hidden, weight, tokens = made()
    assert torch.autograd.gradcheck(lambda *inputs: head_logprobs(*inputs, tokens, temperature)[0], (hidden, weight))


def test_the_entropy_carries_no_gradient() -> None:
    hidden, weight, tokens = made()
    logprobs, entropy = head_logprobs(hidden, weight, tokens, 1.0)
    assert logprobs.requires_grad and not entropy.requires_grad


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_side_gets_no_gradient_and_the_other_its_own(chunk: int, frozen: int) -> None:
    hidden, weight, tokens = made()
    wanted = torch.autograd.grad(plain(hidden, weight, tokens, 1.0).sum(), (hidden, weight))
    inputs = [hidden, weight]
    inputs[frozen].requires_grad_(False)
    head_logprobs(hidden, weight, tokens, 1.0)[0].sum().backward()
    assert inputs[frozen].grad is None
    gradient = inputs[1 - frozen].grad
    assert gradient is not None and (gradient - wanted[1 - frozen]).abs().max() < 1e-13


def test_narrow_weights_give_wide_log_probabilities_and_narrow_gradients(chunk: int) -> None:
    hidden, weight, tokens = made(torch.bfloat16)
    wide = [tensor.detach().float().requires_grad_() for tensor in (hidden, weight)]
    plain(wide[0], wide[1], tokens, 0.8).sum().backward()
    logprobs, entropy = head_logprobs(hidden, weight, tokens, 0.8)
    logprobs.sum().backward()
    assert logprobs.dtype == entropy.dtype == torch.float32
    assert (logprobs - plain(wide[0], wide[1], tokens, 0.8)).abs().max() < 0.05
    for narrow, exact in zip((hidden, weight), wide, strict=True):
        assert narrow.grad is not None and exact.grad is not None
        assert narrow.grad.dtype is torch.bfloat16
        assert (narrow.grad.float() - exact.grad).norm() < 0.02 * exact.grad.norm()


def test_logits_of_any_size_stay_finite() -> None:
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    weight = torch.tensor([[3e4, -3e4], [-3e4, 3e4], [0.0, 0.0]], requires_grad=True)
    logprobs, entropy = head_logprobs(hidden, weight, torch.tensor([1, 1]), 1.0)
    logprobs.sum().backward()
    assert logprobs.tolist() == [-6e4, 0.0]
    assert entropy.tolist() == [0.0, 0.0]
    assert hidden.grad is not None and bool(torch.isfinite(hidden.grad).all())
    assert weight.grad is not None and weight.grad.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 50])
@pytest.mark.parametrize("slice_tokens", [0, 1, 2, 5, 50])
def test_the_size_of_chunks_and_of_slices_within_them_changes_nothing(
    chunk_tokens: int, slice_tokens: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit below one token's logits still takes one token at a time."""
    hidden, weight, tokens = made()
    scale = torch.linspace(-1, 2, TOKENS, dtype=torch.float64)
    expected = plain(hidden, weight, tokens, temperature)
    wanted = torch.autograd.grad((scale * expected).sum(), (hidden, weight))
    monkeypatch.setattr(head, "CHUNK_LOGITS", chunk_tokens * VOCABULARY)
    monkeypatch.setattr(head, "SLICE_LOGITS", slice_tokens * VOCABULARY + 3)

    found, entropy = head_logprobs(hidden, weight, tokens, temperature)
    gradients = torch.autograd.grad((scale * found).sum(), (hidden, weight))

    probability = (hidden.detach() @ weight.detach().T / temperature).softmax(dim=1)
    assert (found - expected).abs().max() < 1e-13
    assert (entropy + (probability * probability.log()).sum(dim=1)).abs().max() < 1e-13
    assert all((one - two).abs().max() < 1e-13 for one, two in zip(gradients, wanted, strict=True))


@pytest.mark.parametrize("live", [(), (0,), (6,), (1, 4), (0, 1, 2, 3, 4, 5), (2, 3, 6)], ids=str)
def test_tokens_whose_gradient_is_zero_are_left_out_of_backward_and_nothing_else(
    live: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight, tokens = made()
    scale = torch.zeros(TOKENS, dtype=torch.float64)
    scale[list(live)] = torch.tensor([1.5, -2.0, 0.5, 3.0, -1.0, 0.25], dtype=torch.float64)[: len(live)]
    wanted = torch.autograd.grad((scale * plain(hidden, weight, tokens, 0.7)).sum(), (hidden, weight))
    found, _ = head_logprobs(hidden, weight, tokens, 0.7)
    worked_on: list[int] = []
    scaled = head._scaled

    def counting(logits: Tensor, temperature: float) -> Tensor:
        worked_on.append(logits.shape[0])
        return scaled(logits, temperature)

    monkeypatch.setattr(head, "_scaled", counting)
    gradients = torch.autograd.grad((scale * found).sum(), (hidden, weight))

    assert sum(worked_on) == len(live)
    assert all((one - two).abs().max() < 1e-13 for one, two in zip(gradients, wanted, strict=True))
    others = [token for token in range(TOKENS) if token not in live]
    assert not gradients[0][others].any()
    if not live:
        assert not gradients[1].any()


def test_no_token_at_all_gives_nothing_and_gradients_of_zero() -> None:
    hidden, weight, _ = made()
    logprobs, entropy = head_logprobs(hidden[:0], weight, torch.empty(0, dtype=torch.long), 1.0)
    logprobs.sum().backward()
    assert logprobs.shape == entropy.shape == (0,)
    assert hidden.grad is not None and not hidden.grad.any()
    assert weight.grad is not None and not weight.grad.any()


def test_a_gradient_that_is_no_number_stays_one(chunk: int) -> None:
    """It must not pass for a zero and be left out: the trainer finds it in the gradient's norm."""
    hidden, weight, tokens = made()
    scale = torch.zeros(TOKENS, dtype=torch.float64)
    scale[2] = torch.nan
    head_logprobs(hidden, weight, tokens, 1.0)[0].backward(scale)
    assert hidden.grad is not None and bool(hidden.grad[2].isnan().all())
    assert not hidden.grad[[0, 1, 3, 4, 5, 6]].any()
    assert weight.grad is not None and bool(weight.grad.isnan().any())
