"""One worker process, seen from the pool: start it, ask it within a time limit, end it."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from dapo.verifiers.worker import OUT_OF_MEMORY

START_SECONDS = 120.0
"""How long a process may take to import its library, however busy the machine is."""

_CHUNK = 65_536
_EXIT_SECONDS = 5.0

logger = logging.getLogger("dapo.verifiers")


class WorkerFailed(Exception):
    """The process gave no answer: it ran out of time, died, or could not start. It has been ended."""


class WorkerDied(WorkerFailed):
    """The process ended by itself or was killed by others; the question need not be to blame."""


class WorkerTimeout(WorkerFailed):
    """The process was ended because a question took longer than its limit."""


class WorkerProcess:
    """A process that answers one question at a time. Not thread-safe: one thread holds it while it asks."""

    def __init__(self, *, memory_mb: int, seconds: float) -> None:
        self._seconds = seconds
        self._questions = 0
        self._ready = False
        self._unread = b""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "dapo.verifiers.worker"),
                *("--memory-mb", str(memory_mb), "--seconds", str(seconds)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            bufsize=0,
            start_new_session=True,  # an interrupt at the terminal is for the parent, which then ends it
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, gold: str, answer: str) -> tuple[bool, str | None]:
        """Whether the two are equal, and what went wrong inside, if anything. Raises WorkerFailed."""
        if not self._ready:
            message = self._receive(START_SECONDS)
            if not message.get("ready"):
                self.end()
                raise WorkerFailed(f"the verifier process cannot start: {message.get('error')}")
            self._ready = True
        self._questions += 1
        question = json.dumps({"id": self._questions, "gold": gold, "answer": answer}) + "\n"
        try:
            self._write(question.encode())
        except (OSError, ValueError) as fault:
            self.end()
            raise WorkerDied("the verifier process is gone") from fault
        message = self._receive(self._seconds)
        if message.get("id") != self._questions:
            self.end()
            raise WorkerFailed("the verifier process answered another question")
        error = message.get("error")
        if error == OUT_OF_MEMORY:
            self.end()  # what is left of its memory is in no state to be trusted
        return bool(message.get("equal", False)), None if error is None else str(error)

    def _wait_for_exit(self) -> None:
        """Let a process that is going down give its exit code, which says why; then clean up."""
        try:
            self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("verifier process %d closed its output but goes on; it is killed", self.pid)
        self.end()

    def end(self) -> None:
        """Kill the process and wait until it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) or 0 :]

    def _receive(self, seconds: float) -> dict[str, object]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                self.end()
                raise WorkerTimeout(f"not decided within the limit of {seconds:g} s")
            data = os.read(descriptor, _CHUNK)
            if not data:
                self._wait_for_exit()
                raise WorkerDied(f"the verifier process died ({_cause(self._process.returncode)})")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as fault:
            self.end()
            raise WorkerFailed("the verifier process wrote something that is no answer") from fault
        return message if isinstance(message, dict) else {}


def _cause(returncode: int | None) -> str:
    if returncode is None:
        return "cause unknown"
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


def _environment() -> dict[str, str]:
    """The parent's environment, with this package importable and no threads that take address space."""
    package_root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(part for part in (package_root, inherited) if part)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
