from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.data.normal import runs, tokens
from dapo.data.similar import similar_pairs, sketch

BASE = "Two trains leave the same station at noon and travel in opposite directions at 40 and 60 miles an hour"


def pairs_of(*texts: str, threshold: float = 0.8) -> list[tuple[int, int]]:
    found = similar_pairs([sketch(text) for text in texts], threshold)
    return [(pair.first, pair.second) for pair in found]


def test_other_words_for_the_same_question_are_near() -> None:
    found = similar_pairs(
        [sketch(f"{BASE}. When are they 50 miles apart?"), sketch(f"{BASE}; when are they 50 miles apart")], 0.8
    )
    assert [(pair.first, pair.second, pair.similarity) for pair in found] == [(0, 1, 1.0)]


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("40", "45"),
        BASE.replace("40", "60").replace("60", "40", 1).replace("40", "06"),
        BASE.replace("40 and 60", "400 and 6"),
        BASE + " for 3 hours",
        "A fish of 40 pounds and 60 scales swims in an entirely different lake than any of those trains ever saw",
    ],
)
def test_other_numbers_or_other_words_are_not(other: str) -> None:
    assert pairs_of(BASE, other) == []


def test_numbers_may_be_set_otherwise() -> None:
    text = "A town of {} people is split into {} equal wards, each of which sends one member to the council of the town"
    assert pairs_of(text.format("12,000", "\\frac{1}{2}"), text.format("12000", "\\frac12"), threshold=0.6) == [(0, 1)]


def test_drawings_must_agree_where_both_have_one() -> None:
    drawn = "{} [asy]draw((0,0)--({},1));[/asy]"
    assert pairs_of(drawn.format(BASE, 2), drawn.format(BASE, 3)) == []
    assert pairs_of(drawn.format(BASE, 2), BASE, drawn.format(BASE, 2)) == [(0, 1), (0, 2), (1, 2)]


def test_texts_of_a_few_words_are_not_compared() -> None:
    assert pairs_of("Compute $3 + 4$.", "Compute $3 + 4$.") == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.8, 0.9, 1.0]))
def test_every_pair_from_the_threshold_on_is_found_and_no_other(seed: int, threshold: float) -> None:
    rng = random.Random(seed)
    words = [f"word{chr(97 + n)}" for n in range(12)]
    texts = [" ".join(rng.choices(words, k=rng.randint(6, 14))) for _ in range(25)]
    expected = []
    for second, first in sorted((b, a) for a, b in combinations(range(len(texts)), 2)):
        one, two = (runs(tokens(texts[place]), 2) for place in (first, second))
        if min(len(one), len(two)) >= 5 and len(one & two) / len(one | two) >= threshold:
            expected.append((first, second))
    assert pairs_of(*texts, threshold=threshold) == expected
