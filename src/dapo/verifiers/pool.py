"""Grades many replies with hard limits, from any thread, from asyncio, and inside of daemonic processes.

What can be decided quickly is decided in the calling thread; only symbolic mathematics goes to worker processes. Those
start when they are first needed, and one that runs out of time or memory is killed and replaced, so that the pool keeps
its size. They are plain subprocesses that speak JSON over pipes: a daemonic process may have them, and nothing that is
read from them is executed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType

from dapo.verifiers.grades import Grade, Reply, VerifierName
from dapo.verifiers.grading import Question, answered, grade_quickly, with_watcher
from dapo.verifiers.process import WorkerDied, WorkerFailed, WorkerProcess, WorkerTimeout

logger = logging.getLogger("dapo.verifiers")

_LONG = 200_000  # characters; longer responses are not even searched in the thread of the event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """What a pool has done. `symbolic` of the `graded` replies needed a worker; `timeouts` are among the `errors`."""

    graded: int = 0
    symbolic: int = 0
    errors: int = 0
    timeouts: int = 0
    watched: int = 0
    disagreements: int = 0


class VerifierPool:
    """Grades replies with one verifier, and lets a second one watch.

    seconds: limit of one answer, from when a worker takes it up. memory_mb: limit of a worker's address space, MiB.
    """

    def __init__(
        self,
        verifier: VerifierName = "math",
        *,
        watch: VerifierName | None = None,
        seconds: float = 5.0,
        memory_mb: int = 1024,
        workers: int = 2,
    ) -> None:
        self.verifier = verifier
        self.watch = watch
        self._seconds = seconds
        self._memory_mb = memory_mb
        self.num_workers = workers
        self._open()

    def _open(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._counts = PoolCounts()
        self._closed = False
        self._idle: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()
        self._threads = ThreadPoolExecutor(self.num_workers, thread_name_prefix="dapo-verifier")
        self._finalizer = weakref.finalize(self, _end_all, self._all)

    @property
    def counts(self) -> PoolCounts:
        """What has been done so far."""
        return self._counts

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Ids of the worker processes that run."""
        with self._lock:
            return tuple(sorted(worker.pid for worker in self._all if worker.is_alive))

    async def grade(self, response: str, gold: str, *, truncated: bool = False) -> Grade:
        """Grade one reply without holding up the event loop. A fault is returned in `Grade.error`, never raised."""
        reply = Reply(response=response, gold=gold, truncated=truncated)
        found = self._begin(reply) if len(response) < _LONG else await asyncio.to_thread(self._begin, reply)
        return found if isinstance(found, Grade) else await asyncio.wrap_future(found)

    def grade_many(self, replies: Iterable[Reply]) -> list[Grade]:
        """Grade replies and return as many grades in the same order, whatever happens to single ones."""
        begun = [self._begin(reply) for reply in replies]
        return [found if isinstance(found, Grade) else found.result() for found in begun]

    def close(self) -> None:
        """End the workers. Questions that wait count as errors; grading again is refused."""
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=False)
        self._finalizer()

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, reply: Reply) -> Grade | Future[Grade]:
        """Grade a reply if that is quick; else hand it to a thread that holds a worker."""
        if os.getpid() != self._owner:
            self._finalizer.detach()  # a forked child shares no process with its parent
            self._open()
        if self._closed:
            raise RuntimeError("this VerifierPool is closed; make a new one")
        outcome = self._quickly(reply, self.verifier)
        watched = self._quickly(reply, self.watch) if self.watch is not None else None
        if isinstance(outcome, Question) or isinstance(watched, Question):
            return self._threads.submit(self._finish, reply, outcome, watched)
        return self._counted(outcome if watched is None else with_watcher(outcome, watched))

    def _quickly(self, reply: Reply, verifier: VerifierName) -> Grade | Question:
        try:
            return grade_quickly(reply, verifier)
        except Exception as fault:
            logger.exception("verifier error on a response that ends in %r", reply.response[-200:])
            error = _described(fault)
            return Grade(correct=False, extracted=None, why=error, error=error)

    def _finish(self, reply: Reply, outcome: Grade | Question, watched: Grade | Question | None) -> Grade:
        grade = self._settled(outcome)
        if watched is not None:
            grade = with_watcher(grade, self._settled(watched))
        return self._counted(grade)

    def _settled(self, outcome: Grade | Question) -> Grade:
        """Ask a worker what is open; a worker that fails is replaced at once."""
        if isinstance(outcome, Grade):
            return outcome
        timed_out = False
        try:
            try:
                equal, error = self._ask(outcome)
            except WorkerDied:
                equal, error = self._ask(outcome)  # once more: something else may have killed it
        except WorkerFailed as fault:
            timed_out = isinstance(fault, WorkerTimeout)
            equal, error = False, str(fault)
        except Exception as fault:
            logger.exception("the pool failed on an answer")
            equal, error = False, _described(fault)
        if error is not None:
            logger.warning("verifier error: %s; answer %r, gold %r", error, outcome.answer[:200], outcome.gold[:200])
        with self._lock:
            counts = self._counts
            self._counts = replace(counts, symbolic=counts.symbolic + 1, timeouts=counts.timeouts + timed_out)
        return answered(outcome, equal, error)

    def _ask(self, question: Question) -> tuple[bool, str | None]:
        worker = self._take_worker()
        try:
            return worker.ask(question.gold, question.answer)
        finally:
            self._give_back(worker)

    def _take_worker(self) -> WorkerProcess:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None and worker.is_alive:
            return worker
        if worker is not None:
            self._drop(worker)
        return self._start_worker()

    def _start_worker(self) -> WorkerProcess:
        if self._closed:
            raise WorkerFailed("the pool was closed")
        worker = WorkerProcess(memory_mb=self._memory_mb, seconds=self._seconds)
        with self._lock:
            closed = self._closed
            self._all.add(worker)
        if closed:
            self._drop(worker)
            raise WorkerFailed("the pool was closed")
        return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        if not worker.is_alive:
            self._drop(worker)
            if self._closed:
                return
            worker = self._start_worker()
        with self._lock:
            self._idle.append(worker)

    def _drop(self, worker: WorkerProcess) -> None:
        worker.end()
        with self._lock:
            self._all.discard(worker)

    def _counted(self, grade: Grade) -> Grade:
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts,
                graded=counts.graded + 1,
                errors=counts.errors + (grade.error is not None),
                watched=counts.watched + (grade.watched is not None),
                disagreements=counts.disagreements + grade.disagrees,
            )
        return grade


def _described(fault: Exception) -> str:
    return f"{type(fault).__name__}: {str(fault)[:200]}"


def _end_all(workers: set[WorkerProcess]) -> None:
    for worker in list(workers):
        worker.end()
