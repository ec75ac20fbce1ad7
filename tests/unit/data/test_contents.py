from __future__ import annotations

import pytest

from dapo.data.config import CheckConfig
from dapo.data.contents import look_at_answer, look_at_text
from dapo.data.findings import Kind
from dapo.data.records import Answer, Origin
from tests.unit.data.helpers import QUESTION

OPTIONS = CheckConfig()


def kinds_of_text(text: str) -> list[Kind]:
    return [note.kind for note in look_at_text(text, OPTIONS)]


def test_an_ordinary_problem_has_nothing() -> None:
    assert kinds_of_text(QUESTION) == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", [Kind.EMPTY_PROMPT]),
        (" \n ", [Kind.EMPTY_PROMPT]),
        ("x" * 39, [Kind.SHORT_PROMPT]),
        ("x" * 40, []),
        ("x" * 2500, []),
        ("x" * 2501, [Kind.LONG_PROMPT]),
        (f"{QUESTION}\n\n![A drawing](https://x.test/a.png)", [Kind.MISSING_FIGURE]),
        (f"{QUESTION} [img]https://x.test/a.png[/img]", [Kind.MISSING_FIGURE]),
        (f"{QUESTION} See http://x.test/practice.", [Kind.MISSING_FIGURE]),
        (
            f"{QUESTION} \\textbf{{(A)}}\\ 1 \\quad \\textbf{{(B)}}\\ 2 \\quad \\textbf{{(C)}}\\ 3",
            [Kind.MULTIPLE_CHOICE],
        ),
        (f"{QUESTION}\n**(A) 1**  **(B) 2**  **(C) 3**", [Kind.MULTIPLE_CHOICE]),
        (f"{QUESTION} $(A)\\ 1\\qquad(B)\\ 2\\qquad(C)\\ 3$", [Kind.MULTIPLE_CHOICE]),
        (f"{QUESTION} [asy]dot(A); draw((A)--(B)); label((C));[/asy]", []),
        (f"{QUESTION}\nA. one B. two C. three", [Kind.MULTIPLE_CHOICE]),
        (f"{QUESTION} Let $P(A)$ be the power set of $A$ and $P(B)$ that of $B$, not $P(C)$.", [Kind.POSSIBLE_CHOICE]),
        ("一个面包师烤了十二盘面包，每盘九个，除了八个以外全部卖掉了。" * 2, [Kind.OTHER_SCRIPT]),
    ],
)
def test_what_a_text_shows(text: str, kinds: list[Kind]) -> None:
    assert kinds_of_text(text) == kinds


@pytest.mark.parametrize(
    ("text", "origin", "left", "kinds"),
    [
        ("42", Origin.TEXT, "42", []),
        ("042", Origin.TEXT, "042", []),
        ("-7", Origin.INTEGER, "-7", []),
        ("", Origin.MISSING, None, [Kind.MISSING_ANSWER]),
        ("1,234", Origin.TEXT, "1234", [Kind.ANSWER_FORM]),
        ("5.0", Origin.TEXT, "5", [Kind.ANSWER_FORM]),
        ("-1", Origin.TEXT, "-1", [Kind.SENTINEL_ANSWER]),
        ("\\frac{1}{2}", Origin.TEXT, "\\frac{1}{2}", [Kind.NOT_AN_INTEGER]),
        ("3.5", Origin.TEXT, "3.5", [Kind.NOT_AN_INTEGER]),
        ("080 or 081", Origin.TEXT, "080 or 081", [Kind.SEVERAL_ANSWERS]),
        ("['34']", Origin.OTHER, "['34']", [Kind.NOT_AN_INTEGER]),
        ("5.0", Origin.FLOAT, "5", [Kind.STORED_AS_FLOAT]),
        ("2.5", Origin.FLOAT, "2.5", [Kind.NOT_AN_INTEGER]),
        ("2e+22", Origin.FLOAT, "2e+22", [Kind.STORED_AS_FLOAT]),
        ("nan", Origin.FLOAT, None, [Kind.MISSING_ANSWER]),
        ("105263157894736848", Origin.TEXT, "105263157894736848", [Kind.DAMAGED_BY_FLOAT, Kind.BIG_ANSWER]),
        ("105263157894736842", Origin.TEXT, "105263157894736842", [Kind.BIG_ANSWER]),
        ("20922789888256", Origin.INTEGER, "20922789888256", [Kind.BIG_ANSWER]),
    ],
)
def test_what_an_answer_shows_where_integers_are_wanted(
    text: str, origin: Origin, left: str | None, kinds: list[Kind]
) -> None:
    view = look_at_answer(Answer(text=text, origin=origin), integers=True)
    assert (view.text, [note.kind for note in view.notes]) == (left, kinds)


@pytest.mark.parametrize("text", ["\\frac{1}{2}", "1,234", "080 or 081", "x + 1"])
def test_other_answers_are_left_alone_where_they_are_allowed(text: str) -> None:
    view = look_at_answer(Answer(text=text, origin=Origin.TEXT), integers=False)
    assert (view.text, view.notes) == (text, ())


def test_what_may_be_mended_is_what_has_one_reading() -> None:
    mended = {
        text: [note.mended for note in look_at_answer(Answer(text=text, origin=Origin.FLOAT), integers=True).notes]
        for text in ("5.0", "1e3", "2e+22", "2.5")
    }
    assert mended == {"5.0": [True], "1e3": [True], "2e+22": [False], "2.5": [False]}
