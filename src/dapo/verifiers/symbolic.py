"""Equality by symbolic mathematics. Slow and, on hostile text, endless: the pool runs it in processes that it can end.

Two expressions without variables are equal if their difference cannot be told from zero at a precision that grows with
the numbers in them (400 digits and more), evaluated with tracked accuracy; floats take no part. With variables
they are compared at several rational points, and rational functions of moderate size are then proved equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
from sympy.core.evalf import PrecisionExhausted

from dapo.verifiers import grammar
from dapo.verifiers.comparing import Verdict, equal
from dapo.verifiers.conversion import NotConvertible, TooLarge, to_expression, to_set
from dapo.verifiers.cursor import NeedsLibrary, NotMathematics
from dapo.verifiers.nodes import Node
from dapo.verifiers.quick import QuickJudge

_MAX_PRECISION = 20_000
_MAX_TERMS = 5000


def is_equal(gold: str, answer: str) -> bool:
    """Whether two answers, each one value as `quick.read_value` cuts it out, are equal."""
    try:
        return bool(equal(grammar.parse(gold), grammar.parse(answer), SymbolicJudge()))
    except NeedsLibrary:
        return _library_equal(gold, answer)
    except NotMathematics:
        return False


class SymbolicJudge:
    """Decides on all values that sympy can hold."""

    def same(self, gold: Node, answer: Node) -> Verdict:
        """Whether two expressions are equal; a number too large to be written out equals only itself."""
        quick = QuickJudge().same(gold, answer)
        if quick is not None:
            return quick
        try:
            return same_expression(to_expression(gold), to_expression(answer))
        except NotConvertible:
            return False

    def ratio_sign(self, gold: Node, answer: Node) -> int | None:
        """The sign of the constant c with gold = c * answer, 0 where there is none."""
        try:
            return ratio_sign(to_expression(gold), to_expression(answer))
        except NotConvertible:
            return 0

    def same_zeros(self, gold: Node, answer: Node) -> Verdict:
        """Whether two equations `… = 0` are the same up to a constant factor, their denominators multiplied out."""
        try:
            left, right = (sympy.fraction(sympy.together(to_expression(node)))[0] for node in (gold, answer))
            return ratio_sign(left, right) != 0
        except NotConvertible:
            return False

    def same_set(self, gold: Node, answer: Node) -> Verdict:
        """Whether two sets hold the same numbers."""
        try:
            left, right = to_set(gold), to_set(answer)
        except NotConvertible:
            return False
        return bool(left == right) or sympy.SymmetricDifference(left, right) == sympy.S.EmptySet


def same_expression(left: Any, right: Any) -> bool:
    """Whether two expressions are equal for all values of their variables where both are real."""
    if left == right:
        return True
    difference = left - right
    if not difference.free_symbols:
        return _is_zero(difference)
    if not _agrees_at_points(left, right):
        return False
    if difference.is_rational_function() and _num_terms(difference) <= _MAX_TERMS:
        numerator, _ = sympy.fraction(sympy.together(difference))
        return bool(sympy.expand(numerator) == 0)
    return True


def _num_terms(expression: Any) -> int:
    """About how many terms an expression has when it is written out."""
    powers = [int(abs(power.exp)) for power in expression.atoms(sympy.Pow) if power.exp.is_Integer]
    variables = len(expression.free_symbols)
    return math.comb(min(max(powers, default=1), _MAX_TERMS) + variables, variables)


def _is_zero(value: Any, digits: int | None = None) -> bool:
    """Whether a number is zero, as far as `digits` (or what its parts ask for) can tell. Exact for rational numbers."""
    if value.is_Rational:
        return bool(value == 0)
    if value.has(sympy.nan, sympy.zoo, sympy.oo):
        return False
    precision = digits or 400 + 4 * sum(_digits(number) for number in value.atoms(sympy.Rational))
    if precision > _MAX_PRECISION:
        raise TooLarge("the numbers are too large to be compared")
    try:
        return bool(value.evalf(15, maxn=precision, strict=True) == 0)
    except PrecisionExhausted:
        return True


def _digits(number: Any) -> int:
    return int((number.p.bit_length() + number.q.bit_length()) * 0.302) if number.p.bit_length() > 64 else 0


_POINTS = (
    ((2, 7), (3, 5), (11, 13), (17, 19)),
    ((5, 3), (13, 11), (7, 17), (23, 29)),
    ((31, 10), (9, 4), (1, 6), (41, 12)),
    ((1, 9), (8, 7), (29, 11), (3, 16)),
    ((-3, 7), (-5, 4), (-13, 6), (-1, 8)),
    ((-9, 2), (4, 15), (-7, 12), (19, 6)),
)


def _points(symbols: Sequence[Any]) -> list[dict[Any, Any]]:
    """Values for the variables, by name, so that both sides get the same."""
    ordered = sorted(symbols, key=str)
    return [
        {
            symbol: sympy.Rational(*values[index % 4]) + sympy.Rational(index // 4, 3)
            for index, symbol in enumerate(ordered)
        }
        for values in _POINTS
    ]


def _agrees_at_points(left: Any, right: Any) -> bool:
    """Whether two expressions agree at every point where both are real, and at three points at least."""
    agreeing = 0
    for point in _points(list((left - right).free_symbols)):
        values = [side.subs(point) for side in (left, right)]
        if any(value.has(sympy.nan, sympy.zoo, sympy.oo) for value in values):
            continue
        if _is_zero(values[0] - values[1], digits=100):
            agreeing += 1
        elif all(_is_real(value) for value in values):
            return False
    return agreeing >= 3


def _is_real(value: Any) -> bool:
    return _is_zero(sympy.im(value), digits=30)


def ratio_sign(left: Any, right: Any) -> int:
    """The sign of the constant c with left = c * right; 0 where there is none."""
    for point in _points(list(left.free_symbols | right.free_symbols)):
        divisor = right.subs(point)
        if divisor.has(sympy.nan, sympy.zoo) or _is_zero(divisor, digits=100):
            continue
        factor = left.subs(point) / divisor
        if not factor.is_real or not same_expression(left, factor * right):
            return 0
        return int(sympy.sign(factor))
    return 0


def _library_equal(gold: str, answer: str) -> bool:
    """Compare as expressions what at least on one side is a sum, an integral, a limit or the like."""
    try:
        return same_expression(_library_value(gold), _library_value(answer))
    except (NotConvertible, NotMathematics):
        return False


def _library_value(text: str) -> Any:
    try:
        return to_expression(grammar.parse(text))
    except NeedsLibrary:
        pass
    last = _after_last_equals(text)
    if last == text:
        return _from_library(text)
    return to_expression(grammar.parse(last))


def _after_last_equals(text: str) -> str:
    """What stands behind the last equals sign that no brace encloses."""
    depth = 0
    start = 0
    for position, sign in enumerate(text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "=" and depth == 0:
            start = position + 1
    return text[start:]


def _from_library(text: str) -> Any:
    """Let math-verify's LaTeX parser read the text, and sympy work it out."""
    from latex2sympy2_extended.latex2sympy2 import latex2sympy

    try:
        value = latex2sympy(text.replace("$", " ").strip())
    except Exception as fault:
        raise NotMathematics(f"the mathematics library cannot read {text[:80]!r}") from fault
    if not isinstance(value, sympy.Expr):
        raise NotMathematics(f"{text[:80]!r} is no single value")
    value = value.doit()
    return value.xreplace({symbol: sympy.Symbol(symbol.name) for symbol in value.free_symbols})
