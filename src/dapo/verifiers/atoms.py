"""What a factor is made of: numbers, names, functions, fractions, roots, brackets, matrices, words in `\\text`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dapo.verifiers import signs
from dapo.verifiers.cursor import Cursor, NeedsLibrary, NotMathematics
from dapo.verifiers.nodes import Apply, Listing, Matrix, Node, Number, Quantity, Symbol
from dapo.verifiers.numerals import number
from dapo.verifiers.vocabulary import (
    CONSTANTS,
    FUNCTION_SPELLINGS,
    FUNCTIONS,
    GREEK,
    LIBRARY_COMMANDS,
    SETS,
)
from dapo.verifiers.wording import is_mathematical_text, text_is_factor

Rule = Callable[[Cursor], Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The rules that an atom needs for what stands inside of it."""

    whole: Rule
    listing: Rule
    sum: Rule
    factor: Rule
    exponent: Rule


_CLOSINGS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_OPENING = re.compile(r"\(|\[|\\\{|\\lbrace(?![A-Za-z])|\\langle(?![A-Za-z])")
_CLOSING = re.compile(r"\)|\]|\\\}|\\rbrace(?![A-Za-z])|\\rangle(?![A-Za-z])")
_BRACKET_NAMES = {"\\{": "{", "\\lbrace": "{", "\\langle": "<", "\\}": "}", "\\rbrace": "}", "\\rangle": ">"}
_BAR = re.compile(r"\||\\(?:lvert|vert|mid)(?![A-Za-z])|\\\|")
_BAR_END = re.compile(r"\||\\(?:rvert|vert|mid)(?![A-Za-z])|\\\|")
_ROUNDED = {"lfloor": ("floor", "rfloor"), "lceil": ("ceil", "rceil")}
_FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"})
_BINOMIALS = frozenset({"binom", "dbinom", "tbinom"})
_MATRIX = re.compile(r"\{\s?([pbBvV]?matrix|smallmatrix|array)\s?\}(?:\s?\{[^{}]{0,20}\})?")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,10}\])?")
_ENDS_ARGUMENT = re.compile(
    r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|exp)(?![A-Za-z])|(?:sin|cos|tan|cot|ln|log)\b"
)
_TOKEN = re.compile(r"\d|[A-Za-z]")


def starts_here(cursor: Cursor) -> bool:
    """Whether a factor could stand here without a sign of multiplication before it."""
    cursor.blank()
    sign = cursor.text[cursor.position : cursor.position + 1]
    if sign == "(":
        return not cursor.sees(signs.REMARK)
    if sign.isdigit() or sign == "{":
        return True
    if sign == "|":
        return cursor.bars == 0
    if sign.isalpha():
        return cursor.letters() is not None and not cursor.sees(signs.SET_SIGN) and not cursor.sees(signs.MODULUS_NOTE)
    if sign == ".":
        return cursor.at_digit()
    return sign == "\\" and _command_starts_factor(cursor)


def _command_starts_factor(cursor: Cursor) -> bool:
    if cursor.sees(signs.TEXT):
        return text_is_factor(cursor)
    match = signs.COMMAND.match(cursor.text, cursor.position)
    if match is None:
        return False
    name = match[1]
    return (
        name in _FRACTIONS
        or name in _BINOMIALS
        or name in GREEK
        or name in FUNCTIONS
        or name in CONSTANTS
        or name in _ROUNDED
        or name in LIBRARY_COMMANDS
        or (name == "lvert" and cursor.bars == 0)
    )


def atom(cursor: Cursor, grammar: Grammar) -> Node:
    """Read one atom. Raises NotMathematics where none stands."""
    with cursor.deeper():
        return _atom(cursor, grammar)


def _atom(cursor: Cursor, grammar: Grammar) -> Node:
    cursor.blank()
    sign = cursor.text[cursor.position : cursor.position + 1]
    if sign.isdigit() or sign == ".":
        return number(cursor)
    if sign.isalpha():
        return _name(cursor, grammar)
    if sign == "{":
        cursor.position += 1
        return _inside(cursor, cursor.group(), grammar)
    if cursor.sees(_OPENING):
        return _bracketed(cursor, grammar)
    if (currency := cursor.take(signs.CURRENCY)) is not None:
        return Quantity(grammar.factor(cursor), currency[0].strip("\\"))
    if sign == "|" or cursor.sees(_BAR):
        return _between_bars(cursor, grammar)
    if sign == "\\":
        return _command(cursor, grammar)
    raise NotMathematics(f"cannot read {cursor.rest()!r}")


def _inside(cursor: Cursor, text: str, grammar: Grammar) -> Node:
    """Read the inside of a brace group, as deep and as much between brackets as the group itself."""
    return grammar.whole(Cursor(text, depth=cursor.depth, brackets=cursor.brackets))


def _name(cursor: Cursor, grammar: Grammar) -> Node:
    name = cursor.letters()
    if name is None:
        raise NotMathematics(f"cannot read the words {cursor.rest()!r}")
    cursor.position += len(name)
    return _named(cursor, name, grammar)


def _named(cursor: Cursor, name: str, grammar: Grammar) -> Node:
    lowered = FUNCTION_SPELLINGS.get(name, name)
    if lowered in FUNCTIONS or lowered == "cbrt":
        return _function(cursor, lowered, grammar)
    if lowered.lower() == "sqrt":
        return Apply("root", (Number(Fraction(2)), _argument(cursor, grammar)))
    if lowered in CONSTANTS or lowered.lower() == "infinity":
        return Symbol(CONSTANTS.get(lowered, "inf"))
    if subscript := signs.SUBSCRIPT.match(cursor.text, cursor.position):
        cursor.position = subscript.end()
        return Symbol(f"{name}_{''.join((subscript[1] or subscript[2]).split())}")
    return Symbol(name)


def _function(cursor: Cursor, name: str, grammar: Grammar) -> Node:
    """A function with its power (`\\sin^2 x`), its base (`\\log_2 8`) and its argument."""
    base: Node | None = None
    power: Node | None = None
    while True:
        cursor.blank()
        if name in {"log", "ln"} and cursor.starts("_"):
            cursor.position += 1
            base = _single(cursor, grammar)
        elif cursor.take(signs.POWER):
            power = _single(cursor, grammar)
        else:
            break
    argument = _argument(cursor, grammar)
    if name == "sqrt":
        node: Node = Apply("root", (Number(Fraction(2)), argument))
    elif name == "cbrt":
        node = Apply("root", (Number(Fraction(3)), argument))
    elif isinstance(argument, Listing) and name in {"gcd", "lcm", "min", "max", "binom", "log"}:
        node = Apply(name, argument.items)
    elif base is not None:
        node = Apply("log", (argument, base))
    elif power == Apply("neg", (Number(Fraction(1)),)) and f"arc{name}" in FUNCTIONS:
        return Apply(f"arc{name}", (argument,))
    else:
        node = Apply("ln" if name == "log" else name, (argument,))
    return node if power is None else Apply("pow", (node, power))


def _argument(cursor: Cursor, grammar: Grammar) -> Node:
    """A bracket or brace group, or the factors up to the next sign: `\\sin 2x + 1` is `\\sin(2x) + 1`."""
    cursor.blank()
    if cursor.starts("(") or cursor.starts("{") or cursor.sees(_OPENING):
        return atom(cursor, grammar)
    node = grammar.factor(cursor)
    while starts_here(cursor) and not cursor.at_digit() and not cursor.sees(_ENDS_ARGUMENT) and not cursor.starts("("):
        node = Apply("mul", (node, grammar.factor(cursor)))
    return node


def _single(cursor: Cursor, grammar: Grammar) -> Node:
    """An argument as TeX takes it: a brace group, a command, or one single sign (`\\frac12`)."""
    cursor.blank()
    if cursor.starts("-"):
        cursor.position += 1
        return Apply("neg", (_single(cursor, grammar),))
    token = _TOKEN.match(cursor.text, cursor.position)
    if token is None:
        return atom(cursor, grammar)
    cursor.position = token.end()
    return Number(Fraction(int(token[0]))) if token[0].isdigit() else Symbol(token[0])


def _bracketed(cursor: Cursor, grammar: Grammar) -> Node:
    match = cursor.take(_OPENING)
    opening = _BRACKET_NAMES.get(match[0], match[0]) if match else "("
    if opening == "{" and (empty := cursor.take(_CLOSING)) is not None:
        if empty[0] not in {"\\}", "\\rbrace"}:
            raise NotMathematics("brackets do not match")
        return Listing("{", "}", ())
    cursor.brackets += 1
    bars, cursor.bars = cursor.bars, 0
    node = grammar.listing(cursor)
    cursor.brackets -= 1
    cursor.bars = bars
    end = cursor.take(_CLOSING)
    if end is None:
        raise NotMathematics("a bracket is not closed")
    closing = _BRACKET_NAMES.get(end[0], end[0])
    if isinstance(node, Listing) and not node.opening and node.joiner == ",":
        return Listing(opening, closing, node.items)
    if closing != _CLOSINGS[opening]:
        raise NotMathematics("brackets do not match")
    return Listing("{", "}", (node,)) if opening == "{" else node


def _between_bars(cursor: Cursor, grammar: Grammar) -> Node:
    cursor.take(_BAR)
    cursor.bars += 1
    node = grammar.sum(cursor)
    cursor.bars -= 1
    if not cursor.take(_BAR_END):
        raise NotMathematics("a bar is not closed")
    return Apply("abs", (node,))


def _command(cursor: Cursor, grammar: Grammar) -> Node:
    if (text := cursor.take(signs.TEXT)) is not None:
        return _text(cursor, text[1], grammar)
    match = cursor.take(signs.COMMAND)
    if match is None:
        raise NotMathematics(f"cannot read {cursor.rest()!r}")
    name = match[1]
    if name in _FRACTIONS:
        return Apply("div", (_single(cursor, grammar), _single(cursor, grammar)))
    if name in _BINOMIALS:
        return Apply("binom", (_single(cursor, grammar), _single(cursor, grammar)))
    if name == "sqrt":
        return _root(cursor, grammar)
    if name in _ROUNDED:
        return _rounded(cursor, name, grammar)
    if name == "begin":
        return _matrix(cursor, grammar)
    if name in {"emptyset", "varnothing"}:
        return Listing("{", "}", ())
    if name in LIBRARY_COMMANDS:
        raise NeedsLibrary(f"\\{name} is left to the mathematics library")
    if name in FUNCTIONS or name in CONSTANTS or name in GREEK:
        return _named(cursor, name, grammar)
    raise NotMathematics(f"\\{name} is not known")


def _root(cursor: Cursor, grammar: Grammar) -> Node:
    cursor.blank()
    index: Node = Number(Fraction(2))
    if cursor.starts("["):
        end = cursor.text.find("]", cursor.position)
        if end < 0:
            raise NotMathematics("the index of a root is not closed")
        index = _inside(cursor, cursor.text[cursor.position + 1 : end], grammar)
        cursor.position = end + 1
        cursor.blank()
    value = number(cursor) if signs.NUMBER.match(cursor.text, cursor.position) else _single(cursor, grammar)
    return Apply("root", (index, value))


def _rounded(cursor: Cursor, name: str, grammar: Grammar) -> Node:
    head, closing = _ROUNDED[name]
    node = grammar.sum(cursor)
    end = cursor.take(signs.COMMAND)
    if end is None or end[1] != closing:
        raise NotMathematics(f"\\{name} is not closed")
    return Apply(head, (node,))


def _matrix(cursor: Cursor, grammar: Grammar) -> Node:
    kind = cursor.take(_MATRIX)
    if kind is None:
        raise NotMathematics("an environment that is no matrix")
    end = cursor.text.find("\\end", cursor.position)
    closed = re.compile(r"\\end\s?\{\s?" + re.escape(kind[1]) + r"\s?\}").match(cursor.text, end) if end >= 0 else None
    if closed is None:
        raise NotMathematics("a matrix is not closed")
    inside = cursor.text[cursor.position : end]
    cursor.position = closed.end()
    lines = [line for line in _ROW_END.split(inside) if line.strip()]
    rows = tuple(tuple(_inside(cursor, cell, grammar) for cell in line.split("&")) for line in lines)
    if not rows or len({len(row) for row in rows}) > 1:
        raise NotMathematics("the rows of a matrix differ in length")
    node = Matrix(rows)
    return Apply("det", (node,)) if kind[1] == "vmatrix" else node


def _text(cursor: Cursor, name: str, grammar: Grammar) -> Node:
    content = cursor.group().strip()
    if name == "mathbb":
        if content not in SETS:
            raise NotMathematics(f"\\mathbb{{{content}}} is not known")
        return Symbol(SETS[content])
    if content in FUNCTIONS:
        return _function(cursor, content, grammar)
    if not is_mathematical_text(content):
        raise NotMathematics(f"cannot read the words {content!r}")
    return _inside(cursor, content, grammar)
