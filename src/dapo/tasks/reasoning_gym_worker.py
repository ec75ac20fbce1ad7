"""The process in which the generators and scorers of reasoning-gym run: `python -m dapo.tasks.reasoning_gym_worker`.

They are kept out of the main process for three reasons. A scorer may evaluate what the policy wrote, and a reply such
as `9**9**9` would then hang the run. Some generators depend on the order of sets of text, which differs from process
to process unless PYTHONHASHSEED is set before the start. And some change the global random state.

One JSON object a line comes in and one goes out; the first to go out says whether the package could be imported. A
request names the dataset in full, so a worker that was started anew answers as the one before it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import FrameType
from typing import Any

Message = dict[str, Any]


class _TooSlow(BaseException):
    """The time is over. No Exception, so that a scorer's own `except Exception` does not swallow it."""


def main() -> None:
    """Answer requests until the input ends, which it does when the parent process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a generator prints must not get between the answers
    try:
        import reasoning_gym  # noqa: F401 - the import is what is tried
    except Exception as error:  # noqa: BLE001 - an import may raise anything; the parent reports it
        _send(answers, {"failed": f"{type(error).__name__}: {error}"})
        return
    _send(answers, {"ready": True})
    for line in sys.stdin:
        _send(answers, _answer(json.loads(line)))


def _send(answers: Any, message: Message) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(request: Message) -> Message:
    actions = {"open": _open, "draw": _draw, "score": _score}
    try:
        with _time_limit(request["seconds"]):
            return actions[request["do"]](request)
    except _TooSlow:
        return {"too_slow": True}
    except Exception as error:  # noqa: BLE001 - code of others may raise anything; the parent decides what it means
        return {"failed": f"{type(error).__name__}: {error}"}


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if not hasattr(signal, "setitimer"):  # Windows: the parent's own limit stops the process instead
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _open(request: Message) -> Message:
    """Try the name and the options, and say what is known where one of them is not."""
    from dataclasses import fields

    from reasoning_gym.factory import DATASETS

    wanted: Mapping[str, Any] = request["dataset"]
    if wanted["name"] not in DATASETS:
        return {"unknown_name": wanted["name"], "known": sorted(DATASETS)}
    known = [field.name for field in fields(DATASETS[wanted["name"]][1])]
    for option in wanted["options"]:
        if option not in known:
            return {"unknown_option": option, "known": known}
    _dataset(_key(request))[0]
    return {"opened": True}


def _draw(request: Message) -> Message:
    entry = _entry(_key(request), request["index"])
    return {"question": entry["question"], "answer": entry["answer"]}


def _score(request: Message) -> Message:
    key = _key(request)
    entry = _entry(key, request["index"])
    if entry["question"] != request["question"]:
        return {"failed": f"problem {request['index']} was another one when it was made again"}
    return {"score": float(_dataset(key).score_answer(request["reply"], entry))}


def _key(request: Message) -> str:
    return json.dumps(request["dataset"], sort_keys=True)


@lru_cache(maxsize=64)
def _dataset(key: str) -> Any:
    import reasoning_gym

    wanted = json.loads(key)
    return reasoning_gym.create_dataset(wanted["name"], seed=wanted["seed"], size=wanted["size"], **wanted["options"])


@lru_cache(maxsize=20_000)
def _entry(key: str, index: int) -> Any:
    return _dataset(key)[index]


if __name__ == "__main__":
    main()
