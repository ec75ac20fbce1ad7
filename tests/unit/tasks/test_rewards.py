from __future__ import annotations

import pytest

from dapo.tasks.rewards import ENGINE_FAILED, RULES, exact, integer, judge, rule_score
from dapo.types import Finish, Score
from tests.unit.tasks.replies import reply


def test_the_rule_is_plus_one_and_minus_one() -> None:
    assert rule_score(True, "60") == Score(correct=True, reward=1.0, extracted="60")
    assert rule_score(False, None) == Score(correct=False, reward=-1.0)
    assert rule_score(False, "6", error="x") == Score(correct=False, reward=-1.0, extracted="6", error="x")


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("It is 060.", "60", (True, "60")),
        ("33", "033", (True, "33")),
        ("1,234", "1234", (True, "1234")),
        ("59", "60", (False, "59")),
        ("-60", "60", (False, "-60")),
        ("5.5", "5", (False, None)),
        ("", "60", (False, None)),
        ("no number", "no number", (False, None)),
    ],
)
def test_integer(text: str, gold: str, expected: tuple[bool, str | None]) -> None:
    assert integer(text, gold) == expected


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        (" Paris\n", "Paris", (True, "Paris")),
        ("Paris", " Paris ", (True, "Paris")),
        ("paris", "Paris", (False, "paris")),
        ("It is Paris", "Paris", (False, "It is Paris")),
        ("", "", (False, None)),
        ("  ", "x", (False, None)),
    ],
)
def test_exact(text: str, gold: str, expected: tuple[bool, str | None]) -> None:
    assert exact(text, gold) == expected


def test_every_match_that_a_recipe_may_name_has_its_rule() -> None:
    assert dict(RULES) == {"integer": integer, "exact": exact}


def test_a_truncated_reply_is_wrong_whatever_it_holds() -> None:
    assert judge(reply("60", Finish.STOP), "60", integer) == Score(correct=True, reward=1.0, extracted="60")
    assert judge(reply("60", Finish.LENGTH), "60", integer) == Score(correct=False, reward=-1.0)
    assert judge(reply("60", Finish.LENGTH), "60", exact) == Score(correct=False, reward=-1.0)


def test_a_reply_that_the_engine_could_not_finish_is_wrong_and_says_so() -> None:
    assert judge(reply("60", Finish.ERROR), "60", integer) == Score(correct=False, reward=-1.0, error=ENGINE_FAILED)
