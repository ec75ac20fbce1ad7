"""The limits: hung work is ended, the pool keeps its size, and one reply's trouble is no other reply's."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dapo.verifiers import Grade, Reply, VerifierPool, disagreement_rate, grading
from dapo.verifiers.process import WorkerFailed, WorkerProcess

HANGS = "Answer: $\\int_0^1 x^{x^{x^{x}}} dx$"
EATS_MEMORY = "Answer: $\\int_0^1 2^{10^{10}} dx$"
SYMBOLIC = Reply(response="\\boxed{\\frac{1}{\\sqrt3}}", gold="\\frac{\\sqrt{3}}{3}")
SECONDS = 1.0


@pytest.fixture
def pool() -> Iterator[VerifierPool]:
    with VerifierPool("math", seconds=SECONDS, memory_mb=512, workers=1) as made:
        yield made


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_quick_replies_need_no_process(pool: VerifierPool) -> None:
    grades = pool.grade_many([Reply(response=f"Answer: {n}", gold="3") for n in range(5)])
    assert [grade.correct for grade in grades] == [False, False, False, True, False]
    assert pool.process_ids == ()
    assert (pool.counts.graded, pool.counts.symbolic, pool.counts.errors) == (5, 0, 0)


def test_a_hung_worker_is_killed_and_replaced(pool: VerifierPool, caplog: pytest.LogCaptureFixture) -> None:
    assert pool.grade_many([SYMBOLIC])[0].correct
    (before,) = pool.process_ids
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="dapo.verifiers"):
        (found,) = pool.grade_many([Reply(response=HANGS, gold="7")])
    assert time.monotonic() - started < SECONDS + 2
    assert (found.correct, found.error) == (False, "not decided within the limit of 1 s")
    assert "not decided within the limit" in caplog.text
    (after,) = pool.process_ids
    assert after != before
    assert not is_running(before)
    assert pool.grade_many([SYMBOLIC])[0].correct
    assert (pool.counts.errors, pool.counts.timeouts) == (1, 1)


def test_a_hung_worker_is_killed_from_any_thread(pool: VerifierPool) -> None:
    found: list[Grade] = []
    thread = threading.Thread(target=lambda: found.extend(pool.grade_many([Reply(response=HANGS, gold="7"), SYMBOLIC])))
    thread.start()
    thread.join(timeout=30)
    assert [grade.correct for grade in found] == [False, True]
    assert len(pool.process_ids) == 1


def test_a_hung_worker_is_killed_from_asyncio_while_the_loop_goes_on(pool: VerifierPool) -> None:
    async def run() -> tuple[Grade, int]:
        ticks = 0
        hung = asyncio.ensure_future(pool.grade(HANGS, "7"))
        while not hung.done():
            await asyncio.sleep(0.05)
            ticks += 1
        return await hung, ticks

    pool.grade_many([SYMBOLIC])  # the process has started
    found, ticks = asyncio.run(run())
    assert found.error == "not decided within the limit of 1 s"
    assert ticks >= 10
    assert len(pool.process_ids) == 1


def test_one_pool_serves_several_event_loops(pool: VerifierPool) -> None:
    for _ in range(2):
        assert asyncio.run(pool.grade(SYMBOLIC.response, SYMBOLIC.gold)).correct
    assert asyncio.run(pool.grade("so we get 5", "5", truncated=True)).correct is False
    assert asyncio.run(pool.grade(" " * 300_000 + "Answer: 5", "5")).correct


def test_memory_is_limited(pool: VerifierPool) -> None:
    with VerifierPool("math", seconds=30, memory_mb=512, workers=1) as roomy_in_time:
        roomy_in_time.grade_many([SYMBOLIC])
        (before,) = roomy_in_time.process_ids
        limits = Path(f"/proc/{before}/limits").read_text(encoding="utf-8")
        assert f"Max address space         {512 * 1024 * 1024}" in limits
        found, after_it = roomy_in_time.grade_many([Reply(response=EATS_MEMORY, gold="7"), SYMBOLIC])
        assert (found.correct, found.error) == (False, "out of memory")
        assert after_it.correct
        assert before not in roomy_in_time.process_ids
        assert len(roomy_in_time.process_ids) == 1


def test_a_worker_that_cannot_start_is_an_error_of_its_reply() -> None:
    with VerifierPool("math", memory_mb=40, workers=1) as starved:
        quick, found = starved.grade_many([Reply(response="Answer: 5", gold="5"), SYMBOLIC])
    assert quick.correct
    assert found.error is not None
    assert found.error.startswith("the verifier process ")


def test_a_worker_that_was_killed_from_outside_is_replaced(pool: VerifierPool) -> None:
    pool.grade_many([SYMBOLIC])
    os.kill(pool.process_ids[0], 9)
    assert pool.grade_many([SYMBOLIC])[0].correct


def test_order_is_kept_and_every_reply_gets_its_own_grade() -> None:
    replies = [
        reply
        for n in range(6)
        for reply in (
            Reply(response=f"Answer: {n}", gold="3"),
            Reply(response=f"Answer: $\\sqrt{{{n}}}\\cdot\\sqrt2$", gold="\\sqrt{6}"),
            Reply(response=HANGS if n == 2 else "no answer", gold="3"),
        )
    ]
    with VerifierPool("math", seconds=SECONDS, workers=2) as pool:
        grades = pool.grade_many(replies)
    assert [index for index, grade in enumerate(grades) if grade.correct] == [9, 10]
    assert [index for index, grade in enumerate(grades) if grade.error is not None] == [8]


def test_an_exception_is_counted_and_logged_and_spoils_no_other_reply(
    pool: VerifierPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_value = grading.read_value

    def faulty(text: str, *, free: bool = False) -> object:
        if text == "13":
            raise ZeroDivisionError("a fault in the verifier")
        return read_value(text, free=free)

    monkeypatch.setattr(grading, "read_value", faulty)
    with caplog.at_level(logging.ERROR, logger="dapo.verifiers"):
        grades = pool.grade_many([Reply(response=f"Answer: {n}", gold="14") for n in (12, 13, 14)])
    assert [grade.correct for grade in grades] == [False, False, True]
    assert [grade.error for grade in grades] == [None, "ZeroDivisionError: a fault in the verifier", None]
    assert pool.counts.errors == 1
    assert "verifier error" in caplog.text


def test_results_are_the_same_from_any_thread() -> None:
    replies = [Reply(response=f"Answer: $\\frac{{{n}}}{{\\sqrt{{2}}}}$", gold="\\sqrt{2}") for n in range(4)]
    with VerifierPool("math", workers=2) as pool:
        here = pool.grade_many(replies)
        with ThreadPoolExecutor(4) as threads:
            there = list(threads.map(lambda _: pool.grade_many(replies), range(4)))
    assert [grade.correct for grade in here] == [False, False, True, False]
    assert all(grades == here for grades in there)


def _grade_in_child(pipe: Connection) -> None:
    with VerifierPool("math", seconds=SECONDS, workers=1) as pool:
        grades = pool.grade_many([SYMBOLIC, Reply(response=HANGS, gold="7")])
    pipe.send([(grade.correct, grade.error) for grade in grades])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_it_works_inside_a_daemonic_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=_grade_in_child, args=(there,), daemon=True)
    process.start()
    assert here.poll(60)
    assert here.recv() == [(True, None), (False, "not decided within the limit of 1 s")]
    process.join(timeout=30)
    assert process.exitcode == 0


def _grade_with_inherited(pool: VerifierPool, pipe: Connection) -> None:
    grade = pool.grade_many([SYMBOLIC])[0]
    pipe.send((grade.correct, pool.process_ids))
    pool.close()


def test_a_forked_child_has_workers_of_its_own(pool: VerifierPool) -> None:
    pool.grade_many([SYMBOLIC])
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_grade_with_inherited, args=(pool, there), daemon=True)
    process.start()
    assert here.poll(60)
    is_correct, (worker,) = here.recv()
    process.join(timeout=30)
    assert is_correct
    assert worker != pool.process_ids[0]
    assert pool.grade_many([SYMBOLIC])[0].correct


def test_workers_end_with_their_parent() -> None:
    code = (
        "import os; from dapo.verifiers import Reply, VerifierPool\n"
        "pool = VerifierPool(workers=1, seconds=60)\n"
        "pool.grade_many([Reply(response='\\\\boxed{\\\\sqrt{12}}', gold='2\\\\sqrt3')])\n"
        "print(pool.process_ids[0], flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    worker = int(parent.stdout)
    deadline = time.monotonic() + 10
    while _is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(worker)


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_closed_pool_refuses_work_and_leaves_no_process() -> None:
    pool = VerifierPool("math", workers=1)
    pool.grade_many([SYMBOLIC])
    (worker,) = pool.process_ids
    pool.close()
    pool.close()
    assert not is_running(worker)
    with pytest.raises(RuntimeError, match="closed"):
        pool.grade_many([SYMBOLIC])


def test_closing_ends_work_that_is_under_way() -> None:
    pool = VerifierPool("math", seconds=60, workers=1)
    pool.grade_many([SYMBOLIC])
    found: list[Grade] = []
    thread = threading.Thread(target=lambda: found.extend(pool.grade_many([Reply(response=HANGS, gold="7")] * 2)))
    thread.start()
    time.sleep(0.3)
    pool.close()
    thread.join(timeout=10)
    assert len(found) == 2
    assert all(grade.error is not None and not grade.correct for grade in found)


def test_a_second_verifier_watches() -> None:
    replies = [Reply(response=text, gold="540") for text in ("Answer: 540", "**Answer:** 540", "Answer: 7 = 540", "no")]
    with VerifierPool("math", watch="dapo") as pool:
        grades = pool.grade_many([*replies, SYMBOLIC])
        counts = pool.counts
    assert [grade.correct for grade in grades] == [True, True, False, False, True]
    assert [grade.watched for grade in grades] == [True, False, True, False, False]
    assert (counts.watched, counts.disagreements) == (5, 3)
    assert disagreement_rate(grades) == 3 / 5
    with VerifierPool("dapo", watch="math") as reversed_pool:
        assert [grade.watched for grade in reversed_pool.grade_many([SYMBOLIC])] == [True]
    assert disagreement_rate([]) == 0.0


def test_a_worker_process_tells_what_failed() -> None:
    worker = WorkerProcess(memory_mb=512, seconds=SECONDS)
    assert worker.ask("2\\sqrt3", "\\sqrt{12}") == (True, None)
    worker.end()
    with pytest.raises(WorkerFailed, match="gone"):
        worker.ask("1", "2")
