"""Names that an answer may hold: functions, constants, units, number words."""

from __future__ import annotations

FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp sqrt abs floor ceil gcd lcm min max "
    "arg Re Im sgn binom".split()
)
FUNCTION_SPELLINGS = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "ceiling": "ceil",
    "tg": "tan",
    "ctg": "cot",
    "cosec": "csc",
    "cbrt": "cbrt",
}
CONSTANTS = {"pi": "pi", "infinity": "inf", "infty": "inf", "inf": "inf", "oo": "inf"}
SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
LIBRARY_COMMANDS = frozenset("sum prod int iint oint lim limsup liminf det partial nabla sup tr operatorname".split())
"""Commands that only the mathematics library reads."""

MULTIPLIERS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "lakh": 10**5,
    "crore": 10**7,
}
OPERATOR_WORDS = {"plus": "+", "minus": "-", "times": "*", "over": "/"}
JOINING_WORDS = {"or": "or", "and": "and"}

NOT_UNITS = frozenset(
    "or and not maybe perhaps possibly wrong incorrect false than more less fewer most least neither nor either unless "
    "but instead actually wait no plus minus times over squared cubed factorial halves thirds quarters tenths hundredths "
    "half third to through until except without if also though however otherwise upto excluding including".split()
)
"""Words that change or doubt the number before them, so that it is not the answer alone."""

UNITS = {
    "%": "%",
    "percent": "%",
    "pct": "%",
    "percentage": "%",
    "deg": "deg",
    "degree": "deg",
    "degrees": "deg",
    "rad": "rad",
    "radian": "rad",
    "radians": "rad",
    **dict.fromkeys("mm millimeter millimeters millimetre millimetres".split(), "mm"),
    **dict.fromkeys("cm centimeter centimeters centimetre centimetres".split(), "cm"),
    **dict.fromkeys("m meter meters metre metres".split(), "m"),
    **dict.fromkeys("km kilometer kilometers kilometre kilometres".split(), "km"),
    **dict.fromkeys("in inch inches".split(), "in"),
    **dict.fromkeys("ft foot feet".split(), "ft"),
    **dict.fromkeys("yd yard yards".split(), "yd"),
    **dict.fromkeys("mi mile miles".split(), "mi"),
    **dict.fromkeys("s sec secs second seconds".split(), "s"),
    **dict.fromkeys("min mins minute minutes".split(), "min"),
    **dict.fromkeys("h hr hrs hour hours".split(), "h"),
    **dict.fromkeys("day days".split(), "day"),
    **dict.fromkeys("week weeks".split(), "week"),
    **dict.fromkeys("month months".split(), "month"),
    **dict.fromkeys("year years".split(), "year"),
    **dict.fromkeys("g gram grams".split(), "g"),
    **dict.fromkeys("kg kilogram kilograms".split(), "kg"),
    **dict.fromkeys("mg milligram milligrams".split(), "mg"),
    **dict.fromkeys("lb lbs pound pounds".split(), "lb"),
    **dict.fromkeys("oz ounce ounces".split(), "oz"),
    **dict.fromkeys("L l liter liters litre litres".split(), "L"),
    **dict.fromkeys("mL ml milliliter milliliters".split(), "mL"),
    **dict.fromkeys("$ dollar dollars usd".split(), "$"),
    **dict.fromkeys("¢ cent cents".split(), "cent"),
    **dict.fromkeys("€ euro euros eur".split(), "€"),
    **dict.fromkeys("£ gbp".split(), "£"),
    **dict.fromkeys("mph".split(), "mph"),
    **dict.fromkeys("kph kmh".split(), "km/h"),
}
"""Spellings of units that are told apart; other words after a number only say what is counted."""

LETTER_UNITS = frozenset("m g s h L l N J W V")
"""Units of one letter, which a formula cannot tell from a variable."""

COMMON_WORDS = frozenset(
    "odd even yes no red new old one two six ten the and for east west all any day way cup pen dog cat box boy man sum "
    "hat car men bus he she is it we an as at be by do if my of so to up us go true none ways sides cm mm km kg mg ml mL "
    "ft yd mi lb lbs oz hr hrs min sec rad deg mph kph in inch am pm st nd rd th etc per sq cu usd USD eur pct or not but "
    "was are has had did its our out off too".split()
)
"""Runs of two or three letters that are words rather than products of variables."""

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {word: value for value, word in enumerate(_ONES)} | {word: 10 * (i + 2) for i, word in enumerate(_TENS)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def number_from_words(words: str) -> int | None:
    """`four hundred and twenty-one` is 421; None where a word is no part of a number or stands in a wrong place."""
    parts = words.lower().replace("-", " ").split()
    negative = len(parts) > 1 and parts[0] in {"minus", "negative"}
    total = group = 0
    last = 0  # the size of the last word, to refuse "two three"
    seen = False
    for part in parts[1:] if negative else parts:
        if part == "and" and seen:
            continue
        if part in _SMALL:
            value = _SMALL[part]
            if last and not (last >= 100 or (last in range(20, 100, 10) and 0 < value < 10)):
                return None
            group += value
            last = value or 1
        elif part == "hundred" and 0 < group < 10:
            group *= 100
            last = 100
        elif part in _SCALES and 0 < group < 1000:
            total += group * _SCALES[part]
            group, last = 0, _SCALES[part]
        else:
            return None
        seen = True
    if not seen:
        return None
    return -(total + group) if negative else total + group
