"""Lines and displayed formulas of a response."""

from __future__ import annotations

import re

MAX_LINE = 2000
"""Characters of a line that are read, unless it is one long word such as a number of many digits."""

DISPLAYS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"), ("```", "```"))
"""What opens and closes a displayed formula or a block of code."""

_BULLET = re.compile(r"[-*•]\s+(?=\S)")
_NOT_BLANK = re.compile(r"\S")


def line_from(body: str, start: int) -> str:
    """The rest of the line; a long one is cut unless it is one long word, such as a number of many digits."""
    end = body.find("\n", start)
    line = body[start : end if end >= 0 else len(body)]
    if len(line) > MAX_LINE:
        line = line.strip()
        head = line[:MAX_LINE]
        if " " in head.rstrip(". "):
            return head
    return line


def with_display(body: str, start: int) -> str:
    """The line at `start`, and where it opens a displayed formula or code block, all of that."""
    line = line_from(body, start).rstrip()
    for opening, closing in DISPLAYS:
        if not line.startswith(opening):
            continue
        if closing in line[len(opening) :] or (opening == "$" and line != "$"):
            return line
        end = body.find(closing, start + max(len(opening), len(line) if opening == "```" else 0), start + MAX_LINE)
        return body[start : end + len(closing)] if end >= 0 else line
    return line


def next_text(body: str, start: int) -> int | None:
    """The position of the next sign that is not blank."""
    found = _NOT_BLANK.search(body, start)
    return found.start() if found else None


def without_bullet(body: str, start: int) -> int:
    """Below an `Answer:` a dash with a space behind it begins a list item; a minus stands at its number."""
    bullet = _BULLET.match(body, start)
    return start if bullet is None else bullet.end()
