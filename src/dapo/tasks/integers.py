"""Reads the integer that a reply ends on, exactly: digits stay text and never pass through a float.

The last number of the reply decides. If it is no integer (`3.5`, `12/5`, `2^10`, `7 + 4` without a result) the reply
has no integer answer: an earlier number is not what it ends on, and would be paid by chance.
"""

from __future__ import annotations

import re
import unicodedata

_MINUS_SIGNS = (
    "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"  # hyphens, figure and en dash, minus, small and full-width minus
)
_THIN_SPACES = "\u00a0\u2009\u202f"  # no-break and thin spaces, used between thousands

_PLAIN_SIGNS = str.maketrans(
    dict.fromkeys(_MINUS_SIGNS, "-")
    | dict.fromkeys("\u00b7\u00d7\u22c5\u2217\u2219", "*")
    | dict.fromkeys("\u00f7\u2044\u2215", "/")
    | {"\uff0c": ",", "\uff0e": ".", "\uff1d": "="}
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]{0,400})\}\s*\{([^{}]{0,400})\}")
_LATEX_TIMES = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])")
_LATEX_DIVIDE = re.compile(r"\\div(?![A-Za-z])")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")
_LATEX_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!;:] ?)(?=\d{3}(?!\d))")
_TIMES_LETTER = re.compile(r"(?<=\d)\s*[xX]\s*(?=\d)")
_BOLD = re.compile(r"(?<![\w)*])(\*\*|__)(?=[^\s*_])([^*_\n]+)(?<!\s)\1(?![\w*])")
_SPOKEN = re.compile(r"\b(minus|negative|plus|times|divided\s+by)\s+(?=\$?\d)", re.IGNORECASE)
_SPOKEN_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "times": "*"}

# A run of digits with what may stand between digits of one number. It reads the same backwards, so that the last
# one can be found by searching the reversed text.
_NUMBER = re.compile(rf"[0-9]+(?:[.,:{_THIN_SPACES}][0-9]+)*")
_INTEGER = re.compile(rf"(?:[0-9]+|[0-9]{{1,3}}(?:([,{_THIN_SPACES}])[0-9]{{3}})(?:\1[0-9]{{3}})*)(?:\.0+)?")
_STATED_INTEGER = re.compile(rf"[+-]?(?:[0-9]+|[0-9]{{1,3}}(?:([,{_THIN_SPACES}])[0-9]{{3}})(?:\1[0-9]{{3}})*)")

_WINDOW = 64  # how far around a number its signs and operators are looked for
_OPENING = " \t\r\n$({[\\"  # may stand between a sign and its digits
_OPERATORS = "+-*/^"
_ROOT = re.compile(r"(?:\u221a|\\sqrt\s*(?:\[[^\]]*\])?)[\s({]*$")
_NAME_BEFORE = re.compile(r"(?<![A-Za-z])[A-Za-z]$")
_EXPONENT_AFTER = re.compile(r"[eE][+-]?[0-9]|[)\]}\s]*(?:\^|\*\*)\s*[\w({\\-]")


def canonical_integer(text: str) -> str | None:
    """Return the digits of a text that is an integer and nothing else, or None.

    Thousands separators, a sign and leading zeros are read: two texts stand for the same integer exactly if their
    canonical forms are equal. No int is made of them, so a million digits cost linear time and meet no limit.

    >>> canonical_integer(" 1,234 "), canonical_integer("-007"), canonical_integer("5.0")
    ('1234', '-7', None)
    """
    stated = _ascii_digits(text.strip()).translate(_PLAIN_SIGNS)
    if not _STATED_INTEGER.fullmatch(stated):
        return None
    return _canonical(stated.lstrip("+-"), negative=stated.startswith("-"))


def final_integer(text: str) -> str | None:
    """Return the integer that the reply ends on in canonical digits, e.g. `"1234"` or `"-7"`, or None.

    Read are thousands separators (`1,234`, `1{,}234`), Unicode digits and minus signs, leading zeros, a trailing full
    stop, bold, `$60$`, `\\boxed{60}` and a fraction of zeros (`60.0`). Digits inside a word or an exponent on one
    (`H2`, `cm^2`) are passed over. A last number that is no integer, or an operand (`12/5`, `7 - 4`), gives None.
    """
    plain = _plain(text)
    for found in _NUMBER.finditer(plain[::-1]):
        start, end = len(plain) - found.end(), len(plain) - found.start()
        before = plain[max(0, start - _WINDOW) : start]
        if _is_part_of_word(before):
            continue
        after = plain[end : end + _WINDOW]
        digits = plain[start:end]
        sign = _sign(before)
        if sign is None or not _INTEGER.fullmatch(digits) or _continues(before, after):
            return None
        return _canonical(digits.partition(".")[0], negative=sign == "-")
    return None


def _plain(text: str) -> str:
    """Write operators, digits and markup in one way. Every step takes linear time."""
    plain = _ascii_digits(text).translate(_PLAIN_SIGNS)
    if "\\" in plain or "{" in plain:
        plain = _FRACTION.sub(r"(\1)/(\2)", plain)
        plain = _LATEX_TIMES.sub("*", plain)
        plain = _LATEX_DIVIDE.sub("/", plain)
        plain = _DEGREES.sub("", plain)
        plain = _LATEX_THOUSANDS.sub(",", plain)
    plain = _BOLD.sub(r"\2", plain)
    plain = _SPOKEN.sub(lambda word: _SPOKEN_SIGNS.get(word[1].lower(), "/"), plain)
    return _TIMES_LETTER.sub("*", plain)


def _ascii_digits(text: str) -> str:
    """Replace decimal digits of other scripts, full-width ones among them; superscripts are no decimal digits."""
    if text.isascii():
        return text
    return re.sub(r"(?![0-9])\d", lambda digit: str(unicodedata.decimal(digit[0])), text)


def _is_part_of_word(before: str) -> bool:
    """Whether digits after `before` belong to a name: `x2`, `x_{2}`, or are the exponent of one: `cm^2`."""
    if not before:
        return False
    last = before[-1]
    if last == "_" or (last.isascii() and last.isalpha()):
        return True
    head = before.rstrip("{(")
    if head.endswith("_"):
        return True
    base = head[:-1].rstrip() if head.endswith("^") else ""
    return base.endswith("}") or (base[-1:].isalpha() and base[-1:].isascii())


def _sign(before: str) -> str | None:
    """Return "" or "-" for a number that stands alone after `before`, or None for an operand of an expression."""
    if _ROOT.search(before):
        return None
    head = before.rstrip(_OPENING)
    operator = head[-1:]
    if operator == "\u00b1":
        return None
    if operator not in _OPERATORS or not operator:
        return ""
    left = head.rstrip(_OPERATORS)
    operand = left.rstrip(" \t")  # an operand on the line before is none: there the operator is a bullet
    if operand[-1:].isdigit() or operand[-1:] in (")", "]", "}") or _NAME_BEFORE.search(operand):
        return None
    if operator != "-":
        return None if operator in "/^" else ""
    if operand[-1:].isalpha() and left == operand:
        return ""  # a hyphen inside a word: answer-60
    touches = not before[len(head) :].strip("$({[\\")
    if touches or operand[-1:] in ("=", ":", "(", "$", "\uff1a"):
        return "-"
    return ""  # a bullet or a dash between words


def _continues(before: str, after: str) -> bool:
    """Whether the digits are only a piece of a number: `.5`, `1e5`, `10^3`, `3½`."""
    if before.endswith(".") and not before.endswith("..") and not before[-2:-1].isalpha():
        return True
    if after and unicodedata.category(after[0]) == "No":
        return True
    return _EXPONENT_AFTER.match(after) is not None


def _canonical(digits: str, *, negative: bool) -> str:
    for separator in ",", *_THIN_SPACES:
        digits = digits.replace(separator, "")
    digits = digits.lstrip("0") or "0"
    return f"-{digits}" if negative and digits != "0" else digits
