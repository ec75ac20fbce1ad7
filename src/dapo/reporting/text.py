"""Text that a model or a data file wrote, made safe to show on a page, in a picture or on a terminal."""

from __future__ import annotations

import html
import re

# Not allowed in XML or HTML, or able to reorder or erase what stands around them: control characters except
# newline and tab, lone surrogates, marks that override the direction of text, and two non-characters.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)  # the Unicode block of control pictures
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def visible(text: str) -> str:
    """Return `text` with every control character, lone surrogate and direction override written out visibly.

    >>> visible("a\\x00b\\ud800")
    'a␀b⟨U+D800⟩'
    """
    return _INVISIBLE.sub(_picture, text)


def escape(text: str) -> str:
    """Return `text` for use in an element or a quoted attribute of HTML or XML."""
    return html.escape(visible(text), quote=True)


def shorten(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it has more than `limit` characters, and say how many are gone.

    Two thirds of what stays are from the beginning, the rest from the end, where an answer usually stands.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - limit
    ending = text[-tail:] if tail else ""
    return f"{text[:head]}\n[… {left_out:,} of {len(text):,} characters left out …]\n{ending}"


def duration(seconds: float) -> str:
    """Return a length of time in words of at most two units, e.g. `41 s`, `6 min`, `1 h 20 min`, `2 d 3 h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"
