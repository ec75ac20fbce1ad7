"""Names that an answer may hold: functions, constants, units, number words."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


FUNCTIONS = frozenset(
    _words(
        "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp sqrt abs floor ceil gcd "
        "lcm min max arg Re Im sgn binom"
    )
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
    _words(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho "
        "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar"
    )
)
LIBRARY_COMMANDS = frozenset(_words("sum prod int iint oint lim limsup liminf det partial nabla sup tr operatorname"))
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

ALTERS_VALUE = frozenset(
    _words(
        "or not maybe perhaps possibly wrong incorrect false than more less fewer most least neither nor either unless "
        "no except excluding anything cannot impossible plus minus times over squared cubed factorial half twice thrice "
        "double triple doubled tripled halved halves thirds "
        "quarters tenths hundredths without"
    )
) | frozenset(MULTIPLIERS)
"""Words that change, bound or doubt a number that stands in the same sentence."""

NOT_UNITS = ALTERS_VALUE | frozenset(
    _words(
        "and but instead actually wait third to through until except if also though however otherwise excluding "
        "including so that then next now we must still hence thus therefore because since where which when while"
    )
)
"""Words that no unit holds: behind a number they begin something else."""

DANGLING = frozenset(_words("a an the of to in on at by with from for into and or is are be than as per"))
"""Words behind which a text cannot end unless it was cut off."""

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
    **dict.fromkeys(_words("mm millimeter millimeters millimetre millimetres"), "mm"),
    **dict.fromkeys(_words("cm centimeter centimeters centimetre centimetres"), "cm"),
    **dict.fromkeys(_words("m meter meters metre metres"), "m"),
    **dict.fromkeys(_words("km kilometer kilometers kilometre kilometres"), "km"),
    **dict.fromkeys(_words("in inch inches"), "in"),
    **dict.fromkeys(_words("ft foot feet"), "ft"),
    **dict.fromkeys(_words("yd yard yards"), "yd"),
    **dict.fromkeys(_words("mi mile miles"), "mi"),
    **dict.fromkeys(_words("s sec secs second seconds"), "s"),
    **dict.fromkeys(_words("min mins minute minutes"), "min"),
    **dict.fromkeys(_words("h hr hrs hour hours"), "h"),
    **dict.fromkeys(_words("day days"), "day"),
    **dict.fromkeys(_words("week weeks"), "week"),
    **dict.fromkeys(_words("month months"), "month"),
    **dict.fromkeys(_words("year years"), "year"),
    **dict.fromkeys(_words("g gram grams"), "g"),
    **dict.fromkeys(_words("kg kilogram kilograms"), "kg"),
    **dict.fromkeys(_words("mg milligram milligrams"), "mg"),
    **dict.fromkeys(_words("lb lbs"), "lb"),
    **dict.fromkeys(_words("oz ounce ounces"), "oz"),
    **dict.fromkeys(_words("L l liter liters litre litres"), "L"),
    **dict.fromkeys(_words("mL ml milliliter milliliters"), "mL"),
    **dict.fromkeys(_words("$ dollar dollars usd"), "$"),
    **dict.fromkeys(_words("¢ cent cents"), "cent"),
    **dict.fromkeys(_words("€ euro euros eur"), "€"),
    **dict.fromkeys(_words("£ gbp"), "£"),
    **dict.fromkeys(("am", "a m"), "am"),
    **dict.fromkeys(("pm", "p m"), "pm"),
    **dict.fromkeys(_words("mph"), "mph"),
    **dict.fromkeys(_words("kph kmh"), "km/h"),
}
"""Spellings of units that are told apart; other words after a number only say what is counted."""

LETTER_UNITS = frozenset("mgshLlNJWV")
"""Units of one letter, which a formula cannot tell from a variable."""

COMMON_WORDS = frozenset(
    _words(
        "odd even yes no red new old one two six ten the and for east west all any day way cup pen dog cat "
        "box boy man sum hat car men bus he she is it we an as at be by do if my of so to up us go true none "
        "ways sides cm mm km kg mg ml mL ft yd mi lb lbs oz hr hrs min sec rad deg mph kph in inch am pm AM PM st "
        "nd rd th etc per sq cu usd USD eur pct or not but was are has had did its our out off too"
    )
)
"""Runs of two or three letters that are words rather than products of variables."""

_ONES = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
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
