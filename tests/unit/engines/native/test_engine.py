"""A reply is the same whatever is generated beside it, and the same as in transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from dapo.engines.native.engine import NativeEngine
from dapo.engines.native.forward import Forward, FusedForward, ModelForward
from dapo.engines.native.products import lays_out_weights
from dapo.errors import EngineError
from dapo.models.attention import use_planned_attention
from dapo.models.load import load_model
from dapo.models.render import Renderer
from dapo.trainers.forward import PaddedForward
from dapo.trainers.fused import FusedForward as FusedTraining
from dapo.types import Prompt, Rollout, RolloutGroup, Sampling
from tests.contract.parts import model_config, pack_groups, prompts_of, renderer_of, with_engine

Tiny = Callable[..., Path]
QUESTIONS = ("Hi", "What is 1 + 1?", "0123456789ab", "0123456789abc", "A prompt beyond the room for 64 tokens. " * 2)
"""Prompts of 5 to 81 tokens; two of them lie on either side of a round number."""


@dataclass(frozen=True)
class Asked:
    """A request: when it is made and given up, both counted in the engine's steps; None: it waits for its answer."""

    prompt: int
    n: int
    max_tokens: int
    temperature: float
    seed: int
    at: int = 0
    given_up: int | None = None

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)


requests = st.builds(
    Asked,
    prompt=st.integers(0, len(QUESTIONS) - 1),
    n=st.integers(1, 5),
    max_tokens=st.sampled_from([1, 2, 9, 25, 68]),
    temperature=st.sampled_from([1.0, 0.7, 0.0]),
    seed=st.integers(0, 2),
    at=st.integers(0, 12),
    given_up=st.none() | st.integers(0, 30),
)


def fused(folder: Path) -> Forward:
    return FusedForward(load_model(model_config(folder), torch.float32))


def by_the_model(folder: Path) -> Forward:
    model = load_model(model_config(folder), torch.float32)
    use_planned_attention(model)
    return ModelForward(model)


WAYS = {"fused": fused, "the model's own": by_the_model}


@dataclass(frozen=True)
class Site:
    """An engine that may be used for one test after the other, and what each request gives alone in a fresh one."""

    folder: Path
    make: Callable[[Path], Forward]
    renderer: Renderer
    prompts: tuple[Prompt, ...]
    alone: Callable[[Asked], RolloutGroup]

    def engine(self, forward: Forward, max_rows: int) -> NativeEngine:
        return NativeEngine(forward, self.renderer, max_rows=max_rows)


def site(folder: Path, make: Callable[[Path], Forward]) -> Site:
    renderer = renderer_of(folder)
    prompts = tuple(prompts_of(renderer, QUESTIONS))

    @cache
    def alone(asked: Asked) -> RolloutGroup:
        engine = NativeEngine(make(folder), renderer, max_rows=64)
        return with_engine(
            engine, lambda engine: engine.sample(prompts[asked.prompt], asked.n, asked.sampling, asked.seed)
        )

    return Site(folder, make, renderer, prompts, alone)


@pytest.fixture(scope="module")
def fused_site(tiny: Tiny) -> Site:
    return site(tiny(), fused)


@pytest.fixture(scope="module")
def own_site(tiny: Tiny) -> Site:
    return site(tiny(), by_the_model)


def all_at_once(engine: NativeEngine, prompts: tuple[Prompt, ...], many: list[Asked]) -> list[RolloutGroup | None]:
    """Make every request at its step, and give it up at its own; None for those that were given up in time."""
    steps = 0
    step = engine._runner.step

    def counting() -> None:
        nonlocal steps
        steps += 1
        step()

    engine._runner.step = counting  # type: ignore[method-assign]

    async def reach(count: int) -> None:
        """Wait for a step; not for ever, should there be nothing left to do."""
        idle = 0
        while steps < count and idle < 20:
            await asyncio.sleep(0)
            idle = 0 if engine._worker is not None and not engine._worker.done() else idle + 1

    async def ask(asked: Asked) -> RolloutGroup | None:
        await reach(asked.at)
        waiting = asyncio.ensure_future(engine.sample(prompts[asked.prompt], asked.n, asked.sampling, asked.seed))
        if asked.given_up is not None:
            await reach(asked.given_up)
            waiting.cancel()
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        if isinstance(outcome, RolloutGroup):
            return outcome
        assert isinstance(outcome, asyncio.CancelledError), outcome
        return None

    async def work(_: object) -> list[RolloutGroup | None]:
        found = await asyncio.wait_for(asyncio.gather(*(ask(asked) for asked in many)), timeout=60)
        # A request that was given up leaves with the step after it, so one more is made at the end.
        last = Asked(prompt=1, n=2, max_tokens=9, temperature=1.0, seed=7)
        found.append(await engine.sample(prompts[1], 2, last.sampling, 7))
        return found

    found = with_engine(engine, work)  # type: ignore[arg-type]
    assert engine._runner.rows == [] and engine._runner.num_prompts == 0
    assert not engine._running and not engine._waiting
    return found


def content(rollout: Rollout) -> tuple[object, ...]:
    return rollout.token_ids, rollout.mask, rollout.text, rollout.finish, rollout.policy_version


def check(found: list[RolloutGroup | None], place: Site, many: list[Asked], *, exact: bool) -> None:
    last = Asked(prompt=1, n=2, max_tokens=9, temperature=1.0, seed=7)
    for group, asked in zip(found, [*many, last], strict=True):
        if group is None:
            assert asked.given_up is not None
            continue
        wanted = place.alone(Asked(asked.prompt, asked.n, asked.max_tokens, asked.temperature, asked.seed))
        assert group.prompt == place.prompts[asked.prompt]
        assert len(group.rollouts) == asked.n
        for one, other in zip(group.rollouts, wanted.rollouts, strict=True):
            assert content(one) == content(other)
            if exact:
                assert one.logprobs == other.logprobs
            else:
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@given(many=st.lists(requests, min_size=1, max_size=7), max_rows=st.sampled_from([1, 2, 3, 7, 33]))
@settings(max_examples=15, deadline=None)
def test_a_reply_is_bit_for_bit_what_it_is_alone(fused_site: Site, many: list[Asked], max_rows: int) -> None:
    """Whatever is asked for beside it, joins it on its way, or is given up; and whoever had its place before."""
    engine = fused_site.engine(fused(fused_site.folder), max_rows)
    found = all_at_once(engine, fused_site.prompts, many)
    check(found, fused_site, many, exact=lays_out_weights(torch.device("cpu"), torch.float32))


@given(many=st.lists(requests, min_size=1, max_size=5), max_rows=st.sampled_from([1, 3, 33]))
@settings(max_examples=6, deadline=None)
def test_a_reply_through_the_models_own_code_is_what_it_is_alone(
    own_site: Site, many: list[Asked], max_rows: int
) -> None:
    engine = own_site.engine(by_the_model(own_site.folder), max_rows)
    check(all_at_once(engine, own_site.prompts, many), own_site, many, exact=False)


def crowd(size: int) -> list[Asked]:
    """Many requests, so that more than 48 rows are under way."""
    return [
        Asked(prompt=number % 5, n=1 + number % 4, max_tokens=(9, 2, 20)[number % 3], temperature=1.0, seed=number % 2)
        for number in range(size)
    ]


@pytest.mark.parametrize(("kind", "max_rows"), [("qwen2", 5), ("qwen3", 128)])
def test_a_reply_among_many_is_bit_for_bit_what_it_is_alone(tiny: Tiny, kind: str, max_rows: int) -> None:
    place = site(tiny(kind=kind), fused)
    many = crowd(22)
    found = all_at_once(place.engine(fused(place.folder), max_rows), place.prompts, many)
    check(found, place, many, exact=lays_out_weights(torch.device("cpu"), torch.float32))


def test_a_request_that_is_given_up_frees_its_rows_and_its_prompt(fused_site: Site) -> None:
    """Three requests, of which the first and largest leaves while all three are under way."""
    many = [
        Asked(prompt=4, n=5, max_tokens=70, temperature=1.0, seed=0, given_up=3),
        Asked(prompt=0, n=3, max_tokens=33, temperature=1.0, seed=1),
        Asked(prompt=1, n=5, max_tokens=33, temperature=0.7, seed=2, at=1),
    ]
    engine = fused_site.engine(fused(fused_site.folder), 64)
    counts: list[tuple[int, int]] = []
    step = engine._runner.step

    def spying() -> None:
        counts.append((len(engine._runner.rows), engine._runner.num_prompts))
        step()

    engine._runner.step = spying  # type: ignore[method-assign]
    found = all_at_once(engine, fused_site.prompts, many)

    assert found[0] is None
    assert max(prompts for _, prompts in counts) == 3
    assert max(rows for rows, _ in counts) > 8
    # Two steps at most pass before the engine sees it; then 3 + 5 rows are left, and two prompts.
    assert max(rows for rows, _ in counts[6:]) <= 8
    assert max(prompts for _, prompts in counts[6:]) == 2
    check(found, fused_site, many, exact=lays_out_weights(torch.device("cpu"), torch.float32))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_greedy_is_that_of_transformers_beyond_the_first_room_of_the_caches(tiny: Tiny, kind: str, way: str) -> None:
    """90 new tokens behind prompts of 5 and of 81, so both caches grow."""
    place = site(tiny(kind=kind), WAYS[way])
    many = [Asked(prompt=prompt, n=1, max_tokens=90, temperature=0.0, seed=0) for prompt in range(len(QUESTIONS))]
    found = all_at_once(place.engine(place.make(place.folder), 3), place.prompts, many)
    model = load_model(model_config(place.folder), torch.float32)
    lengths = []
    for group, prompt in zip(found, place.prompts, strict=False):
        ids = torch.tensor([prompt.token_ids])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=90, pad_token_id=0
        )
        assert group is not None
        (rollout,) = group.rollouts
        assert list(rollout.token_ids) == output[0, ids.shape[1] :].tolist()
        assert rollout.logprobs == (0.0,) * rollout.length
        lengths.append(rollout.length)
    assert max(lengths) > 64


def trained(model: PreTrainedModel) -> list[PaddedForward | FusedTraining]:
    return [PaddedForward(model), FusedTraining(model)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("qwen2", True), ("qwen3", True), ("qwen3", False)])
def test_log_probabilities_are_those_of_the_trainers_passes(
    tiny: Tiny, kind: str, tied: bool, temperature: float
) -> None:
    place = site(tiny(kind=kind, tied=tied), fused)
    many = [Asked(prompt=p, n=5, max_tokens=33, temperature=temperature, seed=p) for p in range(len(QUESTIONS))]
    found = all_at_once(place.engine(fused(place.folder), 9), place.prompts, many)
    batch = pack_groups([group for group in found[:-1] if group is not None])
    model = load_model(model_config(place.folder), torch.float32)
    assert batch.mask_BT.sum() > 300
    for forward in trained(model):
        with torch.no_grad():
            own_BT = forward.logprobs(batch.prompt_ids, batch.tokens_BT, batch.lengths_B, temperature).logprobs_BT
        assert (own_BT - batch.sampled_logprobs_BT)[batch.mask_BT].abs().max() < 1e-4


def test_a_step_that_fails_ends_all_requests_and_the_next_begins_from_nothing(fused_site: Site) -> None:
    engine = fused_site.engine(fused(fused_site.folder), 4)
    step = engine._runner.step
    calls = 0

    def failing() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("no memory")
        step()

    engine._runner.step = failing  # type: ignore[method-assign]
    asked = Asked(prompt=2, n=3, max_tokens=33, temperature=1.0, seed=1)

    async def work(_: object) -> tuple[list[RolloutGroup | BaseException], RolloutGroup]:
        waiting = [engine.sample(prompt, 3, asked.sampling, 1) for prompt in fused_site.prompts]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        return list(outcomes), await engine.sample(fused_site.prompts[2], 3, asked.sampling, 1)

    outcomes, after = with_engine(engine, work)  # type: ignore[arg-type]

    assert [type(outcome) for outcome in outcomes] == [EngineError] * len(QUESTIONS)
    assert all("Generation failed: RuntimeError: no memory" in str(outcome) for outcome in outcomes)
    assert after == fused_site.alone(asked)
