"""Reads `\\boxed{…}`: balanced braces, escapes, boxes without braces, boxes that are cut off."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING = re.compile(r"\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WITHOUT_BRACES = re.compile(
    r"\s*(?:\((?P<round>[^()\n]{1,200})\)|\[(?P<square>[^\[\]\n]{1,200})\]"
    r"|(?P<bare>-?\s?\d[\d,.]*|\\d?frac(?:\{[^{}\n]{1,100}\}){2}|\\[A-Za-z]{1,20}(?:\{[^{}\n]{0,100}\})?))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box from `start` to `end` of its text; one that is not `closed` runs to the end of the text."""

    start: int
    end: int
    content: str
    closed: bool


def read_box(text: str, start: int, name_end: int) -> Box | None:
    """Read the box whose name stands at `start:name_end`; None where the name has no content at all."""
    opening = _OPENING.match(text, name_end)
    if opening is None:
        bare = _WITHOUT_BRACES.match(text, name_end)
        if bare is None:
            return None
        content = bare[bare.lastgroup or 0]
        return Box(start=start, end=bare.end(), content=content, closed=True)
    end = closing_brace(text, opening.end())
    if end is None:
        return Box(start=start, end=len(text), content=text[opening.end() :], closed=False)
    return Box(start=start, end=end + 1, content=text[opening.end() : end], closed=True)


def closing_brace(text: str, start: int) -> int | None:
    """The position of the brace that closes the group whose inside begins at `start`."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None
