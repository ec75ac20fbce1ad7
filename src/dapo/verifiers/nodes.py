"""A parsed answer: a small tree of exact values. Nothing in it is evaluated when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number that was written in digits."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, or one of the constants `pi`, `e`, `i`, `inf`, `reals`, `integers`, `naturals`, `rationals`."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function applied: `add`, `mul`, `div`, `pow`, `neg`, `pm`, `root` (index, value), `sin`, …"""

    head: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with what was written after it: `cm^2`, `ways`, `%`, `deg`."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a stated base, e.g. 204 in base 5."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Several values between brackets, or without any (`opening` empty); `joiner` is `,` or `or` or `and`."""

    opening: str
    closing: str
    items: tuple[Node, ...]
    joiner: str = ","


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain such as `0 <= x < 5`: one sign fewer than terms. Signs: = != < <= > >= ~ (about) in : (ratio)."""

    signs: tuple[str, ...]
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`union`, `intersection` or `difference` of sets."""

    head: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of equal length."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words, lower case, one space between them."""

    text: str


Node = Number | Symbol | Apply | Quantity | Based | Listing | Relation | SetOperation | Matrix | Words
