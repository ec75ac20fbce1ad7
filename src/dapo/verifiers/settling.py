"""Brings a tree into the form in which it is compared: ± written out, names of unknowns dropped, units peeled off."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dapo.verifiers.nodes import Apply, Listing, Matrix, Node, Number, Quantity, Relation, SetOperation, Symbol, Words
from dapo.verifiers.rational import rational
from dapo.verifiers.vocabulary import LETTER_UNITS, UNITS

_KNOWN_UNITS = frozenset(UNITS.values()) | {"am", "pm"}
_INFINITY = Symbol("inf")
REALS = Listing("(", ")", (Apply("neg", (_INFINITY,)), _INFINITY))


def settle(node: Node) -> Node:
    """The node as it is compared."""
    node = _written_out(node)
    if isinstance(node, Relation):
        return _settled_relation(node)
    if isinstance(node, Listing):
        return _settled_listing(node)
    if isinstance(node, Quantity) and isinstance(node.value, Listing | Matrix | SetOperation | Words):
        return settle(node.value)
    return REALS if node == Symbol("reals") else node


def _settled_relation(node: Relation) -> Node:
    """A chain without its approximate part; `x ≈ 0.5` alone is taken at its word."""
    if "~" in node.signs:
        cut = node.signs.index("~")
        if cut == 0 and is_name(node.terms[0]):
            return settle(Relation(("=", *node.signs[1:]), node.terms))
        return settle(Relation(node.signs[:cut], node.terms[: cut + 1])) if cut else settle(node.terms[0])
    if set(node.signs) == {"="} and isinstance(node.terms[0], Listing) and all(map(is_name, node.terms[0].items)):
        return settle(node.terms[-1])
    if set(node.signs) == {"="} and isinstance(node.terms[-1], Listing) and is_name(node.terms[0]):
        return settle(node.terms[-1])
    return node


def names_differ(gold: Node, answer: Node) -> bool:
    """Whether both say the values of several unknowns, and not of the same ones."""
    left, right = _names(gold), _names(answer)
    return len(left) > 1 and len(right) > 1 and left != right


def _names(node: Node) -> set[Node]:
    """The unknowns of `x = 1, y = 2`; none of anything else."""
    if not isinstance(node, Listing) or node.opening:
        return set()
    equations = [item for item in node.items if isinstance(item, Relation) and item.signs == ("=",)]
    names = {item.terms[0] for item in equations if is_name(item.terms[0])}
    return names if len(names) == len(node.items) else set()


def _as_union(node: Listing) -> SetOperation | None:
    """`x < 1 or x > 2` as a union of intervals."""
    if node.joiner != "or" or node.opening or not all(isinstance(item, Relation) for item in node.items):
        return None
    parts = [as_interval(item) for item in node.items if isinstance(item, Relation)]
    known = tuple(part for part in parts if part is not None)
    return SetOperation("union", known) if len(known) == len(node.items) else None


def _settled_listing(node: Listing) -> Node:
    """A list without names: `n = 2, 3`, `x = 1 or x = 2` and `x = 1, y = 2` are lists of values."""
    union = _as_union(node)
    if union is not None:
        return union
    items = tuple(without_name(item) for item in node.items)
    names = [item.terms[0] for item in node.items if isinstance(item, Relation) and item.signs == ("=",)]
    all_named = len(names) == len(node.items) and all(map(is_name, names))
    if not node.opening and all_named and len(set(names)) == len(names) > 1:
        by_name = sorted(zip(names, items, strict=True), key=lambda pair: str(pair[0]))
        return Listing("(", ")", tuple(item for _, item in by_name))
    if not node.opening and (all_named or (len(names) == 1 and is_name(names[0]) and names[0] == _first_name(node))):
        return Listing("", "", items, node.joiner)
    if len(node.items) == 1 and node.opening in {"{", "["}:
        return node.items[0]
    return _open_at_infinity(node) if is_range(node) else node


def _open_at_infinity(node: Listing) -> Listing:
    """No interval contains infinity, whatever bracket was written."""
    left, right = node.items
    opening = "(" if _is_infinite(left) else node.opening
    closing = ")" if _is_infinite(right) else node.closing
    return Listing(opening, closing, node.items)


def _first_name(node: Listing) -> Node | None:
    first = node.items[0]
    return first.terms[0] if isinstance(first, Relation) else None


def is_name(node: Node) -> bool:
    """Whether the node only names a quantity: `x`, `AB`, `f(x)`, `area`."""
    if isinstance(node, Apply):
        return node.head == "mul" and all(isinstance(arg, Symbol) for arg in node.args)
    return isinstance(node, Symbol | Words)


def without_name(node: Node) -> Node:
    """`x = 5` is 5, `x ∈ S` is S."""
    if isinstance(node, Relation) and node.signs == ("=",) and is_name(node.terms[0]):
        return node.terms[1]
    if isinstance(node, Relation) and node.signs == ("in",):
        return node.terms[1]
    return node


def last_equation(node: Listing) -> Node | None:
    """Of `m = 100, n = 13, m + n = 113` the last equation, which says what was asked for; None of other lists."""
    if node.opening or not all(isinstance(item, Relation) and set(item.signs) == {"="} for item in node.items):
        return None
    *earlier, last = [item for item in node.items if isinstance(item, Relation)]
    is_conclusion = isinstance(last.terms[0], Apply) and all(isinstance(item.terms[0], Symbol) for item in earlier)
    return last if is_conclusion else None


def _written_out(node: Node) -> Node:
    """`1 ± 2` as the list of its two values, also as items of a list."""
    if isinstance(node, Listing):
        items = [part for item in node.items for part in _both_signs(item)]
        return Listing(node.opening, node.closing, tuple(items), node.joiner) if len(items) > len(node.items) else node
    both = _both_signs(node)
    return Listing("", "", tuple(both), "and") if len(both) > 1 else node


def _both_signs(node: Node) -> list[Node]:
    return [_signed(node, 1), _signed(node, -1)] if _holds_sign(node) else [node]


def _holds_sign(node: Node) -> bool:
    match node:
        case Apply(head, args):
            return head in {"pm", "mp"} or any(map(_holds_sign, args))
        case Relation(_, terms):
            return any(map(_holds_sign, terms))
        case Quantity(value, _):
            return _holds_sign(value)
    return False


def _signed(node: Node, sign: int) -> Node:
    match node:
        case Apply("pm" | "mp" as head, (value,)):
            value = _signed(value, sign)
            return value if sign == (1 if head == "pm" else -1) else Apply("neg", (value,))
        case Apply(head, args):
            return Apply(head, tuple(_signed(arg, sign) for arg in args))
        case Relation(signs, terms):
            return Relation(signs, tuple(_signed(term, sign) for term in terms))
        case Quantity(value, unit):
            return Quantity(_signed(value, sign), unit)
    return node


def is_range(node: Node) -> bool:
    """Whether the node can only be an interval: half-open, or with an end at infinity."""
    if not isinstance(node, Listing) or len(node.items) != 2:
        return False
    if (node.opening, node.closing) in {("(", "]"), ("[", ")")}:
        return True
    return node.opening in {"(", "["} and any(_is_infinite(item) for item in node.items)


def _is_infinite(node: Node) -> bool:
    return node == _INFINITY or (isinstance(node, Apply) and node.args == (_INFINITY,))


_DOWN = {"<": ")", "<=": "]"}
_UP = {">": "(", ">=": "["}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_interval(node: Relation) -> Listing | None:
    """`x > 5` and `2 <= x < 3` as intervals of x; None where the chain is nothing like that."""
    signs, terms = node.signs, node.terms
    if any(sign not in _TURNED for sign in signs):
        return None
    if all(sign in _UP for sign in signs):
        signs, terms = tuple(_TURNED[sign] for sign in reversed(signs)), tuple(reversed(terms))
    if any(sign not in _DOWN for sign in signs):
        return None
    if len(terms) == 3 and is_name(terms[1]):
        return Listing("(" if signs[0] == "<" else "[", _DOWN[signs[1]], (terms[0], terms[2]))
    if len(terms) == 2 and is_name(terms[0]) and not is_name(terms[1]):
        return Listing("(", _DOWN[signs[0]], (Apply("neg", (_INFINITY,)), terms[1]))
    if len(terms) == 2 and is_name(terms[1]) and not is_name(terms[0]):
        return Listing("(" if signs[0] == "<" else "[", ")", (terms[0], _INFINITY))
    return None


def as_value(node: Node) -> Node:
    """The node without its unit."""
    return node.value if isinstance(node, Quantity) else node


def _peeled(node: Node, other: Node) -> tuple[Node, str]:
    """Value and unit. `5 m` is five metres where the other side is a number without variables."""
    if isinstance(node, Quantity):
        inner, unit = _peeled(node.value, other)
        return inner, node.unit if not unit or unit == "clock" else unit
    match node:
        case Apply("mul", (*factors, Symbol(name))) if name in LETTER_UNITS and rational(as_value(other)) is not None:
            value: Node = factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))
            return (value, UNITS.get(name, name)) if rational(value) is not None else (node, "")
        case Apply("mul", (*factors, Apply("pow", (Symbol(name), Number(power))))) if (
            name in LETTER_UNITS and rational(as_value(other)) is not None
        ):
            value = factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))
            return (value, f"{UNITS.get(name, name)}^{power}") if rational(value) is not None else (node, "")
    return node, ""


def conflicting_units(gold: Node, answer: Node) -> bool:
    """Whether both name a unit that is known, and not the same; a forgotten power (`cm` for `cm^2`) is let pass."""
    left, right = (unit.partition("^")[0] for unit in (_peeled(gold, answer)[1], _peeled(answer, gold)[1]))
    if left == right or {left, right} == {"deg", "rad"}:
        return False
    return left in _KNOWN_UNITS and right in _KNOWN_UNITS


def unit_readings(gold: Node, answer: Node) -> Iterator[tuple[Node, Node]]:
    """The pairs of values that may be equal: 28% is written as 28 or as 0.28, an angle in degrees or in radians."""
    (left, left_unit), (right, right_unit) = _peeled(gold, answer), _peeled(answer, gold)
    yield left, right
    if left_unit == "%" and right_unit != "%":
        yield _hundredth(left), right
    if right_unit == "%" and left_unit != "%":
        yield left, _hundredth(right)
    if left_unit == "deg" and right_unit != "deg" and rational(right) is None:
        yield _radians(left), right
    if right_unit == "deg" and left_unit != "deg" and rational(left) is None:
        yield left, _radians(right)


def _hundredth(node: Node) -> Node:
    return Apply("div", (node, Number(Fraction(100))))


def _radians(node: Node) -> Node:
    return Apply("mul", (node, Symbol("pi"), Apply("div", (Number(Fraction(1)), Number(Fraction(180))))))
