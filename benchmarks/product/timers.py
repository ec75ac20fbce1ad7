"""Seconds by kind of work, taken from outside: functions of the product and of torch are wrapped in a stop watch.

Only the outermost watched call counts. A name that is gone raises, so that no kind of work is left out unseen.
"""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

WATCHED: tuple[tuple[str, str, str], ...] = (
    ("generate", "dapo.engines.native.engine", "NativeEngine._advance"),
    ("old_logprobs", "dapo.trainers.core", "LocalTrainer.annotate"),
    ("forward", "dapo.trainers.fused", "FusedForward.logprobs"),
    ("forward", "dapo.trainers.forward", "PackedForward.logprobs"),
    ("backward", "torch", "Tensor.backward"),
    ("optimizer", "torch.nn.utils", "clip_grad_norm_"),
    ("optimizer", "torch.optim", "AdamW.step"),
    ("optimizer", "dapo.trainers.precision", "ComputeCopy.refresh"),
)
"""Kind of work, module, name. Casting the new weights for the next pass is counted as part of the update."""


class Timers:
    """Wraps what is watched when made; `seconds` grows from then on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {kind: 0.0 for kind, _, _ in WATCHED}
        self._inside = threading.local()
        for kind, module, name in WATCHED:
            owner: Any = importlib.import_module(module)
            *path, last = name.split(".")
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, self._watch(kind, getattr(owner, last)))

    def reset(self) -> dict[str, float]:
        """Return the seconds so far and start from 0."""
        taken = dict(self.seconds)
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        return taken

    def _watch(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "busy", False):
                return function(*arguments, **named)
            self._inside.busy = True
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[kind] += time.perf_counter() - started
                self._inside.busy = False

        return timed
