"""What a factor is made of: numbers, names, functions, fractions, roots, brackets, matrices, words in `\\text`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dapo.verifiers import signs
from dapo.verifiers.cursor import Cursor, NeedsLibrary, NotMathematics, first_name, is_mathematical
from dapo.verifiers.nodes import Apply, Based, Listing, Matrix, Node, Number, Quantity, Symbol
from dapo.verifiers.vocabulary import (
    CONSTANTS,
    FUNCTION_SPELLINGS,
    FUNCTIONS,
    GREEK,
    LIBRARY_COMMANDS,
    SETS,
    number_from_words,
)

MAX_DIGITS = 4000
"""Numbers of more digits are compared digit by digit, and not calculated with."""
MAX_EXPONENT = 4000

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
_TEXT_NAMES = frozenset(
    {"text", "mbox", "hbox", "textrm", "textnormal", "textbf", "textit", "textsf", "texttt", "emph"}
)
_MATRIX = re.compile(r"\{\s?([pbBvV]?matrix|smallmatrix|array)\s?\}(?:\s?\{[^{}]{0,20}\})?")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,10}\])?")
_ENDS_ARGUMENT = re.compile(
    r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|exp)(?![A-Za-z])|(?:sin|cos|tan|cot|ln|log)\b"
)
_TOKEN = re.compile(r"\d|[A-Za-z]")
_BASE_WORDS = {"binary": 2, "octal": 8, "hex": 16}


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
        return _text_is_mathematical(cursor)
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
        return _number(cursor)
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


def _number(cursor: Cursor) -> Node:
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
    number = Number(value)
    if not point and (base := signs.SUBSCRIPT.match(cursor.text, cursor.position)):
        cursor.position = base.end()
        return based(number, base[1] or base[2])
    return number


def based(number: Number, name: str) -> Based:
    """The number's digits in the base that is named: `5`, `five`, `(5)`, `\\text{five}`. Raises NotMathematics."""
    name = re.sub(r"\\(?:text|mathrm)|[{}()\s]|base", "", name)
    base = int(name) if name.isdigit() else _BASE_WORDS.get(name.lower(), number_from_words(name))
    digits = str(number.value)
    if base is None or not 2 <= base <= 36 or not digits.isdigit() or any(int(digit) >= base for digit in digits):
        raise NotMathematics(f"{digits} is no number in base {name}")
    return Based(digits, base)


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
    number = signs.NUMBER.match(cursor.text, cursor.position)
    return Apply("root", (index, _number(cursor) if number else _single(cursor, grammar)))


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
    if not _is_mathematical_text(content):
        raise NotMathematics(f"cannot read the words {content!r}")
    return _inside(cursor, content, grammar)


def _is_mathematical_text(content: str) -> bool:
    return bool(content.strip()) and is_mathematical(re.sub(r"\\[A-Za-z]+", "", content))


def _text_is_mathematical(cursor: Cursor) -> bool:
    ahead = Cursor(cursor.text)
    ahead.position = cursor.position
    ahead.take(signs.TEXT)
    content = ahead.group()
    return _is_mathematical_text(content) and content.strip() not in {"or", "and"} and first_name(content.strip()) != ""


def text_words(cursor: Cursor) -> str | None:
    """The words of a `\\text{…}` that holds nothing else; the cursor moves behind it. None elsewhere."""
    start = cursor.position
    command = cursor.take(signs.TEXT)
    if command is not None and command[1] != "mathbb":
        content = cursor.group().strip(" .")
        if signs.WORDS.fullmatch(content):
            return content
    cursor.position = start
    return None


def unit_words(cursor: Cursor) -> list[str]:
    """The words that stand here, plain or in `\\text`, with powers such as `cm^2`; they end at "and", "or" and a comma."""
    words: list[str] = []
    while not cursor.at_end() and not cursor.sees(signs.JOINER):
        if cursor.take(signs.UNIT_LINK) and words:
            words.append("/")
            continue
        start = cursor.position
        if (command := cursor.take(signs.TEXT)) is not None and command[1] in _UNIT_TEXTS:
            content = cursor.group().strip(" .~,()")
        elif (plain := cursor.take(signs.UNIT_WORD)) is not None:
            content = plain[1] or plain[2]
        else:
            cursor.position = start
            break
        if any(sign.isdigit() for sign in re.sub(r"\^\s?\{?-?\d\}?", "", content)) or number_from_words(content):
            cursor.position = start
            break
        if (power := cursor.take(signs.UNIT_POWER)) is not None:
            content += f"^{power[1] or power[2]}"
        words.extend(content.replace("^ ", "^").replace("{", "").replace("}", "").split())
    return words


_UNIT_TEXTS = _TEXT_NAMES | {"mathrm", "mathit", "mathbf", "mathsf"}
