"""The process that does symbolic mathematics: `python -m dapo.verifiers.worker --memory-mb 1024 --seconds 5`.

One JSON object a line in (`{"id", "gold", "answer"}`), one a line out (`{"id", "equal"}` or `{"id", "error"}`), after a
first line `{"ready": true}`. It ends when its input does. The kernel holds it to its memory, and ends it if a question
takes much more processor time than the pool allows, so that it does not outlive a pool that was killed.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import resource
import sys
from typing import IO

logger = logging.getLogger(__name__)

OUT_OF_MEMORY = "out of memory"
"""The error of a question that wanted more memory than the worker may have."""

_MEBIBYTE = 1024 * 1024
_GRACE_SECONDS = 2


def main(arguments: list[str] | None = None) -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-mb", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args(arguments)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not mix with the replies
    limit = options.memory_mb * _MEBIBYTE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        from dapo.verifiers import symbolic  # noqa: F401
    except Exception as fault:
        logger.exception("the worker cannot start")
        _send(replies, {"ready": False, "error": _described(fault)})
        return
    _send(replies, {"ready": True})
    for line in sys.stdin:
        _limit_processor_time(options.seconds)
        _send(replies, _answer(line))


def _answer(line: str) -> dict[str, object]:
    """Answer one question; whatever goes wrong is told, and the next question finds the worker as it was."""
    from dapo.verifiers import symbolic

    question = json.loads(line)
    try:
        return {"id": question["id"], "equal": symbolic.is_equal(question["gold"], question["answer"])}
    except Exception as fault:
        logger.exception("a question failed")
        return {"id": question["id"], "error": _described(fault)}


def _described(fault: Exception) -> str:
    if isinstance(fault, MemoryError):
        return OUT_OF_MEMORY
    return f"{type(fault).__name__}: {str(fault)[:200]}"


def _limit_processor_time(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds) + _GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _send(replies: IO[str], message: dict[str, object]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
