"""One suite that every engine passes; what it returns is compared with a plain forward pass of the same model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from dapo.algorithms.config import DAPOConfig
from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError, RunError
from dapo.models.load import load_model
from dapo.ports import Engine, Pausable
from dapo.trainers.config import LocalConfig
from dapo.types import Finish, Message, Problem, Prompt, Rollout, RolloutGroup, Sampling, Weights
from tests.contract.parts import (
    ENGINES,
    model_config,
    open_engine,
    pack_groups,
    prompts_of,
    renderer_of,
    weights_of,
    with_engine,
)
from tests.tiny import BEGIN, END, END_THINK, THINK, TURN

Tiny = Callable[..., Path]
KINDS = ("llama", "qwen2", "qwen3", "gemma2")

pytestmark = pytest.mark.filterwarnings("ignore:Gemma2ForCausalLM is sampled by", "ignore:Gemma2ForCausalLM trains on")

every_engine = pytest.mark.parametrize("name", list(ENGINES))


async def ask_all(engine: Engine, prompts: list[Prompt], n: int, sampling: Sampling) -> list[RolloutGroup]:
    """Ask for all prompts at once; the prompt's place is the seed."""
    return list(
        await asyncio.gather(*(engine.sample(prompt, n, sampling, seed) for seed, prompt in enumerate(prompts)))
    )


def rollouts_of(groups: list[RolloutGroup]) -> list[Rollout]:
    return [rollout for group in groups for rollout in group.rollouts]


def plain_logits(folder: Path, prompt: Prompt, reply: Rollout) -> torch.Tensor:
    """Logits [T, V] that predict each token of a reply: one row, no padding, no cache."""
    model = load_model(model_config(folder), torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt.token_ids + reply.token_ids]), use_cache=False).logits[0]
    return logits[len(prompt.token_ids) - 1 : -1]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("kind", KINDS)
@every_engine
def test_log_probabilities_are_the_trainers_before_any_update(
    tiny: Tiny, name: str, kind: str, temperature: float
) -> None:
    folder = tiny(kind=kind)
    renderer = renderer_of(folder)
    sampling = Sampling(temperature=temperature, max_tokens=24)
    groups = with_engine(
        open_engine(name, folder, renderer), lambda engine: ask_all(engine, prompts_of(renderer), 4, sampling)
    )
    batch = pack_groups(groups)
    trainer = LocalConfig(precision="float32").build(model_config(folder), DAPOConfig().build(24), temperature)

    own_BT = trainer.annotate(batch, frozenset({"old_logprobs"}))["old_logprobs"]

    assert batch.mask_BT.sum() > 200
    assert (own_BT - batch.sampled_logprobs_BT)[batch.mask_BT].abs().max() < 1e-4


@every_engine
def test_the_models_own_generation_settings_do_not_change_what_is_drawn(tiny: Tiny, name: str) -> None:
    """Many models come with settings for chatting; a policy that is trained is sampled as it is."""
    chatty = tiny(
        generation=(
            ("do_sample", True),
            ("temperature", 0.5),
            ("top_k", 3),
            ("top_p", 0.5),
            ("repetition_penalty", 1.5),
            ("no_repeat_ngram_size", 2),
            ("min_new_tokens", 8),
            ("suppress_tokens", [20, 21, 22, 23]),
            ("max_length", 20),
        )
    )
    sampling = Sampling(max_tokens=24)

    def drawn(folder: Path) -> list[RolloutGroup]:
        renderer = renderer_of(folder)
        return with_engine(
            open_engine(name, folder, renderer), lambda engine: ask_all(engine, prompts_of(renderer), 4, sampling)
        )

    assert rollouts_of(drawn(chatty)) == rollouts_of(drawn(tiny()))


@every_engine
def test_the_mask_marks_what_was_sampled_and_nothing_else(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    groups = with_engine(
        open_engine(name, folder, renderer),
        lambda engine: ask_all(engine, prompts_of(renderer), 16, Sampling(max_tokens=12)),
    )

    assert [len(group.rollouts) for group in groups] == [16, 16, 16, 16]
    for rollout in rollouts_of(groups):
        assert rollout.mask == (True,) * rollout.length
        assert 1 <= rollout.length <= 12
        assert all(logprob < 0 for logprob in rollout.logprobs)


@every_engine
def test_a_reply_stops_at_its_first_end_token_or_at_the_limit(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    end_tokens = {renderer.tokenizer.convert_tokens_to_ids(token) for token in (END, TURN)}
    assert renderer.end_tokens == end_tokens
    groups = with_engine(
        open_engine(name, folder, renderer),
        lambda engine: ask_all(engine, prompts_of(renderer), 64, Sampling(max_tokens=12)),
    )

    rollouts = rollouts_of(groups)
    for rollout in rollouts:
        assert not end_tokens & set(rollout.token_ids[:-1])
        if rollout.token_ids[-1] in end_tokens:
            assert rollout.finish is Finish.STOP
        else:
            assert rollout.finish is Finish.LENGTH
            assert rollout.length == 12
    assert {rollout.token_ids[-1] for rollout in rollouts} >= end_tokens  # both kinds of end occurred
    assert any(rollout.is_truncated for rollout in rollouts)


@every_engine
def test_an_end_token_at_the_limit_is_a_stop(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    groups = with_engine(
        open_engine(name, folder, renderer, max_rows=512),
        lambda engine: ask_all(engine, prompts_of(renderer), 128, Sampling(max_tokens=1)),
    )

    rollouts = rollouts_of(groups)
    ended = [rollout for rollout in rollouts if rollout.token_ids[0] in renderer.end_tokens]
    assert ended
    assert all(rollout.finish is Finish.STOP and rollout.text == "" for rollout in ended)
    assert all(rollout.finish is Finish.LENGTH for rollout in rollouts if rollout not in ended)


@every_engine
def test_text_has_no_end_marker_and_keeps_other_special_tokens(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    groups = with_engine(
        open_engine(name, folder, renderer),
        lambda engine: ask_all(engine, prompts_of(renderer), 32, Sampling(max_tokens=16)),
    )

    tokens = renderer.tokenizer
    for rollout in rollouts_of(groups):
        assert END not in rollout.text
        assert TURN not in rollout.text
        inner = [token for token in rollout.token_ids if token not in renderer.end_tokens]
        assert rollout.text == tokens.decode(inner, skip_special_tokens=False)
        for tag in (THINK, END_THINK, BEGIN):
            assert (tokens.convert_tokens_to_ids(tag) in inner) == (tag in rollout.text)
    assert any(THINK in rollout.text for rollout in rollouts_of(groups))


@every_engine
def test_the_same_seed_gives_the_same_replies_and_another_seed_others(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    sampling = Sampling(max_tokens=16)

    async def work(engine: Engine) -> list[RolloutGroup]:
        return [await engine.sample(prompt, 4, sampling, seed) for seed in (7, 7, 8)]

    first, again, other = with_engine(open_engine(name, folder, renderer), work)
    (fresh,) = with_engine(
        open_engine(name, folder, renderer), lambda engine: asyncio.gather(engine.sample(prompt, 4, sampling, 7))
    )

    assert first == again == fresh
    assert [rollout.token_ids for rollout in first.rollouts] != [rollout.token_ids for rollout in other.rollouts]


@every_engine
def test_the_replies_of_a_group_differ_and_do_not_depend_on_how_many_there_are(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]

    async def work(engine: Engine) -> list[RolloutGroup]:
        return [await engine.sample(prompt, n, Sampling(max_tokens=16), 3) for n in (8, 3)]

    eight, three = with_engine(open_engine(name, folder, renderer), work)

    assert len({rollout.token_ids for rollout in eight.rollouts}) == 8
    assert [r.token_ids for r in eight.rollouts[:3]] == [r.token_ids for r in three.rollouts]


@pytest.mark.parametrize("kind", KINDS)
@every_engine
def test_a_reply_does_not_depend_on_what_else_is_in_the_batch(tiny: Tiny, name: str, kind: str) -> None:
    folder = tiny(kind=kind)
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    sampling = Sampling(max_tokens=24)

    async def work(engine: Engine) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
        together = await ask_all(engine, prompts, 4, sampling)
        alone = [await engine.sample(prompt, 4, sampling, seed) for seed, prompt in enumerate(prompts)]
        return together, alone

    together, alone = with_engine(open_engine(name, folder, renderer), work)

    assert len({len(prompt.token_ids) for prompt in prompts}) == 4
    assert [group.prompt for group in together] == prompts
    for one, other in zip(rollouts_of(together), rollouts_of(alone), strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@every_engine
def test_greedy_is_transformers_greedy_token_for_token(tiny: Tiny, name: str, kind: str) -> None:
    folder = tiny(kind=kind)
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    groups = with_engine(
        open_engine(name, folder, renderer),
        lambda engine: ask_all(engine, prompts, 1, Sampling(temperature=0.0, max_tokens=40)),
    )
    model = load_model(model_config(folder), torch.float32)

    for group in groups:
        ids = torch.tensor([group.prompt.token_ids])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40, pad_token_id=0
        )
        assert list(group.rollouts[0].token_ids) == output[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize(
    "limits",
    [{"top_p": 0.5}, {"top_k": 3}, {"min_p": 0.2}, {"top_k": 5, "top_p": 0.7}],
    ids=["top_p", "top_k", "min_p", "top_k and top_p"],
)
@every_engine
def test_top_p_top_k_and_min_p_are_respected(tiny: Tiny, name: str, limits: dict[str, float]) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    temperature = 0.8
    sampling = Sampling(temperature=temperature, max_tokens=12, **limits)  # type: ignore[arg-type]
    (group,) = with_engine(
        open_engine(name, folder, renderer), lambda engine: asyncio.gather(engine.sample(prompt, 24, sampling, 1))
    )

    seen = 0
    for rollout in group.rollouts:
        probabilities_TV = (plain_logits(folder, prompt, rollout) / temperature).softmax(dim=-1)
        for token, logprob, probabilities_V in zip(rollout.token_ids, rollout.logprobs, probabilities_TV, strict=True):
            allowed = allowed_tokens(probabilities_V, **limits)
            assert token in allowed
            share = float(probabilities_V[token] / probabilities_V[allowed].sum())
            assert logprob == pytest.approx(torch.tensor(share).log().item(), abs=1e-3)
            seen += 1
    assert seen > 100
    assert len({rollout.token_ids for rollout in group.rollouts}) > 1


def allowed_tokens(
    probabilities_V: torch.Tensor, *, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0
) -> list[int]:
    """The tokens that the limits leave, written out plainly."""
    ordered = sorted(range(len(probabilities_V)), key=lambda token: -float(probabilities_V[token]))
    if top_k:
        ordered = ordered[: int(top_k)]
    if min_p:
        ordered = [t for t in ordered if float(probabilities_V[t]) >= min_p * float(probabilities_V[ordered[0]])]
    whole = sum(float(probabilities_V[token]) for token in ordered)
    allowed: list[int] = []
    reached = 0.0
    for token in ordered:
        if allowed and reached >= top_p:
            break
        allowed.append(token)
        reached += float(probabilities_V[token]) / whole
    return allowed


@every_engine
def test_requests_of_different_sampling_at_once_each_get_their_own(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    samplings = [
        Sampling(temperature=1.0, max_tokens=16),
        Sampling(temperature=0.0, max_tokens=9),
        Sampling(temperature=0.6, max_tokens=4),
        Sampling(temperature=1.0, max_tokens=16, top_k=2),
    ]

    async def work(engine: Engine) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
        asked = list(zip(prompts, samplings, strict=True))
        together = await asyncio.gather(*(engine.sample(prompt, 3, sampling, 5) for prompt, sampling in asked))
        alone = [await engine.sample(prompt, 3, sampling, 5) for prompt, sampling in asked]
        return list(together), alone

    together, alone = with_engine(open_engine(name, folder, renderer), work)

    for one, other, sampling in zip(together, alone, samplings, strict=True):
        assert [r.token_ids for r in one.rollouts] == [r.token_ids for r in other.rollouts]
        assert all(r.length <= sampling.max_tokens for r in one.rollouts)
        assert all(r.length == sampling.max_tokens for r in one.rollouts if r.is_truncated)


@every_engine
def test_more_replies_than_rows_come_all_and_are_the_same(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)

    def groups(max_rows: int) -> list[RolloutGroup]:
        return with_engine(
            open_engine(name, folder, renderer, max_rows=max_rows),
            lambda engine: ask_all(engine, prompts, 7, Sampling(max_tokens=10)),
        )

    few, many = groups(3), groups(128)

    assert [len(group.rollouts) for group in few] == [7, 7, 7, 7]
    assert [r.token_ids for r in rollouts_of(few)] == [r.token_ids for r in rollouts_of(many)]


@every_engine
def test_a_stop_string_ends_a_reply_after_the_token_that_completes_it(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    sampling = Sampling(max_tokens=16, stop=("e", "77"))

    async def work(engine: Engine) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
        stopped = await ask_all(engine, prompts, 32, sampling)
        free = await ask_all(engine, prompts, 32, Sampling(max_tokens=16))
        return stopped, free

    stopped, free = with_engine(open_engine(name, folder, renderer), work)

    early = 0
    for one, whole in zip(rollouts_of(stopped), rollouts_of(free), strict=True):
        expected = next(
            (
                length
                for length in range(1, whole.length + 1)
                if any(stop in renderer.reply_text(whole.token_ids[:length]) for stop in sampling.stop)
            ),
            None,
        )
        assert one.token_ids == whole.token_ids[:expected]
        assert one.finish is (whole.finish if expected is None else Finish.STOP)
        early += expected is not None
    assert early > 5


@every_engine
def test_the_version_follows_load_and_so_do_the_replies(tiny: Tiny, name: str) -> None:
    folder, other = tiny(), tiny(seed=1)
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    sampling = Sampling(max_tokens=16)

    async def work(engine: Engine) -> list[RolloutGroup]:
        before = await engine.sample(prompt, 4, sampling, 1)
        await engine.load(Weights(policy_version=5, source=weights_of(other)))
        after = await engine.sample(prompt, 4, sampling, 1)
        await engine.load(Weights(policy_version=6, source=folder))
        back = await engine.sample(prompt, 4, sampling, 1)
        return [before, after, back]

    before, after, back = with_engine(open_engine(name, folder, renderer), work)
    (fresh,) = with_engine(
        open_engine(name, other, renderer), lambda engine: asyncio.gather(engine.sample(prompt, 4, sampling, 1))
    )

    assert [{r.policy_version for r in group.rollouts} for group in (before, after, back)] == [{0}, {5}, {6}]
    assert [r.token_ids for r in after.rollouts] == [r.token_ids for r in fresh.rollouts]
    assert [r.token_ids for r in back.rollouts] == [r.token_ids for r in before.rollouts]
    assert before.rollouts[0].token_ids != after.rollouts[0].token_ids


@every_engine
def test_the_weights_are_copied_so_a_later_step_of_the_trainer_changes_nothing(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    live = weights_of(tiny(seed=1))

    async def work(engine: Engine) -> list[RolloutGroup]:
        await engine.load(Weights(policy_version=1, source=live))
        before = await engine.sample(prompt, 4, Sampling(max_tokens=16), 1)
        for tensor in live.values():
            tensor.zero_()
        return [before, await engine.sample(prompt, 4, Sampling(max_tokens=16), 1)]

    before, after = with_engine(open_engine(name, folder, renderer), work)

    assert before == after


def without_one(weights: dict[str, torch.Tensor]) -> None:
    weights.pop("model.layers.1.mlp.down_proj.weight")


def with_a_stranger(weights: dict[str, torch.Tensor]) -> None:
    weights["model.layers.9.mlp.down_proj.weight"] = torch.zeros(2, 2)


def with_a_wrong_shape(weights: dict[str, torch.Tensor]) -> None:
    weights["model.norm.weight"] = torch.zeros(63)


@pytest.mark.parametrize("spoil", [without_one, with_a_stranger, with_a_wrong_shape])
@every_engine
def test_a_failing_load_leaves_version_and_weights_as_they_were(
    tiny: Tiny, name: str, spoil: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    spoilt = weights_of(tiny(seed=1))
    spoil(spoilt)

    async def work(engine: Engine) -> list[RolloutGroup]:
        await engine.load(Weights(policy_version=2, source=folder))
        before = await engine.sample(prompt, 4, Sampling(max_tokens=16), 1)
        with pytest.raises(RunError, match="version 3"):
            await engine.load(Weights(policy_version=3, source=spoilt))
        return [before, await engine.sample(prompt, 4, Sampling(max_tokens=16), 1)]

    before, after = with_engine(open_engine(name, folder, renderer), work)

    assert before == after
    assert {rollout.policy_version for rollout in after.rollouts} == {2}


@every_engine
def test_a_load_beside_requests_never_mixes_two_versions(tiny: Tiny, name: str) -> None:
    folder, other = tiny(), tiny(seed=1)
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    sampling = Sampling(max_tokens=16)

    async def work(engine: Engine) -> list[RolloutGroup]:
        asked = [asyncio.ensure_future(engine.sample(prompt, 2, sampling, 1)) for prompt in prompts]
        await asyncio.sleep(0.001)
        loading = asyncio.ensure_future(engine.load(Weights(policy_version=1, source=weights_of(other))))
        asked += [asyncio.ensure_future(engine.sample(prompt, 2, sampling, 1)) for prompt in prompts]
        await loading
        return list(await asyncio.gather(*asked))

    mixed = with_engine(open_engine(name, folder, renderer, max_rows=2), work)

    async def each(engine: Engine) -> list[RolloutGroup]:
        return [await engine.sample(prompt, 2, sampling, 1) for prompt in prompts]

    clean = {version: with_engine(open_engine(name, at, renderer), each) for version, at in ((0, folder), (1, other))}
    for place, group in enumerate(mixed):
        (version,) = {rollout.policy_version for rollout in group.rollouts}
        expected = clean[version][place % len(prompts)]
        assert [r.token_ids for r in group.rollouts] == [r.token_ids for r in expected.rollouts]


class SlowWeights(dict[str, torch.Tensor]):
    """Weights that take a while to copy, whether they are walked through or asked for by name."""

    def __getitem__(self, name: str) -> torch.Tensor:
        time.sleep(0.003)
        return super().__getitem__(name)

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:  # type: ignore[override]
        for name in self:
            yield name, self[name]


@every_engine
def test_a_request_that_comes_while_weights_are_copied_sees_all_of_them_or_none(tiny: Tiny, name: str) -> None:
    folder, other = tiny(), tiny(seed=1)
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    sampling = Sampling(max_tokens=16)

    async def work(engine: Engine) -> RolloutGroup:
        weights = Weights(policy_version=1, source=SlowWeights(weights_of(other)))
        loading = asyncio.ensure_future(engine.load(weights))
        await asyncio.sleep(0.02)
        during = await engine.sample(prompt, 4, sampling, 1)
        await loading
        return during

    during = with_engine(open_engine(name, folder, renderer), work)

    (version,) = {rollout.policy_version for rollout in during.rollouts}
    (expected,) = with_engine(
        open_engine(name, (folder, other)[version], renderer),
        lambda engine: asyncio.gather(engine.sample(prompt, 4, sampling, 1)),
    )
    assert [r.token_ids for r in during.rollouts] == [r.token_ids for r in expected.rollouts]


@every_engine
def test_closing_gives_everyone_who_waits_an_error(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)

    async def work(engine: Engine) -> list[RolloutGroup | BaseException]:
        asked = [asyncio.ensure_future(engine.sample(prompt, 4, Sampling(max_tokens=400), 1)) for prompt in prompts]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(engine.close(), timeout=10)
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=10)

    outcomes = with_engine(open_engine(name, folder, renderer, max_rows=4), work)

    assert [type(outcome) for outcome in outcomes] == [EngineError] * 4
    assert all("closed" in str(outcome) for outcome in outcomes)


@every_engine
def test_a_paused_engine_writes_nothing_until_it_may_go_on_and_then_the_same(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    sampling = Sampling(max_tokens=12)

    async def work(engine: Engine) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
        expected = await ask_all(engine, prompts, 2, sampling)
        assert isinstance(engine, Pausable)
        engine.pause()
        asked = asyncio.ensure_future(ask_all(engine, prompts, 2, sampling))
        _, waiting = await asyncio.wait({asked}, timeout=0.2)
        assert waiting == {asked}
        engine.go_on()
        engine.go_on()  # a second time does nothing
        return expected, await asyncio.wait_for(asked, timeout=20)

    expected, found = with_engine(open_engine(name, folder, renderer, max_rows=3), work)

    assert [r.token_ids for r in rollouts_of(found)] == [r.token_ids for r in rollouts_of(expected)]


@every_engine
def test_closing_ends_a_pause(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)

    async def work(engine: Engine) -> list[RolloutGroup | BaseException]:
        assert isinstance(engine, Pausable)
        engine.pause()
        prompts = prompts_of(renderer)
        asked = [asyncio.ensure_future(engine.sample(prompt, 1, Sampling(max_tokens=9), 1)) for prompt in prompts]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(engine.close(), timeout=10)
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=10)

    outcomes = with_engine(open_engine(name, folder, renderer), work)

    assert [type(outcome) for outcome in outcomes] == [EngineError] * 4


@every_engine
def test_closing_while_weights_are_copied_gives_who_waits_an_error(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]

    async def work(engine: Engine) -> RolloutGroup | BaseException:
        loading = asyncio.ensure_future(engine.load(Weights(policy_version=1, source=SlowWeights(weights_of(folder)))))
        await asyncio.sleep(0.02)
        asked = asyncio.ensure_future(engine.sample(prompt, 1, Sampling(max_tokens=50), 1))
        await asyncio.sleep(0)
        await asyncio.wait_for(engine.close(), timeout=10)
        await asyncio.wait_for(loading, timeout=10)
        (outcome,) = await asyncio.wait_for(asyncio.gather(asked, return_exceptions=True), timeout=10)
        return outcome

    assert isinstance(with_engine(open_engine(name, folder, renderer), work), EngineError)


@every_engine
def test_closing_at_once_gives_everyone_who_has_just_asked_an_error(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)

    async def work(engine: Engine) -> list[RolloutGroup | BaseException]:
        prompts = prompts_of(renderer)
        asked = [asyncio.ensure_future(engine.sample(prompt, 1, Sampling(max_tokens=50), 1)) for prompt in prompts]
        await asyncio.sleep(0)
        await asyncio.wait_for(engine.close(), timeout=10)
        await engine.close()  # a second time does nothing
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=10)

    outcomes = with_engine(open_engine(name, folder, renderer), work)

    assert [type(outcome) for outcome in outcomes] == [EngineError] * 4


@every_engine
def test_a_request_that_is_given_up_leaves_the_others_alone(tiny: Tiny, name: str) -> None:
    folder = tiny()
    renderer = renderer_of(folder)
    prompts = prompts_of(renderer)
    sampling = Sampling(max_tokens=16)

    async def work(engine: Engine) -> tuple[list[RolloutGroup | BaseException], RolloutGroup]:
        asked = [asyncio.ensure_future(engine.sample(prompt, 2, sampling, 1)) for prompt in prompts]
        await asyncio.sleep(0)
        asked[1].cancel()
        return await asyncio.gather(*asked, return_exceptions=True), await engine.sample(prompts[2], 2, sampling, 1)

    outcomes, again = with_engine(open_engine(name, folder, renderer, max_rows=2), work)

    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert all(isinstance(outcomes[place], RolloutGroup) for place in (0, 2, 3))
    assert isinstance(outcomes[2], RolloutGroup)
    assert [r.token_ids for r in outcomes[2].rollouts] == [r.token_ids for r in again.rollouts]


@every_engine
def test_a_prompt_beyond_the_models_positions_is_refused_in_words(tiny: Tiny, name: str) -> None:
    folder = tiny(positions=64)
    renderer = renderer_of(folder)
    (fits,) = prompts_of(renderer, ["x" * 41])  # with its three marks 44 tokens, and 20 new ones are 64
    (beyond,) = prompts_of(renderer, ["x" * 42])

    async def work(engine: Engine) -> RolloutGroup:
        with pytest.raises(EngineError, match=r"45 tokens and 20 new ones are 65 positions, and the model has 64"):
            await engine.sample(beyond, 1, Sampling(max_tokens=20), 1)
        return await engine.sample(fits, 2, Sampling(max_tokens=20), 1)

    assert len(with_engine(open_engine(name, folder, renderer), work).rollouts) == 2


@every_engine
def test_the_tokens_that_are_sent_are_the_templates_with_one_begin_token(tiny: Tiny, name: str) -> None:
    """The template writes the begin token, and the tokenizer would put another in front of a plain text."""
    folder = tiny()
    renderer = renderer_of(folder)
    prompt = prompts_of(renderer)[0]
    begin = renderer.tokenizer.bos_token_id
    assert renderer.tokenizer("x").input_ids[0] == begin
    by_template = renderer.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 1 + 1?"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    (group,) = with_engine(
        open_engine(name, folder, renderer),
        lambda engine: asyncio.gather(engine.sample(prompt, 2, Sampling(max_tokens=12), 1)),
    )

    assert list(prompt.token_ids) == by_template
    assert prompt.token_ids.count(begin) == 1
    assert group.prompt == prompt
    for rollout in group.rollouts:  # what the engine read is what the prompt says: one more or less token would show
        logprobs_TV = plain_logits(folder, prompt, rollout).log_softmax(dim=-1)
        plain = logprobs_TV.gather(1, torch.tensor(rollout.token_ids).unsqueeze(1)).squeeze(1)
        assert torch.tensor(rollout.logprobs) == pytest.approx(plain, abs=1e-4)


def open_any(name: str, tiny: Tiny) -> tuple[Engine, list[Prompt]]:
    """An engine of any kind, the fake among them, with prompts for it."""
    if name == "fake":
        problem = Problem(id="problem-0", messages=(Message(role="user", content="?"),), answer="2")
        prompt = Prompt(problem=problem, text="?", token_ids=(1, 2))
        return FakeEngine(lambda prompt, index: f"reply {index} is long enough to be cut"), [prompt]
    renderer = renderer_of(tiny())
    return open_engine(name, tiny(), renderer), prompts_of(renderer)


@pytest.mark.parametrize("name", [*ENGINES, "fake"])
def test_every_engine_keeps_the_protocol(tiny: Tiny, name: str) -> None:
    engine, prompts = open_any(name, tiny)
    assert isinstance(engine, Engine)

    async def work(engine: Engine) -> list[RolloutGroup]:
        groups = [await engine.sample(prompts[0], n, Sampling(max_tokens=8), 1) for n in (1, 5, 5)]
        await engine.load(Weights(policy_version=4, source=weights_of(tiny())))
        return [*groups, await engine.sample(prompts[0], 2, Sampling(max_tokens=8), 1)]

    one, five, again, later = with_engine(engine, work)

    assert [len(group.rollouts) for group in (one, five, later)] == [1, 5, 2]
    assert five == again
    assert {r.policy_version for r in five.rollouts} == {0}
    assert {r.policy_version for r in later.rollouts} == {4}
    assert all(group.prompt == prompts[0] for group in (one, five, later))
    for rollout in five.rollouts:
        assert rollout.length <= 8
        assert rollout.is_truncated == (rollout.finish is Finish.LENGTH)
        assert not rollout.is_truncated or rollout.length == 8


@pytest.mark.parametrize("name", [*ENGINES, "fake"])
def test_a_closed_engine_refuses(tiny: Tiny, name: str) -> None:
    engine, prompts = open_any(name, tiny)

    async def work(engine: Engine) -> None:
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await engine.sample(prompts[0], 1, Sampling(max_tokens=8), 1)

    with_engine(engine, work)


@every_engine
@pytest.mark.parametrize(("n", "max_tokens"), [(0, 4), (1, 0)])
def test_a_request_for_nothing_is_refused(tiny: Tiny, name: str, n: int, max_tokens: int) -> None:
    engine, prompts = open_any(name, tiny)
    with pytest.raises(EngineError, match=f"{n} replies of at most {max_tokens} tokens"):
        asyncio.run(asyncio.wait_for(engine.sample(prompts[0], n, Sampling(max_tokens=max_tokens), 1), timeout=20))
