from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.reporting.text import duration, escape, shorten, visible


def test_control_characters_and_lone_surrogates_become_visible() -> None:
    assert visible("a\x00\x1b[31m\x7f\x85\ud800\u202e\uffff") == "a␀␛[31m␡⟨U+0085⟩⟨U+D800⟩⟨U+202E⟩⟨U+FFFF⟩"


def test_newline_tab_and_ordinary_letters_stay() -> None:
    assert visible("x\n\ty é 中 😀") == "x\n\ty é 中 😀"


def test_markup_and_both_kinds_of_quotes_are_escaped() -> None:
    assert escape("<script>\"&'") == "&lt;script&gt;&quot;&amp;&#x27;"


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_survives_as_xml_and_as_utf8(text: str) -> None:
    element = f'<p title="{escape(text)}">{escape(text)}</p>'
    parsed = ElementTree.fromstring(element.encode("utf-8"))
    assert (parsed.text or "") == visible(text)


def test_a_short_text_is_not_cut() -> None:
    assert shorten("123456", 6) == "123456"


def test_a_long_text_keeps_its_two_ends_and_states_how_long_it_was() -> None:
    assert shorten("a" * 4000 + "b" * 2000, 9) == "aaaaaa\n[… 5,991 of 6,000 characters left out …]\nbbb"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 s"),
        (1.25, "1.2 s"),
        (41.3, "41 s"),
        (99.4, "99 s"),
        (360.0, "6 min"),
        (3599.0, "1 h 0 min"),
        (4800.0, "1 h 20 min"),
        (183_600.0, "2 d 3 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words
