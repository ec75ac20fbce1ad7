"""An engine of scripted replies, for tests of tasks, rewards, algorithms and loops: no model, no waiting.

engine = FakeEngine(lambda prompt, index: "56" if index % 2 else "I do not know")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dapo.errors import EngineError
from dapo.seeds import derive_seed
from dapo.types import Finish, Prompt, Rollout, RolloutGroup, Sampling, Weights


def character_tokens(text: str) -> tuple[int, ...]:
    """The default tokenizer of the fake: one token a character, its code point."""
    return tuple(ord(character) for character in text)


class FakeEngine:
    """Answers each prompt from a script.

    script(prompt, index) gives the text of the reply number `index` of a group, or raises to stand for a failing
    engine. A reply of more than `sampling.max_tokens` tokens is cut there, with finish `length`. Every token gets the
    log-probability `logprob`.
    """

    def __init__(
        self,
        script: Callable[[Prompt, int], str],
        *,
        encode: Callable[[str], Sequence[int]] = character_tokens,
        logprob: float = -0.5,
    ) -> None:
        self._script = script
        self._encode = encode
        self._logprob = logprob
        self._is_closed = False
        self.policy_version = 0
        self.calls: list[tuple[Prompt, int, Sampling, int]] = []
        """Every request that was made: (prompt, n, sampling, seed)."""

    @property
    def precision(self) -> str:
        """A fake computes nothing; it stands for an engine that agrees with the trainer."""
        return "float32"

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        if self._is_closed:
            raise EngineError("The engine is closed and was asked for a reply.")
        self.calls.append((prompt, n, sampling, seed))
        return RolloutGroup(prompt=prompt, rollouts=tuple(self._reply(prompt, index, sampling) for index in range(n)))

    async def load(self, weights: Weights) -> None:
        self.policy_version = weights.policy_version

    async def close(self) -> None:
        self._is_closed = True

    def _reply(self, prompt: Prompt, index: int, sampling: Sampling) -> Rollout:
        text = self._script(prompt, index)
        tokens = tuple(self._encode(text))
        cut = tokens[: sampling.max_tokens]
        return Rollout(
            token_ids=cut,
            mask=(True,) * len(cut),
            logprobs=(self._logprob,) * len(cut),
            text=text if len(cut) == len(tokens) else text[: len(cut)],
            finish=Finish.STOP if len(cut) == len(tokens) else Finish.LENGTH,
            policy_version=self.policy_version,
        )


def coin(probability: float) -> Callable[[Prompt, int], bool]:
    """A repeatable coin for scripts: heads with `probability`, decided by the problem and the reply's number."""

    def toss(prompt: Prompt, index: int) -> bool:
        return derive_seed(0, prompt.problem.id, index) / 2**63 < probability

    return toss
