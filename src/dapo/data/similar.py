"""Near duplicates, found exactly: every pair above the threshold and no other, without comparing every pair.

Two problems are compared only if their numbers agree: problems that differ in a number alone are different problems,
and most templates differ in nothing else. In a group with the same digits, a pair with Jaccard
similarity t or more must share one of the rarest words of both (the first n - ceil(t n) + 1 of n in the order of
rarity: Chaudhuri et al. 2006, Bayardo et al. 2007), so an index of those is enough.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dapo.data.normal import as_array, figure_digits, numbers_of, runs, tokens

_LEAST_RUNS = 5  # fewer word pairs than this say too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """What a problem is compared by: its numbers, the digits of its drawings, and its pairs of neighbouring words."""

    digits: str
    """All digits, sorted."""
    numbers: str
    """All numbers, sorted."""
    sequence: str
    """All digits, in their order."""
    figure: str
    """The digits of the drawings, sorted."""
    pairs: array[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """Two problems by their places in the sequence (`first` < `second`) and their Jaccard similarity."""

    first: int
    second: int
    similarity: float


def sketch(text: str, words: list[str] | None = None, pairs: set[int] | None = None) -> Sketch:
    """Sketch a problem; about half a kilobyte. `words` and `pairs` are its tokens and their pairs, if at hand."""
    words = tokens(text) if words is None else words
    numbers = numbers_of(words)
    sequence = "".join(numbers)
    return Sketch(
        digits="".join(sorted(sequence)),
        numbers=" ".join(sorted(numbers)),
        sequence=sequence,
        figure=figure_digits(text),
        pairs=as_array(pairs or runs(words, 2)),
    )


def similar_pairs(sketches: Sequence[Sketch], threshold: float) -> list[Similar]:
    """Return every pair with the same numbers and a Jaccard similarity of `threshold` or more, by its second place.

    The same numbers: in any order, or the same digits in the same order (1,000 and 1000). Where both have drawings, the
    digits of the drawings must agree as well.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(sketches):
        if len(one.pairs) >= _LEAST_RUNS:
            groups[one.digits].append(place)
    found = [pair for places in groups.values() if len(places) > 1 for pair in _join(sketches, places, threshold)]
    return sorted(found, key=lambda pair: (pair.second, pair.first))


def _join(sketches: Sequence[Sketch], places: Sequence[int], threshold: float) -> Iterator[Similar]:
    rarity = Counter(word for place in places for word in sketches[place].pairs)
    index: dict[int, list[int]] = defaultdict(list)
    sets: dict[int, set[int]] = {}
    for place in places:
        words = sorted(sketches[place].pairs, key=lambda word: (rarity[word], word))
        prefix = words[: len(words) - math.ceil(threshold * len(words) - 1e-9) + 1]
        sets[place] = set(words)
        candidates = {other for word in prefix for other in index[word]}
        yield from _verified(sketches, place, candidates, sets, threshold)
        for word in prefix:
            index[word].append(place)


def _verified(
    sketches: Sequence[Sketch], place: int, candidates: Iterable[int], sets: dict[int, set[int]], threshold: float
) -> Iterator[Similar]:
    mine = sets[place]
    for other in candidates:
        theirs = sets[other]
        if min(len(mine), len(theirs)) < threshold * max(len(mine), len(theirs)):
            continue
        if not _same_numbers(sketches[place], sketches[other]):
            continue
        common = len(mine & theirs)
        similarity = common / (len(mine) + len(theirs) - common)
        if similarity >= threshold:
            yield Similar(first=other, second=place, similarity=similarity)


def _same_numbers(one: Sketch, two: Sketch) -> bool:
    if one.figure and two.figure and one.figure != two.figure:
        return False
    return one.numbers == two.numbers or one.sequence == two.sequence
