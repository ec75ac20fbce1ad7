"""Puts a problem's text right where exactly one reading is possible, and says where it is not.

A text that went through a program's string escapes has lost the backslash of some TeX commands: `\\frac` became a form
feed and `rac`. A text that was copied out of a PDF may hold the code of a ligature in its font instead of its letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dapo.data.findings import Kind
from dapo.data.tex_words import COMMANDS, LIGATURE_WORDS

_WORDS = frozenset({"an", "o", "op", "angle", "ar"})  # after a tab or line end, these are English and not \tan, \to …
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\v": "v", "\f": "f", "\r": "r"}
_AMBIGUOUS = frozenset("\t\r")
_LOST_NEWLINE = re.compile(r"\n(abla|eq|otin|leq|geq)(?![A-Za-z])")
_LIGATURES = {"\x0b": "ff", "\x0c": "fi", "\x0d": "fl", "\x0e": "ffi", "\x0f": "ffl"}  # of TeX's OT1 fonts
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
_INVISIBLE = re.compile("[\u200b\u2060\ufeff]+")
_CP1252 = {chr(0x80 + byte): bytes([0x80 + byte]).decode("cp1252") for byte in (5, 17, 18, 19, 20, 22, 23)}
_SIGN_BEFORE = re.compile(r"(?:\\[A-Za-z]+|\\.|[(\[{|])[\s$]*\Z")
_SIGN_AFTER = re.compile(r" *[\\(\[{|]")
_DOUBLED = re.compile(r"(?<!\\)\\\\([A-Za-z]{2,})(?![A-Za-z])")
_GLUED = re.compile(
    r"(?<=[^\s(])(?=(?:The (?:original |final )?answer (?:is|can be|form)|Please (?:provide|give|express)"
    r"|Provide the|Express your answer|The original answer)\b)"
)

_INSTRUCTIONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*让我们一步一步地思考。请以“Answer: \\boxed\{<final_answer>\}”的格式输出最终答案。"
        r"如果是选择题，请按顺序输出正确的选项，不带任何标点或空格。对于其他类型的问题，请只输出最终答案的数值。\s*\Z",
        r"\s*(?:Please |Let's )?(?:reason|think) step by step,? and (?:put|output) (?:your|the) final answer"
        r" (?:within|in|after) (?:\$?\\+boxed\{\}\$?|\"####\")\.?\s*\Z",
        r"\s*(?:Please )?[Pp]ut your (?:final )?answer (?:within|in) \$?\\+boxed\{\}\$?\.?\s*\Z",
        r"\s*请逐步推理，?并?(?:把|将)你?的?最终答案放(?:在|到|置于) ?\\boxed\{\} ?(?:中|内|里)?。?\s*\Z",
    )
)
"""Whole sentences at the end of a problem that prescribe the form of the answer and say nothing else."""

_OWN_FORM = re.compile(
    r"\bAnswer:|\\boxed\{\s*(?:<[a-z_ ]+>)?\s*\}|(?:within|inside|in) \$?\\+boxed\b|final answer after"
)
_TWO_FORMS = re.compile(
    r"(?:as an? (?:common|reduced|simplified|improper) fraction|as a mixed number|as a decimal|simplest radical form)"
    r".*?"
    r"(?:[Pp]lease (?:provide|give|find)|Provide|请(?:给出|提供))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something about a text; `mended` says that the mended text no longer has it."""

    kind: Kind
    detail: str
    mended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A text put right, and what was found on the way."""

    text: str
    notes: tuple[Note, ...]


def mend_text(text: str, keep: frozenset[Kind] = frozenset()) -> Mended:
    """Mend control characters, doubled backslashes, glued sentences and instructions about the answer's form.

    Kinds in `keep` are found and left as they are. What one step does may show another fault, so the steps go round
    until nothing changes: mended text stays as it is.
    """
    notes: list[Note] = []
    while True:
        before = text
        left: list[Note] = []
        for kind, step in _STEPS:
            after, found = step(text)
            if kind in keep:
                left += [replace(note, mended=False) for note in found]
                continue
            text = after
            notes += [note for note in found if note.mended]
            left += [note for note in found if not note.mended]
        if text == before:
            return Mended(text=text, notes=(*notes, *left))


def _remainders(letter: str, ambiguous: bool) -> str:
    rests = {command[1:] for command in COMMANDS if command[0] == letter and len(command) > 1}
    if ambiguous:
        rests -= _WORDS
    return "|".join(sorted(rests, key=lambda rest: (-len(rest), rest)))


_LOST_BACKSLASH = re.compile(
    "|".join(
        f"{re.escape(control)}(?:{_remainders(letter, control in _AMBIGUOUS)})(?![A-Za-z])"
        for control, letter in _ESCAPES.items()
    )
)


def _mend_controls(text: str) -> tuple[str, list[Note]]:
    if not (_CONTROL.search(text) or "\t" in text or _LOST_NEWLINE.search(text) or _INVISIBLE.search(text)):
        return text, _replacement_note(text)
    did: dict[str, int] = {}

    def count(what: str) -> None:
        did[what] = did.get(what, 0) + 1

    def restore(match: re.Match[str]) -> str:
        command = f"\\{_ESCAPES[match[0][0]]}{match[0][1:]}"
        count(f"{_name(match[0][0])} before {match[0][1:]!r} is {command}")
        return command

    def restore_newline(match: re.Match[str]) -> str:
        count(f"a line end before {match[1]!r} is \\n{match[1]}")
        return f"\\n{match[1]}"

    mended = _LOST_BACKSLASH.sub(restore, text).replace("\r\n", "\n").replace("\r", "\n")
    mended = _LOST_NEWLINE.sub(restore_newline, mended)
    lost: list[str] = []

    def settle(match: re.Match[str]) -> str:
        settled = _settle(match)
        if settled is None:
            lost.append(f"{_name(match[0][0])} in {_around(match)}")
            return match[0]
        count(f"{_name(match[0][0])} {f'is {settled!r}' if settled else 'removed'}")
        return settled

    mended = _INVISIBLE.sub("", _CONTROL.sub(settle, mended))
    if "\t" in mended:
        count("tab is a space")
        mended = mended.replace("\t", " ")
    notes = [
        Note(kind=Kind.CONTROL_CHARACTER, detail=f"{what} ({times} times)", mended=True) for what, times in did.items()
    ]
    if not notes and not lost:
        notes = [Note(kind=Kind.CONTROL_CHARACTER, detail="line ends or invisible characters", mended=True)]
    notes += [Note(kind=Kind.CONTROL_CHARACTER, detail=f"a sign may be lost: {where}") for where in lost]
    return mended, notes + _replacement_note(text)


def _replacement_note(text: str) -> list[Note]:
    lost = text.count("\ufffd")
    return [Note(kind=Kind.CONTROL_CHARACTER, detail=f"{lost} characters are lost (U+FFFD)")] if lost else []


def _settle(match: re.Match[str]) -> str | None:
    """Return what a run of control characters stands for ("" for nothing), or None where that would be a guess."""
    text, run = match.string, match[0]
    before, after = text[max(0, match.start() - 40) : match.start()], text[match.end() : match.end() + 40]
    ligature = _LIGATURES.get(run)
    if ligature is not None:
        left = re.search(r"[A-Za-z]*\Z", before)
        right = re.match(r"[A-Za-z]*", after)
        fragment = (left[0] if left else "", right[0] if right else "")
        if fragment[0].endswith(ligature) or fragment[1].startswith(ligature):
            return ""
        if len("".join(fragment)) > 1 and ligature.join(fragment).casefold() in LIGATURE_WORDS:
            return ligature
    if set(run) <= {"\x0b", "\x0c"} and (len(run) > 1 or not after[:1].isalpha() or _in_formula(text, match.start())):
        return ""
    if _SIGN_BEFORE.search(before) or _SIGN_AFTER.match(after):
        return ""  # the sign that the code stands for is written beside it
    return _CP1252.get(run)


def _in_formula(text: str, place: int) -> bool:
    return text.count("$", 0, place) % 2 == 1


def _name(control: str) -> str:
    names = {"\x07": "a bell", "\x08": "a backspace", "\t": "a tab", "\x0b": "a vertical tab", "\x0c": "a form feed"}
    return names.get(control, f"U+{ord(control):04X}")


def _around(match: re.Match[str]) -> str:
    return ascii(match.string[max(0, match.start() - 10) : match.end() + 10])


def _mend_doubled(text: str) -> tuple[str, list[Note]]:
    """Outside of arrays and other environments, two backslashes before a command cannot be a line break."""
    known = {match[1] for match in _DOUBLED.finditer(text) if match[1] in COMMANDS}
    if not known or "\\begin{" in text:
        return text, []
    mended = _DOUBLED.sub(lambda match: f"\\{match[1]}" if match[1] in COMMANDS else match[0], text)
    shown = ", ".join(f"\\\\{command}" for command in sorted(known))
    return mended, [Note(kind=Kind.DOUBLED_BACKSLASH, detail=f"two backslashes in {shown}", mended=True)]


def _mend_glued(text: str) -> tuple[str, list[Note]]:
    place = _GLUED.search(text)
    if place is None:
        return text, []
    shown = ascii(text[max(0, place.start() - 8) : place.start() + 12])
    return _GLUED.sub(" ", text), [Note(kind=Kind.GLUED_SENTENCE, detail=f"no space in {shown}", mended=True)]


def _mend_instruction(text: str) -> tuple[str, list[Note]]:
    notes: list[Note] = []
    for pattern in _INSTRUCTIONS:
        match = pattern.search(text)
        if match is not None and match.start() > 0:
            shown = ascii(match[0].strip()[:60]) if not match[0].strip().isascii() else repr(match[0].strip()[:60])
            text = text[: match.start()].rstrip()
            notes.append(Note(kind=Kind.CONFLICTING_INSTRUCTION, detail=f"ends on {shown}", mended=True))
    left = _first(_OWN_FORM.finditer(text))
    if left is not None:
        notes.append(Note(kind=Kind.CONFLICTING_INSTRUCTION, detail=f"speaks of the answer's form: {_around(left)}"))
    elif _TWO_FORMS.search(text):
        detail = "asks for a fraction, decimal or root and then for an integer made of it"
        notes.append(Note(kind=Kind.CONFLICTING_INSTRUCTION, detail=detail))
    return text, notes


def _first(matches: Iterable[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(matches), None)


_STEPS: tuple[tuple[Kind, Callable[[str], tuple[str, list[Note]]]], ...] = (
    (Kind.CONTROL_CHARACTER, _mend_controls),
    (Kind.DOUBLED_BACKSLASH, _mend_doubled),
    (Kind.GLUED_SENTENCE, _mend_glued),
    (Kind.CONFLICTING_INSTRUCTION, _mend_instruction),
)
