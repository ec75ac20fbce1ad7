from __future__ import annotations

import asyncio

import pytest

from dapo.engines.fake import FakeEngine, character_tokens, coin
from dapo.errors import EngineError
from dapo.types import Finish, Message, Problem, Prompt, Rollout, Sampling, Weights


def prompt(name: str = "one") -> Prompt:
    problem = Problem(id=name, messages=(Message(role="user", content="6 * 7?"),), answer="42")
    return Prompt(problem=problem, text="6 * 7?", token_ids=(1, 2))


def test_replies_follow_the_script() -> None:
    engine = FakeEngine(lambda prompt, index: f"{prompt.problem.answer}:{index}", logprob=-0.25)

    group = asyncio.run(engine.sample(prompt(), 3, Sampling(max_tokens=10), seed=5))

    assert group.prompt == prompt()
    assert [rollout.text for rollout in group.rollouts] == ["42:0", "42:1", "42:2"]
    assert group.rollouts[1] == Rollout(
        token_ids=(52, 50, 58, 49),
        mask=(True, True, True, True),
        logprobs=(-0.25, -0.25, -0.25, -0.25),
        text="42:1",
        finish=Finish.STOP,
        policy_version=0,
    )
    assert engine.calls == [(prompt(), 3, Sampling(max_tokens=10), 5)]


@pytest.mark.parametrize(
    ("text", "cut", "finish"),
    [("abcd", "abcd", Finish.STOP), ("abcde", "abcd", Finish.LENGTH), ("", "", Finish.STOP)],
)
def test_a_reply_of_more_tokens_than_the_limit_is_cut(text: str, cut: str, finish: Finish) -> None:
    engine = FakeEngine(lambda prompt, index: text)

    (rollout,) = asyncio.run(engine.sample(prompt(), 1, Sampling(max_tokens=4), 0)).rollouts

    assert (rollout.text, rollout.finish, rollout.token_ids) == (cut, finish, character_tokens(cut))


def test_another_tokenizer_may_be_given() -> None:
    engine = FakeEngine(lambda prompt, index: "7 8 9", encode=lambda text: [int(word) for word in text.split()])

    (rollout,) = asyncio.run(engine.sample(prompt(), 1, Sampling(max_tokens=4), 0)).rollouts

    assert rollout.token_ids == (7, 8, 9)


def test_the_version_is_that_of_the_last_load() -> None:
    engine = FakeEngine(lambda prompt, index: "42")

    async def work() -> int:
        await engine.load(Weights(policy_version=9, source={}))
        return (await engine.sample(prompt(), 1, Sampling(max_tokens=4), 0)).rollouts[0].policy_version

    assert asyncio.run(work()) == 9


def test_a_script_that_raises_stands_for_a_failing_engine() -> None:
    def script(prompt: Prompt, index: int) -> str:
        raise EngineError("out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        asyncio.run(FakeEngine(script).sample(prompt(), 1, Sampling(max_tokens=4), 0))


def test_the_coin_is_repeatable_and_falls_as_often_as_asked() -> None:
    tosses = [coin(0.3)(prompt(str(number)), index) for number in range(500) for index in range(4)]

    assert tosses == [coin(0.3)(prompt(str(number)), index) for number in range(500) for index in range(4)]
    assert 0.27 < sum(tosses) / len(tosses) < 0.33
    assert not any(coin(0.0)(prompt(), index) for index in range(100))
    assert all(coin(1.0)(prompt(), index) for index in range(100))
