"""What can be seen in one row alone: in its text and in its answer."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from dapo.data.config import CheckConfig
from dapo.data.findings import Kind
from dapo.data.integers import (
    exact_integer_of_float,
    float_damage,
    is_above_exact,
    mended_integer,
    names_several,
    plain_integer,
)
from dapo.data.mending import Note
from dapo.data.normal import without_figures
from dapo.data.records import Answer, Origin

_PICTURE = re.compile(r"!\[|\[img\]|<img\b|\\includegraphics|https?://", re.IGNORECASE)
_OPTION = (
    r"(?:(?:(?<![A-Za-z0-9}}])|(?<=quad))\(\s*{0}\s*\)|\\textbf\{{\s*\(?{0}(?![A-Za-z])|\*\*\(?{0}\)?(?![A-Za-z]))"
)
_OPTIONS = re.compile(".{1,160}?".join(_OPTION.format(letter) for letter in "ABC"), re.DOTALL)
_LETTERED = re.compile(r"(?:^|\n|\s)A[.:、．]\s.{1,160}?\sB[.:、．]\s.{1,160}?\sC[.:、．]\s", re.DOTALL)
_BRACKETED_A = re.compile(r"\(A\)")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_BIG_DIGITS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """An answer as it should be, and what was found. `text` is None where no answer is left."""

    text: str | None
    notes: tuple[Note, ...]


def look_at_text(body: str, config: CheckConfig) -> list[Note]:
    """Find what is odd about a problem's text, after it was mended and without its wrapper."""
    length = len(body.strip())
    if length == 0:
        return [Note(kind=Kind.EMPTY_PROMPT, detail="no text")]
    notes = []
    if length < config.short_prompt:
        notes.append(Note(kind=Kind.SHORT_PROMPT, detail=f"{length} characters"))
    if length > config.long_prompt:
        notes.append(Note(kind=Kind.LONG_PROMPT, detail=f"{length} characters"))
    picture = _PICTURE.search(body)
    if picture is not None:
        notes.append(Note(kind=Kind.MISSING_FIGURE, detail=f"has {picture[0]!r}"))
    words = without_figures(body)
    if _OPTIONS.search(words) or _LETTERED.search(words):
        notes.append(Note(kind=Kind.MULTIPLE_CHOICE, detail="has options A, B and C"))
    elif _BRACKETED_A.search(words):
        notes.append(Note(kind=Kind.POSSIBLE_CHOICE, detail="has (A) in its text"))
    script = _EAST_ASIAN.search(body)
    if script is not None:
        name = unicodedata.name(script[0], "?").split()[0]
        notes.append(Note(kind=Kind.OTHER_SCRIPT, detail=f"has {name} characters"))
    return notes


def look_at_answer(answer: Answer, *, integers: bool) -> AnswerView:
    """Find what is wrong with an answer; `integers` says that it should be one. Digits never pass through a float."""
    if answer.origin is Origin.MISSING or not answer.text:
        return AnswerView(text=None, notes=(Note(kind=Kind.MISSING_ANSWER, detail="no answer"),))
    if answer.origin is Origin.FLOAT:
        return _look_at_float(answer.text, integers=integers)
    digits = plain_integer(answer.text)
    if digits is not None:
        return AnswerView(text=answer.text, notes=tuple(_look_at_integer(digits)))
    if not integers:
        return AnswerView(text=answer.text, notes=())
    digits = mended_integer(answer.text)
    if digits is not None:
        dress = Note(kind=Kind.ANSWER_FORM, detail=f"{_shown(answer.text)} is {digits}", mended=True)
        return AnswerView(text=digits, notes=(dress, *_look_at_integer(digits)))
    kind = Kind.SEVERAL_ANSWERS if names_several(answer.text) else Kind.NOT_AN_INTEGER
    return AnswerView(text=answer.text, notes=(Note(kind=kind, detail=_shown(answer.text)),))


def _look_at_float(text: str, *, integers: bool) -> AnswerView:
    digits = exact_integer_of_float(text)
    if digits is not None:
        note = Note(kind=Kind.STORED_AS_FLOAT, detail=f"the float {text} is {digits}", mended=True)
        return AnswerView(text=digits, notes=(note,))
    if text.casefold() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return AnswerView(text=None, notes=(Note(kind=Kind.MISSING_ANSWER, detail=f"the float {text}"),))
    kind = Kind.NOT_AN_INTEGER if integers and _is_small(text) else Kind.STORED_AS_FLOAT
    return AnswerView(text=text, notes=(Note(kind=kind, detail=f"the float {text} may have lost digits"),))


def _is_small(text: str) -> bool:
    return abs(float(text)) <= 2**53  # only to choose the words; the digits stay as they are


def _look_at_integer(digits: str) -> list[Note]:
    notes = []
    damage = float_damage(digits)
    if damage is not None:
        detail = f"{digits} is what a float holds; a right answer of this size would be so in 1 of {damage.one_in}"
        notes.append(Note(kind=Kind.DAMAGED_BY_FLOAT, detail=detail))
    if is_above_exact(digits) or len(digits.lstrip("-")) >= _BIG_DIGITS:
        notes.append(Note(kind=Kind.BIG_ANSWER, detail=f"{len(digits.lstrip('-'))} digits"))
    if digits == "-1":
        notes.append(Note(kind=Kind.SENTINEL_ANSWER, detail="the answer is -1"))
    return notes


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "...")
