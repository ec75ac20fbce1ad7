"""Reads the text of an answer into a tree. Linear in its text, bounded in depth; no value is computed here.

The grammar is what people and models write in answers: LaTeX and plain text mixed, with units and words around. What
does not fit it is refused, never guessed: `3 4`, `54 points 0` and `540 (or 541)` are no values.

From the loosest binding (a list of items) to the tightest (a factor); what a factor is made of is in `atoms`.
"""

from __future__ import annotations

import re
from fractions import Fraction

from dapo.verifiers import atoms, signs, wording
from dapo.verifiers.cursor import Cursor, NeedsLibrary, NotMathematics, is_mathematical
from dapo.verifiers.nodes import Apply, Listing, Node, Number, Quantity, Relation, SetOperation, Words
from dapo.verifiers.numerals import based
from dapo.verifiers.vocabulary import DANGLING, JOINING_WORDS, MULTIPLIERS, NOT_UNITS, UNITS, number_from_words

__all__ = ["MAX_LENGTH", "NeedsLibrary", "NotMathematics", "parse"]

MAX_LENGTH = 10_000
"""Longer answers are compared sign by sign or as digits, but not as mathematics."""
MAX_SIGNS_BEHIND = 8
"""Powers, factorials and the like behind one value."""

_CHOOSE = re.compile(r"\{([^{}]{1,100}?)\\choose(?![A-Za-z])([^{}]{1,100})\}")


def parse(text: str) -> Node:
    """Read an answer that is written in ASCII (see `text.to_plain`).

    Raises NotMathematics where the text is no value, and NeedsLibrary where it holds a sum, an integral or the like.
    """
    if len(text) > MAX_LENGTH:
        raise NotMathematics("the answer is too long to be read as mathematics")
    return _whole(Cursor(_CHOOSE.sub(r"\\binom{\1}{\2}", text.replace("{:}", ":"))))


def _whole(cursor: Cursor) -> Node:
    node = _listing(cursor)
    if not cursor.at_end():
        raise NotMathematics(f"cannot read {cursor.rest()!r}")
    return node


def _listing(cursor: Cursor) -> Node:
    """Items between commas, "and" and "or"."""
    with cursor.deeper():
        items = [_item(cursor)]
        joiners: set[str] = set()
        while (match := cursor.take(signs.JOINER)) is not None:
            words = match[0]
            joiners.add(
                "or" if "or" in words or "vee" in words else "and" if "nd" in words or "wedge" in words else ","
            )
            items.append(_item(cursor))
        if len(items) == 1:
            return items[0]
        joiner = next(name for name in ("or", "and", ",") if name in joiners)
        return Listing("", "", tuple(items), joiner)


def _item(cursor: Cursor) -> Node:
    """A chain of relations, or words alone."""
    words = _words_alone(cursor)
    if words is not None and not cursor.starts("="):
        return words
    terms = [words or _quantity(cursor)]
    relations: list[str] = []
    while (match := cursor.take(signs.RELATION)) is not None:
        relations.append(signs.RELATION_SIGNS.get(match[0], "in"))
        terms.append(_quantity(cursor))
    if relations:
        return Relation(tuple(relations), tuple(terms))
    return _ratio(cursor, terms[0]) if isinstance(terms[0], Number) and cursor.take(signs.RATIO) else terms[0]


def _ratio(cursor: Cursor, first: Node) -> Node:
    """`3:2` and clock times. A leading zero is kept as the unit "clock", since 12:05 is not 12:5."""
    terms: list[Node] = [first]
    while True:
        start = cursor.position
        term = _set(cursor)
        written = cursor.text[start : cursor.position].strip()
        terms.append(Quantity(term, "clock") if written.startswith("0") and len(written) > 1 else term)
        if not cursor.take(signs.RATIO):
            return _with_unit(cursor, Relation((":",) * (len(terms) - 1), tuple(terms)))


def _words_alone(cursor: Cursor) -> Node | None:
    """An item of words only; a number in words is that number. None where mathematics stands here."""
    cursor.blank()
    counted = _counted(cursor)
    if counted is not None:
        return counted
    start = cursor.position
    words = wording.text_words(cursor)
    if words is None:
        match = signs.WORDS.match(cursor.text, cursor.position)
        if match is None:
            return None
        joiner = min((at for at in (match[0].find(f" {name} ") for name in JOINING_WORDS) if at > 0), default=None)
        words = match[0][:joiner]
        cursor.position += len(words)
    number = number_from_words(words)
    ends = cursor.at_end() or cursor.at_closing() or cursor.sees(signs.JOINER)
    if ends and number is not None:
        return Number(Fraction(number))
    if (ends or cursor.starts("=")) and not is_mathematical(words):
        return Words(" ".join(words.lower().strip(". ").split()))
    cursor.position = start
    return None


def _counted(cursor: Cursor) -> Node | None:
    """`five apples`: the longest run of number words at the start, with the words after it as unit."""
    start = cursor.position
    match = signs.WORDS.match(cursor.text, start)
    words = match[0].split(" ") if match is not None else []
    for count in range(min(len(words), 12), 0, -1):
        number = number_from_words(" ".join(words[:count]))
        if number is not None and words[count - 1] != "and":
            cursor.position = start + len(" ".join(words[:count]))
            return _with_unit(cursor, Number(Fraction(number)))
    return None


def _quantity(cursor: Cursor) -> Node:
    return _with_unit(cursor, _set(cursor))


def _with_unit(cursor: Cursor, value: Node) -> Node:
    """The value with the words after it; words that change or doubt it ("or so", "squared", "more") are refused."""
    if isinstance(value, Number) and (base := cursor.take(signs.BASE_NOTE)) is not None:
        return based(value, base[1] or base[2])
    if cursor.take(signs.MODULUS_NOTE):
        return Quantity(value, "mod")
    words = wording.unit_words(cursor)
    while words and words[0].lower() in MULTIPLIERS:
        value = Apply("mul", (value, Number(Fraction(MULTIPLIERS[words.pop(0).lower()]))))
    if not words:
        return value
    doubtful = [word for word in words if word.lower() in NOT_UNITS]
    if words[-1].lower() in DANGLING:
        raise NotMathematics(f"the text breaks off behind {words[-1]!r}")
    if doubtful:
        raise NotMathematics(f"{doubtful[0]!r} leaves the value open")
    return Quantity(value, _unit_name(words))


def _unit_name(words: list[str]) -> str:
    """One spelling for a unit: `square cm`, `cm^2` and `sq centimeters` are all `cm^2`."""
    raised = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}.get(words[0].lower().rstrip("."))
    if raised is not None and len(words) > 1:
        words = [words[1] + raised, *words[2:]]
    name, _, power = " ".join(words).replace(" / ", "/").partition("^")
    known = UNITS.get(name, UNITS.get(name.lower(), name.lower()))
    return f"{known}^{power}" if power else known


def _set(cursor: Cursor) -> Node:
    """Unions, intersections and differences, of equal rank and from left to right."""
    node = _sum(cursor)
    while (match := cursor.take(signs.SET_SIGN)) is not None:
        head = {"cap": "intersection", "setminus": "difference", "backslash": "difference"}.get(match[1], "union")
        right = _sum(cursor)
        if isinstance(node, SetOperation) and node.head == head == "union":
            node = SetOperation(head, (*node.args, right))
        else:
            node = SetOperation(head, (node, right))
    return node


def _sum(cursor: Cursor) -> Node:
    """Terms between + and -."""
    terms = [_first_term(cursor)]
    while True:
        if (either := cursor.take(signs.PLUS_MINUS)) is not None:
            terms.append(Apply("mp" if "mp" in either[0] else "pm", (_product(cursor),)))
        elif cursor.take(signs.PLUS):
            terms.append(_signed(cursor, _product))
        elif cursor.take(signs.MINUS):
            terms.append(Apply("neg", (_signed(cursor, _product),)))
        else:
            return terms[0] if len(terms) == 1 else Apply("add", tuple(terms))


def _first_term(cursor: Cursor) -> Node:
    if cursor.take(signs.PLUS_MINUS):
        return Apply("pm", (_product(cursor),))
    if cursor.take_word("negative"):
        return Apply("neg", (_product(cursor),))
    cursor.take(signs.PLUS)
    return _signed(cursor, _product)


def _product(cursor: Cursor) -> Node:
    """Factors between signs of multiplication and division, or side by side; a product is flat, however long."""
    factors = [_factor(cursor)]
    while True:
        if cursor.take(signs.TIMES):
            factors.append(_signed(cursor, _factor))
        elif cursor.take(signs.DIVIDE):
            cursor.count_division()
            factors = [Apply("div", (_multiplied(factors), _signed(cursor, _factor)))]
        elif atoms.starts_here(cursor):
            factors[-1:] = _side_by_side(cursor, factors[-1])
        else:
            return _multiplied(factors)


def _multiplied(factors: list[Node]) -> Node:
    if len(factors) > 1 and any(isinstance(factor, Relation | Words) for factor in factors):
        raise NotMathematics("a relation or words stand as a factor")
    return factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))


def _side_by_side(cursor: Cursor, left: Node) -> list[Node]:
    """`2x` is a product; `1 1/2` and `1\\frac{1}{2}` are mixed numbers; `3 4` is nothing."""
    if cursor.at_digit():
        numerator = _factor(cursor)
        if cursor.take(signs.DIVIDE):
            part = Apply("div", (numerator, _factor(cursor)))
            if _is_mixed(left, part):
                return [Apply("add", (left, part))]
        raise NotMathematics("two numbers stand side by side")
    right = _factor(cursor)
    return [Apply("add", (left, right))] if _is_mixed(left, right) else [left, right]


def _is_mixed(left: Node, right: Node) -> bool:
    """Whether a whole number is followed by a proper fraction of two written numbers."""
    match left, right:
        case Number(whole), Apply("div", (Number(numerator), Number(denominator))):
            return whole.denominator == 1 and 0 < numerator < denominator
    return False


def _factor(cursor: Cursor) -> Node:
    """An atom with its powers, factorials, percent and degree signs."""
    with cursor.deeper():
        node = atoms.atom(cursor, _GRAMMAR)
        for _ in range(MAX_SIGNS_BEHIND):
            if cursor.take(signs.DEGREE):
                node = Quantity(node, "deg")
            elif cursor.take(signs.POWER):
                node = Apply("pow", (node, _exponent(cursor)))
            elif cursor.take(signs.FACTORIAL):
                node = Apply("factorial", (node,))
            elif cursor.take(signs.PERCENT):
                node = Quantity(node, "%")
            elif (currency := cursor.take(signs.CURRENCY)) is not None:
                node = Quantity(node, currency[0].strip("\\"))
            else:
                return node
        raise NotMathematics("too many signs stand behind one value")


def _exponent(cursor: Cursor) -> Node:
    """What stands after `^`: a group, or a factor with a sign; `2^3^4` is `2^(3^4)`."""
    cursor.take(signs.PLUS)
    return _signed(cursor, _factor)


def _signed(cursor: Cursor, part: atoms.Rule) -> Node:
    """The part, with one minus sign before it or none."""
    return Apply("neg", (part(cursor),)) if cursor.take(signs.MINUS) else part(cursor)


_GRAMMAR = atoms.Grammar(whole=_whole, listing=_listing, sum=_sum, factor=_factor, exponent=_exponent)
