"""Turns a tree into an expression of sympy, without writing out numbers that would not fit anywhere.

Only constructors are called; no text reaches sympy's own parsers, which evaluate Python.
"""

from __future__ import annotations

import math
from typing import Any

import sympy

from dapo.verifiers.nodes import Apply, Based, Listing, Matrix, Node, Number, Quantity, Relation, SetOperation, Symbol

MAX_BITS = 2_000_000
"""Powers of numbers beyond this size are not written out."""
MAX_FACTORIAL = 20_000


class NotConvertible(ValueError):
    """The tree is no single expression or set."""


class TooLarge(NotConvertible):
    """A number in the tree is too large to be calculated with."""


_CONSTANTS: dict[str, Any] = {
    "pi": sympy.pi,
    "e": sympy.E,
    "i": sympy.I,
    "inf": sympy.oo,
}
_SETS: dict[str, Any] = {
    "reals": sympy.S.Reals,
    "integers": sympy.S.Integers,
    "naturals": sympy.S.Naturals,
    "rationals": sympy.S.Rationals,
    "complexes": sympy.S.Complexes,
}
_FUNCTIONS: dict[str, Any] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "cot": sympy.cot,
    "sec": sympy.sec,
    "csc": sympy.csc,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "ln": sympy.log,
    "exp": sympy.exp,
    "abs": sympy.Abs,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
    "arg": sympy.arg,
    "Re": sympy.re,
    "Im": sympy.im,
    "sgn": sympy.sign,
    "gcd": sympy.gcd,
    "lcm": sympy.lcm,
    "min": sympy.Min,
    "max": sympy.Max,
}


def to_expression(node: Node) -> Any:
    """The expression of a single value. Raises NotConvertible, and TooLarge."""
    match node:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Symbol(name):
            return _CONSTANTS[name] if name in _CONSTANTS else sympy.Symbol(name)
        case Quantity(value, "%"):
            return to_expression(value) / 100
        case Quantity(value, "deg"):
            return to_expression(value) * sympy.pi / 180
        case Quantity(value, _):
            return to_expression(value)
        case Based(digits, base):
            return sympy.Integer(int(digits, base))
        case Apply("det", (Matrix(rows),)):
            return sympy.Matrix([[to_expression(cell) for cell in row] for row in rows]).det()
        case Apply(head, args):
            return _apply(head, [to_expression(arg) for arg in args])
    raise NotConvertible(f"{type(node).__name__} is no single value")


def _apply(head: str, args: list[Any]) -> Any:
    match head, *args:
        case "add", *terms:
            return sympy.Add(*terms)
        case "neg", value:
            return -value
        case "mul", *factors:
            return sympy.Mul(*factors)
        case "div", left, right:
            return left / right
        case "pow", base, exponent:
            return _power(base, exponent)
        case "root", index, value:
            return _root(value, index)
        case "factorial", value:
            return _factorial(value)
        case "binom", n, k:
            return _binomial(n, k)
        case "log", value, base:
            return sympy.log(value, base)
        case "lg", value:
            return sympy.log(value, 10)
    if head in _FUNCTIONS:
        return _FUNCTIONS[head](*args)
    raise NotConvertible(f"{head} is not known")


def _power(base: Any, exponent: Any) -> Any:
    if not exponent.is_number:
        return sympy.Pow(base, exponent)
    size = _magnitude(exponent)
    if base.is_number:
        if size + math.log2(_height(base)) > math.log2(MAX_BITS) and base not in (0, 1, -1):
            raise TooLarge("a power is too large to be written out")
    elif size > 20:
        raise TooLarge("a power of a variable is too large")
    return sympy.Pow(base, exponent)


def _magnitude(value: Any) -> float:
    """log2(1 + |value|), for a number of any size."""
    if value.is_Rational:
        return max(0.0, value.p.bit_length() - value.q.bit_length() + 1.0) if value != 0 else 0.0
    rough = abs(value).evalf(10)
    if not rough.is_Float and not rough.is_Integer:
        raise TooLarge("an exponent cannot be estimated")
    return float(sympy.log(1 + rough, 2).evalf(10))


def _height(base: Any) -> float:
    """About how many bits one factor of the base takes."""
    if base.is_Rational:
        return float(max(base.p.bit_length(), base.q.bit_length(), 1))
    return max(1.0, _magnitude(base))


def _root(value: Any, index: Any) -> Any:
    if value.is_number and value.is_real and value < 0 and index.is_Integer and index % 2 == 1:
        return -((-value) ** (1 / index))
    return value ** (1 / index)


def _factorial(value: Any) -> Any:
    if value.is_number and not (value.is_Rational and value <= MAX_FACTORIAL):
        raise TooLarge("a factorial is too large")
    return sympy.factorial(value)


def _binomial(n: Any, k: Any) -> Any:
    if (
        n.is_number
        and k.is_number
        and not (n.is_Rational and k.is_Rational and abs(n) < 10**6 and abs(k) <= MAX_FACTORIAL)
    ):
        raise TooLarge("a binomial coefficient is too large")
    return sympy.binomial(n, k)


def to_set(node: Node) -> Any:
    """The set of an interval, a set in braces, or an operation on sets. Raises NotConvertible."""
    match node:
        case Symbol(name) if name in _SETS:
            return _SETS[name]
        case SetOperation("union", args):
            return sympy.Union(*map(to_set, args))
        case SetOperation("intersection", args):
            return sympy.Intersection(*map(to_set, args))
        case SetOperation("difference", (left, right)):
            return sympy.Complement(to_set(left), to_set(right))
        case Listing("{", "}", items):
            return sympy.FiniteSet(*map(to_expression, items))
        case Listing("(" | "[" as opening, ")" | "]" as closing, (left, right)):
            return sympy.Interval(to_expression(left), to_expression(right), opening == "(", closing == ")")
        case Relation():
            raise NotConvertible("a relation is no set")
    return sympy.FiniteSet(to_expression(node))
