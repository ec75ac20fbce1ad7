"""Measures the verifiers: replies a second through the pool, and errors against labelled cases.

    python benchmarks/verifier.py [--replies 20000] [--cases FILE.jsonl ...]

The cases are this project's own corpus and, where the folder `../shared` (or `$DAPO_SHARED`) has it, a second set that
others labelled. `false +` counts wrong answers that were accepted, `false -` right answers that were refused; hard cases
are beyond dispute, soft ones a matter of convention. math-verify runs in a process of its own that is ended after ten
seconds, because it hangs on some texts; a hang or an exception counts as a refusal and is listed as `failed`.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from dapo.verifiers import Reply, VerifierName, VerifierPool

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/unit/verifiers/corpus.jsonl"
SHARED = Path(os.environ.get("DAPO_SHARED", ROOT.parent / "shared")) / "cases/grading_cases.jsonl"
MATH_VERIFY_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A labelled reply."""

    response: str
    gold: str
    expected: bool
    scope: str
    strength: str
    batch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What a grader said about each case, and how often it failed to say anything."""

    accepted: Sequence[bool]
    failed: Sequence[bool]
    seconds: float


def read_cases(path: Path) -> list[Case]:
    """Read labelled cases, one JSON object a line."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Case(
            response=row["response"],
            gold=row["gold"],
            expected=row["expected"],
            scope=row["scope"],
            strength=row["strength"],
            batch=row.get("batch", "all"),
        )
        for row in rows
    ]


def by_pool(cases: Sequence[Case], verifier: VerifierName) -> Verdicts:
    """Grade with one of our verifiers."""
    started = time.perf_counter()
    with VerifierPool(verifier, seconds=5.0) as pool:
        grades = pool.grade_many(Reply(response=case.response, gold=case.gold) for case in cases)
    return Verdicts(
        accepted=[grade.correct for grade in grades],
        failed=[grade.error is not None for grade in grades],
        seconds=time.perf_counter() - started,
    )


def by_math_verify(cases: Sequence[Case]) -> Verdicts:
    """Grade with math-verify, as its documentation calls it, in a process that is ended when it hangs."""
    started = time.perf_counter()
    accepted, failed = [], []
    worker: tuple[multiprocessing.Process, Connection] | None = None
    for case in cases:
        if worker is None:
            worker = _start_math_verify()
        process, pipe = worker
        pipe.send((case.response, case.gold))
        answer = pipe.recv() if pipe.poll(MATH_VERIFY_SECONDS) else None
        accepted.append(bool(answer))
        failed.append(answer is None)
        if answer is None:
            process.kill()
            process.join()
            worker = None
    if worker is not None:
        worker[0].kill()
        worker[0].join()
    return Verdicts(accepted=accepted, failed=failed, seconds=time.perf_counter() - started)


def _start_math_verify() -> tuple[multiprocessing.Process, Connection]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve_math_verify, args=(there,), daemon=True)
    process.start()
    here.send(("Answer: 1", "1"))  # importing takes seconds; it is no part of the limit
    here.recv()
    return process, here


def _serve_math_verify(pipe: Connection) -> None:
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    while True:
        response, gold = pipe.recv()
        pipe.send(bool(verify(parse(f"${gold}$"), parse(response))))


def error_table(cases: Sequence[Case], graders: dict[str, Verdicts]) -> Iterable[str]:
    """Lines of a Markdown table: errors of every grader on every kind of case."""
    yield "| cases | grader | wrong answers | false + | right answers | false - | failed | seconds |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    kinds: dict[str, Callable[[Case], bool]] = {
        "integer, hard": lambda case: (case.scope, case.strength) == ("integer", "hard"),
        "general, hard": lambda case: (case.scope, case.strength) == ("general", "hard"),
        "soft": lambda case: case.strength == "soft",
    }
    for kind, belongs in kinds.items():
        chosen = [index for index, case in enumerate(cases) if belongs(case)]
        right = [index for index in chosen if cases[index].expected]
        wrong = [index for index in chosen if not cases[index].expected]
        for name, verdicts in graders.items():
            false_positives = sum(verdicts.accepted[index] for index in wrong)
            false_negatives = sum(not verdicts.accepted[index] for index in right)
            failed = sum(verdicts.failed[index] for index in chosen)
            yield (
                f"| {kind} | {name} | {len(wrong)} | {_share(false_positives, len(wrong))} | {len(right)} "
                f"| {_share(false_negatives, len(right))} | {failed} | {verdicts.seconds:.1f} |"
            )


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.1f}%)" if total else "0"


_LAYOUTS = (
    "Answer: {}",
    "Answer: ${}$",
    "**Answer:** {}",
    "Answer: \\boxed{{{}}}",
    "The final answer is $\\boxed{{{}}}$.",
    "Therefore $m+n = \\boxed{{{}}}$.",
    "#### {}",
    "Answer: {}.",
)
_SENTENCES = (
    "Let $n = {0}$ and note that $n^2 + {1}n = {2}$ has no solution modulo {1}. ",
    "Adding the cases gives {0} + {1} = {2}, so the count so far is {2}. ",
    "By symmetry we may assume that $a \\le b$, which leaves {1} of the {2} pairs. ",
    "The answer cannot depend on the order, so we divide by {1}. ",
    "Hence $\\frac{{{0}}}{{{1}}} < {2}$ and the bound follows.\n\n",
)


def typical_replies(count: int, *, characters: int = 1600, seed: int = 0) -> list[Reply]:
    """Replies such as a model writes to a problem with an integer answer: working, and a last line that states it."""
    rng = random.Random(seed)
    replies = []
    for _ in range(count):
        working = ""
        while len(working) < characters:
            working += rng.choice(_SENTENCES).format(*(rng.randrange(1000) for _ in range(3)))
        gold = rng.randrange(1000)
        stated = gold if rng.random() < 0.5 else rng.randrange(1000)
        replies.append(Reply(response=f"{working}\n{rng.choice(_LAYOUTS).format(stated)}", gold=str(gold)))
    return replies


def say(text: str) -> None:
    """Write a line at once, so that a long run shows how far it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print throughput and the error tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=20_000, help="how many replies the throughput is measured on")
    parser.add_argument("--cases", type=Path, nargs="*", default=[CORPUS, SHARED], help="files of labelled cases")
    parser.add_argument("--without-math-verify", action="store_true", help="leave out the slow comparison")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)

    replies = typical_replies(options.replies)
    for verifier in ("math", "dapo"):
        with VerifierPool(verifier) as pool:
            started = time.perf_counter()
            pool.grade_many(replies)
            rate = len(replies) / (time.perf_counter() - started)
        say(f"throughput, {verifier}: {rate:,.0f} typical integer replies a second (one process, one thread)")

    for path in options.cases:
        if not path.exists():
            say(f"\n{path.name}: not here")
            continue
        cases = read_cases(path)
        for batch in sorted({case.batch for case in cases}):
            chosen = [case for case in cases if case.batch == batch]
            graders = {"math": by_pool(chosen, "math"), "dapo (official rule)": by_pool(chosen, "dapo")}
            if not options.without_math_verify:
                graders["math-verify 0.9.0"] = by_math_verify(chosen)
            say(f"\n{path.name}, batch {batch}: {len(chosen)} cases\n")
            say("\n".join(error_table(chosen, graders)))


if __name__ == "__main__":
    main()
