"""Near duplicates, found exactly: every pair above the threshold and no other, without comparing every pair.

Two problems are compared only if all digits of all their numbers agree: problems that differ in a number alone are
different problems, and most templates differ in nothing else. In a group with the same digits, a pair with Jaccard
similarity t or more must share one of the rarest words of both (the first n - ceil(t n) + 1 of n in the order of
rarity: Chaudhuri et al. 2006, Bayardo et al. 2007), so an index of those is enough.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dapo.data.normal import as_array, digits_of, figure_digits, runs, tokens

_LEAST_RUNS = 5  # fewer word pairs than this say too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """What a problem is compared by: its digits, those of its drawings, and its pairs of neighbouring words."""

    digits: str
    figure: str
    pairs: array[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """Two problems by their places in the sequence (`first` < `second`) and their Jaccard similarity."""

    first: int
    second: int
    similarity: float


def sketch(text: str) -> Sketch:
    """Sketch a problem; about half a kilobyte."""
    words = tokens(text)
    return Sketch(digits=digits_of(words), figure=figure_digits(text), pairs=as_array(runs(words, 2)))


def similar_pairs(sketches: Sequence[Sketch], threshold: float) -> list[Similar]:
    """Return every pair with the same digits and a Jaccard similarity of `threshold` or more, by its second place.

    Where both have drawings, the digits of the drawings must agree as well.
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
        one, two = sketches[place].figure, sketches[other].figure
        if one and two and one != two:
            continue
        common = len(mine & theirs)
        similarity = common / (len(mine) + len(theirs) - common)
        if similarity >= threshold:
            yield Similar(first=other, second=place, similarity=similarity)
