"""Generation by transformers' own `generate`, with this package's sampling inside it.

Consumes: requests, each a prompt with a number of replies. Waits for: nothing but the requests themselves; those that
wait together are generated together, at most `max_rows` replies at a time. Produces: one RolloutGroup a request.
Unblocked by: the end of the batch before it, or `close`.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel
from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

from dapo.engines.limits import positions_of, refuse_nothing, refuse_too_long
from dapo.engines.pause import Pause
from dapo.errors import EngineError
from dapo.maths.sampling import draw
from dapo.models.render import Renderer
from dapo.models.weights import copy_weights
from dapo.seeds import derive_seed
from dapo.types import Finish, Prompt, Rollout, RolloutGroup, Sampling, Weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Request:
    prompt: Prompt
    n: int
    sampling: Sampling
    seed: int
    answer: asyncio.Future[RolloutGroup]


class HFEngine:
    """Draws replies with a model of its own; `load` copies weights into it, so sampling never sees half a step."""

    def __init__(self, model: PreTrainedModel, renderer: Renderer, *, max_rows: int) -> None:
        self._model = model
        # `generate` mixes the model's own settings into ours: a penalty on repetition would draw from another policy.
        self._model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._renderer = renderer
        self._max_rows = max_rows
        self._version = 0
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None
        self._cancelled = threading.Event()
        self._is_busy = asyncio.Lock()
        self._pause = Pause()

    @property
    def precision(self) -> str:
        """The precision of the engine's copy of the weights."""
        return str(self._model.dtype).removeprefix("torch.")

    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        """Draw `n` replies. Requests that are made together are generated together. Raises EngineError."""
        if self._cancelled.is_set():
            raise EngineError("The engine is closed and was asked for a reply.")
        refuse_nothing(n, sampling)
        refuse_too_long(positions_of(self._model), prompt, sampling)
        answer: asyncio.Future[RolloutGroup] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt=prompt, n=n, sampling=sampling, seed=seed, answer=answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    async def load(self, weights: Weights) -> None:
        """Copy a version of the policy in; the version rises only when all of it has arrived."""
        async with self._is_busy:
            what = f"The policy of version {weights.policy_version}"
            await asyncio.to_thread(copy_weights, self._model, weights.source, what=what)
            self._version = weights.policy_version

    def pause(self) -> None:
        """Begin no further batch until `go_on`."""
        self._pause.begin()

    def go_on(self) -> None:
        """End the pause."""
        self._pause.end()

    async def close(self) -> None:
        """Stop after the token that is being made; requests that wait end with an EngineError."""
        self._cancelled.set()
        self._pause.end()
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        await asyncio.sleep(0)  # lets everybody who asks in the same breath get into the same batch
        await self._pause.wait()
        while self._waiting:
            chosen = self._next_batch()
            try:
                async with self._is_busy:
                    groups = await asyncio.to_thread(self._generate, chosen)
            except EngineError as failure:
                for request in chosen:
                    if not request.answer.done():
                        request.answer.set_exception(failure)
                continue
            for request, group in zip(chosen, groups, strict=True):
                if not request.answer.done():
                    request.answer.set_result(group)
            await asyncio.sleep(0)  # lets those who were waiting take their groups, and pause the engine
            await self._pause.wait()

    def _next_batch(self) -> list[_Request]:
        """Take the requests at the front that share their sampling, as many as there are rows for; at least one."""
        chosen = [self._waiting.pop(0)]
        rows = chosen[0].n
        while self._waiting:
            following = self._waiting[0]
            if following.sampling != chosen[0].sampling or rows + following.n > self._max_rows:
                break
            rows += following.n
            chosen.append(self._waiting.pop(0))
        return chosen

    def _generate(self, requests: Sequence[_Request]) -> list[RolloutGroup]:
        """Make the replies. Whatever goes wrong is an EngineError: nobody may wait for an answer that never comes."""
        try:
            return self._replies(requests)
        except Exception as error:
            raise EngineError(f"Generation failed: {type(error).__name__}: {error}") from error

    @torch.inference_mode()
    def _replies(self, requests: Sequence[_Request]) -> list[RolloutGroup]:
        if self._cancelled.is_set():
            raise RuntimeError("the engine was closed before it came to this request")
        sampling = requests[0].sampling
        rows = [
            (request.prompt, derive_seed(request.seed, index)) for request in requests for index in range(request.n)
        ]
        sampler = _Sampler(sampling, [seed for _, seed in rows], self._model.device)
        input_ids, attention_mask = _left_padded([prompt.token_ids for prompt, _ in rows], self._model.device)
        end_tokens = sorted(self._renderer.end_tokens)
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=sampling.max_tokens,
            do_sample=False,  # the sampler below has drawn already; greedy takes what it drew
            eos_token_id=end_tokens,
            pad_token_id=end_tokens[0],
            stop_strings=list(sampling.stop) or None,
        )
        output = self._model.generate(  # type: ignore[operator]
            input_ids,
            attention_mask=attention_mask,
            generation_config=settings,
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=StoppingCriteriaList([_Stop(self._cancelled)]),
            **({"tokenizer": self._renderer.tokenizer} if sampling.stop else {}),
        )
        if self._cancelled.is_set():
            raise RuntimeError("the engine was closed while it was generating")
        replies_BT = output[:, input_ids.shape[1] :].cpu()
        logprobs_BT = torch.stack(sampler.logprobs, dim=1).cpu()
        rollouts = [
            self._rollout(tokens.tolist(), logprobs.tolist(), sampling)
            for tokens, logprobs in zip(replies_BT, logprobs_BT, strict=True)
        ]
        groups, start = [], 0
        for request in requests:
            groups.append(RolloutGroup(prompt=request.prompt, rollouts=tuple(rollouts[start : start + request.n])))
            start += request.n
        return groups

    def _rollout(self, tokens: list[int], logprobs: list[float], sampling: Sampling) -> Rollout:
        length, finish = self._ending(tokens, sampling.stop)
        return Rollout(
            token_ids=tuple(tokens[:length]),
            mask=(True,) * length,
            logprobs=tuple(logprobs[:length]),
            text=self._renderer.reply_text(tokens[:length]),
            finish=finish,
            policy_version=self._version,
        )

    def _ending(self, tokens: list[int], stop: Sequence[str]) -> tuple[int, Finish]:
        """How many of a row's tokens were drawn, and what ended it; after a stop, `generate` pads with end tokens."""

        def has_stopped(length: int) -> bool:
            text = self._renderer.reply_text(tokens[:length])
            return any(string in text for string in stop)

        end = next((place + 1 for place, token in enumerate(tokens) if token in self._renderer.end_tokens), None)
        length = end if end is not None else len(tokens)
        if stop and has_stopped(length):
            return 1 + bisect_left(range(1, length), True, key=has_stopped), Finish.STOP
        return length, Finish.STOP if end is not None else Finish.LENGTH


class _Sampler(LogitsProcessor):
    """Draws the token of every row from the row's own stream, and leaves `generate` nothing else to choose."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int], device: torch.device) -> None:
        self._sampling = sampling
        self._uniform_BT = torch.stack(
            [torch.rand(sampling.max_tokens, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        ).to(device)
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        sampling = self._sampling
        tokens_B, logprobs_B = draw(
            scores,
            self._uniform_BT[:, len(self.logprobs)],
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
        )
        self.logprobs.append(logprobs_B)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens_B.unsqueeze(1), 0.0)


class _Stop(StoppingCriteria):
    """Ends every row once the engine is closed."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:
        return torch.full((input_ids.shape[0],), self._cancelled.is_set(), dtype=torch.bool, device=input_ids.device)


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(len(prompt) for prompt in prompts)
    input_ids = torch.zeros(len(prompts), width, dtype=torch.long)
    attention_mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        input_ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
        attention_mask[row, width - len(prompt) :] = 1
    return input_ids.to(device), attention_mask.to(device)
