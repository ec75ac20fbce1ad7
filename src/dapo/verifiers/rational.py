"""Exact arithmetic on rational numbers, in bounded time and memory; everything else is left to `symbolic`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dapo.verifiers.nodes import Apply, Based, Node, Number, Quantity

MAX_BITS = 100_000
"""Numbers beyond this size are not calculated here."""
MAX_FACTORIAL = 3000


def rational(node: Node) -> Fraction | None:
    """The exact value of a node that is a rational number by arithmetic alone; None where it is not, or too large.

    Percent divides by a hundred; other units are no part of the value.
    """
    match node:
        case Number(value):
            return value
        case Based(digits, base):
            return Fraction(int(digits, base)) if len(digits) <= 1000 else None
        case Quantity(value, unit):
            inner = rational(value)
            return inner / 100 if inner is not None and unit == "%" else inner
        case Apply(head, args):
            values = [rational(arg) for arg in args]
            known = [value for value in values if value is not None]
            if len(known) < len(values) or sum(_bits(value) for value in known) > MAX_BITS:
                return None
            return _apply(head, known)
        case _:
            return None


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _apply(head: str, args: Sequence[Fraction]) -> Fraction | None:
    if head in _OF_ONE and len(args) == 1:
        return _OF_ONE[head](args[0])
    if head in _OF_TWO and len(args) == 2:
        return _OF_TWO[head](args[0], args[1])
    return _OF_MANY[head](args) if head in _OF_MANY else None


def _sum(terms: Sequence[Fraction]) -> Fraction | None:
    total = Fraction(0)
    for term in terms:
        total += term
        if _bits(total) > MAX_BITS:
            return None
    return total


def _product(factors: Sequence[Fraction]) -> Fraction | None:
    product = Fraction(1)
    for factor in factors:
        if _bits(product) + _bits(factor) > MAX_BITS:
            return None
        product *= factor
    return product


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None else _power(root, Fraction(exponent.numerator))
    if base == 0:
        return Fraction(0) if exponent > 0 else None
    if abs(base) == 1:
        return base if exponent.numerator % 2 else Fraction(1)
    if abs(exponent) * _bits(base) > MAX_BITS:
        return None
    return base**exponent.numerator


def _root(value: Fraction, index: Fraction) -> Fraction | None:
    """The root where it is rational; None where it is not, or not real."""
    if index.denominator != 1 or not 2 <= index <= 64 or _bits(value) > 4096 or (value < 0 and index % 2 == 0):
        return None
    degree = int(index)
    numerator = _whole_root(abs(value.numerator), degree)
    denominator = _whole_root(value.denominator, degree)
    if numerator is None or denominator is None:
        return None
    return Fraction(numerator if value >= 0 else -numerator, denominator)


def _whole_root(value: int, degree: int) -> int | None:
    """Newton's method on whole numbers, from above."""
    if value < 2:
        return value
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess if guess**degree == value else None
        guess = better


def _factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        return None
    return Fraction(math.factorial(int(value)))


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    if n.denominator != 1 or k.denominator != 1 or not 0 <= n <= 10_000 or k < 0:
        return None
    return Fraction(math.comb(int(n), int(k))) if min(k, n - k) <= MAX_FACTORIAL else None


def _of_integers(whole: Callable[..., int]) -> Callable[[Sequence[Fraction]], Fraction | None]:
    """A function of integers as one of rational numbers that happen to be integers."""

    def of_rationals(values: Sequence[Fraction]) -> Fraction | None:
        if any(value.denominator != 1 for value in values):
            return None
        return Fraction(whole(*(value.numerator for value in values)))

    return of_rationals


_OF_ONE: dict[str, Callable[[Fraction], Fraction | None]] = {
    "neg": lambda value: -value,
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "factorial": _factorial,
}
_OF_TWO: dict[str, Callable[[Fraction, Fraction], Fraction | None]] = {
    "div": lambda left, right: left / right if right else None,
    "pow": _power,
    "root": lambda index, value: _root(value, index),
    "binom": _binomial,
}
_OF_MANY: dict[str, Callable[[Sequence[Fraction]], Fraction | None]] = {
    "add": _sum,
    "mul": _product,
    "min": min,
    "max": max,
    "gcd": _of_integers(math.gcd),
    "lcm": _of_integers(math.lcm),
}
