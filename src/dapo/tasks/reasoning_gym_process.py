"""Starts the reasoning-gym worker, asks it one thing at a time, and starts it anew when it hangs or dies."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import Timer
from typing import IO, Any

import dapo

Answer = dict[str, Any]

_START_SECONDS = 120.0
_GRACE_SECONDS = 1.0  # the worker keeps the limit itself; this is for one that cannot


class Worker:
    """A worker process and the one thread that talks to it.

    An answer that takes too long is `{"too_slow": True}`, a fault `{"failed": text}`; nothing is raised.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reasoning-gym")
        self._process: subprocess.Popen[str] | None = None

    def submit(self, request: Answer, seconds: float) -> Future[Answer]:
        """Ask; the time counts from when the worker begins with this request."""
        return self._thread.submit(self._ask, {**request, "seconds": seconds}, seconds + _GRACE_SECONDS)

    def close(self) -> None:
        """End the process."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._stop()

    def _ask(self, request: Answer, seconds: float) -> Answer:
        if self._process is None:
            self._process = _start()
            greeting = self._exchange(None, _START_SECONDS)
            if "ready" not in greeting:
                self._stop()
                return greeting
        return self._exchange(request, seconds)

    def _exchange(self, request: Answer | None, seconds: float) -> Answer:
        """Write a line and read one. A process that does not answer in time is killed, which ends the reading."""
        assert self._process is not None
        process, (into, out) = self._process, _pipes(self._process)
        expired: list[bool] = []

        def end() -> None:
            expired.append(True)
            process.kill()

        timer = Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            if request is not None:
                into.write(json.dumps(request) + "\n")
                into.flush()
            line = out.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            if expired:  # the answer came in the moment of the kill
                self._stop()
            answer: Answer = json.loads(line)
            return answer
        self._stop()
        return (
            {"too_slow": True} if expired else {"failed": f"the scoring process ended with code {process.returncode}"}
        )

    def _stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in _pipes(process):
            try:
                pipe.close()
            except BrokenPipeError:  # what was not written yet has no reader any more
                continue


def shared_worker() -> Worker:
    """Return the one worker of this process: its start takes seconds, and all tasks and checks can share it."""
    return _worker_of(os.getpid())


@lru_cache(maxsize=1)
def _worker_of(_process_id: int) -> Worker:
    worker = Worker()
    atexit.register(worker.close)
    return worker


def _start() -> subprocess.Popen[str]:
    source = str(Path(dapo.__file__).parents[1])
    search = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "dapo.tasks.reasoning_gym_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        # A fixed hash seed, because some generators go through sets of text in their order.
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": search},
    )


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
