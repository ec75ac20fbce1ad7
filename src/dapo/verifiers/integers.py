"""The fast path: numbers written in digits, compared digit by digit.

A number is kept as sign, significant digits and a power of ten, all read from the text, so that a million digits cost
a million steps, nothing passes through a float, and `1e400` is never written out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_GROUP_SIGN = r"(?:,|\{,\}|,\\!\s?|\\[,;: !]\s?|~|'|_|[ ])"
_NUMBER = re.compile(
    rf"""
    (?P<sign>[+-]?)\s*
    (?:(?P<grouped>[1-9]\d{{0,2}}(?:,\d{{3}})+|[1-9]\d{{0,2}}(?:{_GROUP_SIGN}\d{{3}})+|[1-9]\d?(?:,\d{{2}})+,\d{{3}})
      |(?P<whole>\d*))
    (?:\.(?P<fraction>\d*))?
    (?:[eE](?P<exponent>[+-]?\d{{1,9}})
      |\s*(?:\\times|\\cdot|\*|[xX])\s*10\s*\^\s*(?:\{{\s*(?P<braced>[+-]?\s*\d{{1,9}})\s*\}}|(?P<power>-?\d{{1,9}})))?
    """,
    re.VERBOSE | re.ASCII,
)
_NOT_DIGITS = re.compile(r"\D+")


@dataclass(frozen=True, slots=True)
class DecimalNumber:
    """±digits * 10**exponent; digits without zeros at either end; zero has no digits, no sign and exponent 0.

    Two of them are equal exactly if the numbers are.
    """

    negative: bool
    digits: str
    exponent: int

    def shifted(self, places: int) -> DecimalNumber:
        """The number times 10**places."""
        return DecimalNumber(self.negative, self.digits, self.exponent + places if self.digits else 0)

    @property
    def is_integer(self) -> bool:
        return self.exponent >= 0


def read_number(text: str) -> DecimalNumber | None:
    """Read a text that is one decimal number: `-3`, `042`, `1,234`, `1000.0`, `1.5e-3`, `6 \\times 10^{3}`.

    None for everything else, in particular for lists such as `1,2,3` and for digits that spaces group wrongly.
    """
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned.isdecimal() and unsigned.isascii():
        return _decimal(text[:1] == "-", unsigned, "", 0)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    whole = match["whole"]
    if whole is None:
        whole = _NOT_DIGITS.sub("", match["grouped"])
    fraction = match["fraction"] or ""
    if not whole and not fraction:
        return None
    power = match["exponent"] or match["braced"] or match["power"] or "0"
    return _decimal(match["sign"] == "-", whole, fraction, int(power.replace(" ", "")))


def _decimal(negative: bool, whole: str, fraction: str, power: int) -> DecimalNumber:
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    if not stripped:
        return DecimalNumber(False, "", 0)
    return DecimalNumber(negative, stripped, len(digits) - len(stripped) - len(fraction) + power)
