"""Integers as text, digit for digit: nothing here turns a label into a float to read it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

LARGEST_EXACT = 2**53
"""Every integer up to this size survives a 64-bit float; above it most do not."""

_INTEGER = re.compile(r"([+-]?)0*([0-9]+)")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
_ZERO_FRACTION = re.compile(r"([+-]?[0-9]+)\.0*")
_BOXED = re.compile(r"\\(?:boxed|fbox)\{([^{}]*)\}")
_SEVERAL = re.compile(r"[+-]?[0-9]+\s*(?:or|and|,|;)\s*[+-]?[0-9]+\b.*", re.IGNORECASE | re.DOTALL)
_MINUS_SIGNS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_FLOAT_DIGITS = 309  # no 64-bit float has more digits before its point


def plain_integer(text: str) -> str | None:
    """Return the canonical digits of text that is an integer and nothing else, or None.

    >>> plain_integer("033"), plain_integer("-0"), plain_integer("3.0")
    ('33', '0', None)
    """
    match = _INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    sign, digits = match.groups()
    return f"-{digits}" if sign == "-" and digits != "0" else digits


def mended_integer(text: str) -> str | None:
    """Return the integer that text in one of the usual dresses stands for, or None where that would be a guess.

    Dresses: thousands separators in groups of three, a zero fraction, dollar signs or a box around it, a plus
    sign, a typographic minus, full-width digits, a full stop at the end.

    >>> mended_integer("$1,234$"), mended_integer("5.0"), mended_integer("080 or 081")
    ('1234', '5', None)
    """
    bare = unicodedata.normalize("NFKC", text).translate(_MINUS_SIGNS).strip()
    boxed = _BOXED.fullmatch(bare.strip("$ "))
    bare = (boxed.group(1) if boxed else bare).strip("$ ").replace("{,}", ",")
    if _GROUPED.fullmatch(bare):
        bare = bare.replace(",", "")
    whole = _ZERO_FRACTION.fullmatch(bare)
    return plain_integer(whole.group(1) if whole else bare)


def names_several(text: str) -> bool:
    """Whether text lists more than one integer, as the key `080 or 081` does; `1,234` is one."""
    return mended_integer(text) is None and _SEVERAL.fullmatch(text.strip("$ ")) is not None


def same_answer(left: str, right: str) -> bool:
    """Whether two labels are one: integers by value, other text by its characters."""
    return comparable(left) == comparable(right)


def comparable(text: str) -> str:
    """The form in which labels are compared."""
    return mended_integer(text) or text.strip()


def exact_integer_of_float(literal: str) -> str | None:
    """Return the integer that a float holds without doubt: whole, and no larger than 2**53. Otherwise None.

    `literal` is the number as it is written, e.g. `"5.0"` or `"1e3"`.
    """
    try:
        value = Decimal(literal)
    except InvalidOperation:
        return None
    if not value.is_finite() or abs(value) > LARGEST_EXACT or value != value.to_integral_value():
        return None
    return str(int(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatDamage:
    """A label that a float may have rounded. One right label of this size in `one_in` would look the same."""

    one_in: int


def float_damage(digits: str) -> FloatDamage | None:
    """Return why an integer above 2**53 looks like the output of a float, or None.

    A 64-bit float keeps 53 bits. An integer of 53 + k bits that is a multiple of 2**k is either one that a float
    rounded, or one of the few right ones (1 in 2**k) that a float happens to hold.
    """
    if len(digits.lstrip("-")) > _FLOAT_DIGITS or not is_above_exact(digits):
        return None
    value = abs(int(digits))
    spare_bits = value.bit_length() - 53
    return FloatDamage(one_in=2**spare_bits) if value % 2**spare_bits == 0 else None


def is_above_exact(digits: str) -> bool:
    """Whether an integer in canonical digits is larger than 2**53, either sign."""
    bare = digits.lstrip("-")
    limit = str(LARGEST_EXACT)
    return (len(bare), bare) > (len(limit), limit)
