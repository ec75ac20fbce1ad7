"""Contest problems whose official keys are known, recognised without their texts, and rows that say otherwise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from dapo.data.aime_keys import KnownProblem, read_table
from dapo.data.integers import mended_integer
from dapo.data.normal import fingerprint, runs, tokens
from dapo.data.records import Record

SAMPLE_SIZE = 48
_SHARE = 0.7
_FINGERPRINT_DIGITS = 16
_RUN_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A known problem in a text; `certain` where the wording is one of those on file, not just a like one."""

    problem: KnownProblem
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDifference:
    """A row whose answer is not the official one. `keys` has two answers where both were accepted."""

    row: int
    id: str
    problem: str
    answer: str
    keys: tuple[str, ...]
    certain: bool


@cache
def known_problems() -> tuple[KnownProblem, ...]:
    """All problems on file: AIME 2024 and 2025, and some older ones that circulate with a wrong label."""
    return read_table()


def short_fingerprint(text: str) -> str:
    """The first 64 bits of the sha256 of the normal form, in hex."""
    return fingerprint(text)[:_FINGERPRINT_DIGITS]


def sample_of(text: str) -> str:
    """The 48 smallest 24-bit hashes of the text's pairs of words, in hex: an even sample of the wording."""
    smallest = sorted({run >> 8 for run in runs(tokens(text), 2)})[:SAMPLE_SIZE]
    return "".join(f"{run:0{_RUN_DIGITS}x}" for run in smallest)


def recognise(text: str, pairs: set[int] | None = None) -> Recognised | None:
    """Return the known problem that a text asks, or None. `pairs` are its hashed word pairs, if they are at hand.

    Certain: its normal form is on file. Otherwise: it holds at least 70% of the sampled word pairs of a problem.
    """
    exact = _by_fingerprint().get(short_fingerprint(text))
    if exact is not None:
        return Recognised(problem=exact, certain=True)
    samples = _by_run()
    hits = Counter(place for run in pairs or runs(tokens(text), 2) for place in samples.get(run >> 8, ()))
    for place, count in hits.most_common(1):
        problem = known_problems()[place]
        if count >= _SHARE * (len(problem.sample) // _RUN_DIGITS):
            return Recognised(problem=problem, certain=False)
    return None


def key_difference(row: int, name: str, answer: str, found: Recognised) -> KeyDifference | None:
    """Return how an answer differs from the official key, or None. Leading zeros do not matter."""
    if mended_integer(answer) in found.problem.keys:
        return None
    return KeyDifference(
        row=row, id=name, problem=found.problem.name, answer=answer, keys=found.problem.keys, certain=found.certain
    )


def check_keys(records: Iterable[Record]) -> list[KeyDifference]:
    """Return every row that asks a known problem and has another answer than the official key, in row order."""
    differences = []
    for record in records:
        found = recognise(record.text)
        if found is not None:
            difference = key_difference(record.row, record.id, record.answer.text, found)
            if difference is not None:
                differences.append(difference)
    return differences


@cache
def _by_fingerprint() -> Mapping[str, KnownProblem]:
    return {mark: problem for problem in known_problems() for mark in problem.fingerprints}


@cache
def _by_run() -> Mapping[int, tuple[int, ...]]:
    found: dict[int, list[int]] = defaultdict(list)
    for place, problem in enumerate(known_problems()):
        for begin in range(0, len(problem.sample), _RUN_DIGITS):
            found[int(problem.sample[begin : begin + _RUN_DIGITS], 16)].append(place)
    return {run: tuple(places) for run, places in found.items()}
