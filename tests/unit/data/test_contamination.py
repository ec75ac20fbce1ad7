from __future__ import annotations

import pytest

from dapo.data.contamination import EvaluationIndex, index_evaluation
from dapo.data.records import Answer, Origin, Record
from dapo.types import Message

LONG = (
    "A merchant buys seventeen barrels of olive oil in the harbour and sells four of them on the way home, "
    "then trades the rest for bolts of linen at two barrels a bolt; how many bolts does the merchant get?"
)
SHORT = "Determine the number of ways to arrange the letters of the word LEVER."


def index(*texts: str) -> EvaluationIndex:
    return index_evaluation(
        Record(
            row=row,
            id=f"eval-{row}",
            messages=(Message(role="user", content=text),),
            answer=Answer(text="1", origin=Origin.TEXT),
            values={},
            used=frozenset(),
        )
        for row, text in enumerate(texts)
    )


def test_equal_text_in_other_typesetting_is_found() -> None:
    found = index("What is $6 * 7$?").find("what is 6*7", 0.5)
    assert found is not None
    assert (found.id, found.share) == ("eval-0", 1.0)


def test_a_problem_inside_a_longer_text_is_found_with_its_share() -> None:
    found = index(SHORT, LONG).find(f"Read carefully. {LONG} Give the sum of its digits.", 0.5)
    assert found is not None
    assert (found.id, found.share) == ("eval-1", 1.0)


@pytest.mark.parametrize(("words_left", "is_found"), [(30, True), (20, False)])
def test_a_part_counts_from_the_stated_share_on(words_left: int, is_found: bool) -> None:
    # 40 words make 33 runs of eight; 30 words hold 23 of them (70%), 20 hold 13 (39%)
    words = LONG.split()
    assert len(words) == 40
    found = index(LONG).find(" ".join(words[:words_left]), 0.5)
    assert (found is not None) is is_found
    assert found is None or found.share == pytest.approx(23 / 33)


def test_a_short_problem_must_be_there_whole() -> None:
    evaluation = index(SHORT)
    assert evaluation.find(SHORT.replace("LEVER", "RADAR"), 0.5) is None
    assert evaluation.find(f"Please. {SHORT} Then halve it.", 0.5) is not None


def test_a_text_of_a_few_words_only_counts_where_it_is_equal() -> None:
    assert index("Find x.").find("Find x. Then find y.", 0.1) is None


def test_copies_of_an_evaluation_problem_count_once() -> None:
    assert index(*[LONG] * 32, SHORT).ids == ("eval-0", "eval-32")
