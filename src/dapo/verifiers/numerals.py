"""Numbers that are written in digits: separators, decimals, repeating decimals, exponents, bases."""

from __future__ import annotations

import re
from fractions import Fraction

from dapo.verifiers import signs
from dapo.verifiers.cursor import Cursor, NotMathematics
from dapo.verifiers.nodes import Based, Node, Number
from dapo.verifiers.vocabulary import number_from_words

MAX_DIGITS = 4000
"""Numbers of more digits are compared digit by digit, and not calculated with."""
MAX_EXPONENT = 4000
_BASE_WORDS = {"binary": 2, "octal": 8, "hex": 16}


def number(cursor: Cursor) -> Node:
    """Read the number that stands here. Raises NotMathematics, also for numbers of very many digits."""
    match = signs.COMMA_GROUPED.match(cursor.text, cursor.position) if cursor.brackets == 0 else None
    match = match or signs.NUMBER.match(cursor.text, cursor.position)
    if match is None:
        raise NotMathematics(f"cannot read {cursor.rest()!r}")
    written = match[0]
    if len(written) > MAX_DIGITS:
        raise NotMathematics(f"a number has more than {MAX_DIGITS} digits")
    cursor.position = match.end()
    whole, point, fraction = written.partition(".")
    whole = "".join(sign for sign in whole if sign.isdigit())
    value = Fraction(int(whole + fraction or "0"), 10 ** len(fraction))
    if point and (repeating := signs.REPEATING.match(cursor.text, cursor.position)):
        cursor.position = repeating.end()
        period = next(digits for digits in repeating.groups() if digits)[:MAX_DIGITS]
        value += Fraction(int(period), 10 ** len(fraction) * (10 ** len(period) - 1))
    if exponent := signs.EXPONENT.match(cursor.text, cursor.position):
        if abs(int(exponent[1])) > MAX_EXPONENT:
            raise NotMathematics("an exponent is too large")
        cursor.position = exponent.end()
        value *= Fraction(10) ** int(exponent[1])
    plain = Number(value)
    if not point and (base := signs.SUBSCRIPT.match(cursor.text, cursor.position)):
        cursor.position = base.end()
        return based(plain, base[1] or base[2])
    return plain


def based(number: Number, name: str) -> Number | Based:
    """The number's digits in the base that is named: `5`, `five`, `(5)`, `\\text{five}`. Raises NotMathematics."""
    name = re.sub(r"\\(?:text|mathrm)|[{}()\s]|base", "", name)
    base = int(name) if name.isdigit() else _BASE_WORDS.get(name.lower(), number_from_words(name))
    digits = str(number.value)
    if base is None or not 2 <= base <= 36 or not digits.isdigit() or any(int(digit) >= base for digit in digits):
        raise NotMathematics(f"{digits} is no number in base {name}")
    return number if base == 10 else Based(digits, base)
