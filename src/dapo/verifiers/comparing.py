"""Compares two trees by what they are: numbers, lists, sets, intervals, equations, inequalities, matrices, words.

Every comparison is three-valued: True, False, or None where it takes more than the judge at hand can do. The judge
decides on single values; `quick` has one for rational numbers and `symbolic` one for the rest of mathematics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dapo.verifiers.nodes import Apply, Listing, Matrix, Node, Number, Quantity, Relation, SetOperation, Symbol, Words
from dapo.verifiers.rational import rational
from dapo.verifiers.settling import (
    as_interval,
    as_value,
    conflicting_units,
    is_name,
    is_range,
    last_equation,
    names_differ,
    settle,
    unit_readings,
    without_name,
)

Verdict = bool | None


class Judge(Protocol):
    """Decides on single values."""

    def same(self, gold: Node, answer: Node) -> Verdict:
        """Whether two values are equal."""
        ...

    def ratio_sign(self, gold: Node, answer: Node) -> int | None:
        """The sign of the constant c with gold = c * answer; 0 where there is none, None where it cannot tell."""
        ...

    def same_zeros(self, gold: Node, answer: Node) -> Verdict:
        """Whether two equations `… = 0` say the same."""
        ...

    def same_set(self, gold: Node, answer: Node) -> Verdict:
        """Whether two sets or intervals hold the same numbers."""
        ...


def equal(gold: Node, answer: Node, judge: Judge) -> Verdict:
    """Whether an answer is equal to the gold. The gold's form leads: a single value, a list, a set, an equation."""
    if names_differ(gold, answer):
        return False
    gold, answer = settle(gold), settle(answer)
    if gold == answer:
        return True
    if isinstance(gold, Words) or isinstance(answer, Words):
        return False
    if isinstance(gold, Relation) and gold.signs[0] != ":":
        return _relation(gold, answer, judge)
    if isinstance(answer, Relation) and answer.signs[0] != ":":
        return _against_relation(gold, answer, judge)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _matrix(gold, answer, judge)
    if _is_set(gold) or _is_set(answer):
        return _set(gold, answer, judge)
    if isinstance(gold, Listing):
        return _listing(gold, answer, judge)
    if isinstance(answer, Listing):
        return _value_against_list(gold, answer, judge)
    return _value(gold, answer, judge)


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """False if one is False; else None if one is open; else True."""
    is_open = False
    for verdict in verdicts:
        if verdict is False:
            return False
        is_open = is_open or verdict is None
    return None if is_open else True


def some(verdicts: Iterable[Verdict]) -> Verdict:
    """True if one is True; else None if one is open; else False."""
    is_open = False
    for verdict in verdicts:
        if verdict:
            return True
        is_open = is_open or verdict is None
    return None if is_open else False


def _value(gold: Node, answer: Node, judge: Judge) -> Verdict:
    """Two single values with their units: a percentage may be written as its number, a unit may be left out."""
    if conflicting_units(gold, answer):
        return False
    if isinstance(as_value(gold), Relation) or isinstance(as_value(answer), Relation):
        return _ratio(as_value(gold), as_value(answer), judge)
    return some(judge.same(left, right) for left, right in unit_readings(gold, answer))


def _ratio(gold: Node, answer: Node, judge: Judge) -> Verdict:
    """Ratios by cross-multiplication, clock times part by part."""
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        if len(gold.terms) != len(answer.terms):
            return False
        if _is_clock(gold) or _is_clock(answer):
            return every(judge.same(g, a) for g, a in zip(gold.terms, answer.terms, strict=True))
        return every(
            judge.same(Apply("mul", (gold.terms[0], a)), Apply("mul", (g, answer.terms[0])))
            for g, a in zip(gold.terms[1:], answer.terms[1:], strict=True)
        )
    if _is_whole(gold) or _is_whole(answer):
        return False
    if isinstance(gold, Relation):
        return judge.same(Apply("div", gold.terms), answer) if len(gold.terms) == 2 and not _is_clock(gold) else False
    if isinstance(answer, Relation):
        return (
            judge.same(gold, Apply("div", answer.terms)) if len(answer.terms) == 2 and not _is_clock(answer) else False
        )
    return None


def _is_whole(node: Node) -> bool:
    value = rational(node)
    return value is not None and value.denominator == 1


def _is_clock(ratio: Relation) -> bool:
    if any(isinstance(term, Quantity) and term.unit == "clock" for term in ratio.terms):
        return True
    values = [rational(term) for term in ratio.terms]
    hour, minute = values[0], values[1]
    return hour is not None and minute is not None and 0 <= hour <= 24 and 10 <= minute < 60


def _value_against_list(gold: Node, answer: Listing, judge: Judge) -> Verdict:
    """A list is not a number. Only "1/2 or 0.5", the same value twice, and a list that ends on an equation are."""
    if answer.joiner == "or" and not answer.opening:
        return every(equal(gold, item, judge) for item in answer.items)
    conclusion = last_equation(answer)
    return equal(gold, conclusion, judge) if conclusion is not None else False


def _listing(gold: Listing, answer: Node, judge: Judge) -> Verdict:
    if not isinstance(answer, Listing):
        if gold.joiner == "or" and _are_plain_alternatives(gold):
            return some(equal(item, answer, judge) for item in gold.items)
        return False
    ordered = _in_order(gold, answer, judge)
    match gold.opening, answer.opening:
        case ("(" | "<", "(" | "<") | ("[", "["):
            return ordered
        case ("(", "[") | ("[", "("):
            return ordered if len(gold.items) > 2 else False
        case ("{", "{" | "") | ("", "{"):
            return _in_any_order(_distinct(gold.items), _distinct(answer.items), judge)
        case ("", ""):
            return _in_any_order(gold.items, answer.items, judge)
        case ("", "(") | ("(" | "<", ""):
            return ordered
        case _:
            return False


def _are_plain_alternatives(gold: Listing) -> bool:
    """`080 or 081` names two accepted answers; `x = 1 or x = 2` names one answer with two parts."""
    return not gold.opening and all(isinstance(item, Number) for item in gold.items)


def _distinct(items: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(items))


def _in_order(gold: Listing, answer: Listing, judge: Judge) -> Verdict:
    if len(gold.items) != len(answer.items):
        return False
    return every(equal(g, a, judge) for g, a in zip(gold.items, answer.items, strict=True))


def _in_any_order(gold: Sequence[Node], answer: Sequence[Node], judge: Judge) -> Verdict:
    """Pairs every item with a different one. Equality is transitive, so that the first partner is as good as any."""
    if len(gold) != len(answer):
        return False
    left = list(answer)
    is_open = False
    for item in gold:
        verdicts = [equal(item, other, judge) for other in left]
        if True in verdicts:
            left.pop(verdicts.index(True))
        elif None in verdicts:
            is_open = True
        else:
            return False
    return None if is_open else True


def _matrix(gold: Node, answer: Node, judge: Judge) -> Verdict:
    """Matrices element by element; a row or a column may be written as a tuple."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix) and len(gold.rows) != len(answer.rows):
        return False
    left, right = _cells(gold), _cells(answer)
    if left is None or right is None or len(left) != len(right):
        return False
    return every(equal(g, a, judge) for g, a in zip(left, right, strict=True))


def _cells(node: Node) -> tuple[Node, ...] | None:
    """The elements of a matrix row by row, or of a tuple."""
    match node:
        case Matrix(rows):
            return tuple(cell for row in rows for cell in row)
        case Listing("(" | "<" | "[", ")" | ">" | "]", items):
            return items
    return None


def _is_set(node: Node) -> bool:
    return isinstance(node, SetOperation) or is_range(node) or node in (Symbol("reals"), Symbol("integers"))


def _set(gold: Node, answer: Node, judge: Judge) -> Verdict:
    """Intervals end by end, unions part by part; where that does not settle it the judge does."""
    if isinstance(gold, Listing) and isinstance(answer, Listing) and gold.opening and answer.opening:
        if (gold.opening, gold.closing) == (answer.opening, answer.closing):
            return _in_order(gold, answer, judge)
        if "{" not in (gold.opening, answer.opening) and len(gold.items) == len(answer.items) == 2:
            return False
    if isinstance(gold, SetOperation) and isinstance(answer, SetOperation):
        if gold.head == answer.head == "union" and _in_any_order(gold.args, answer.args, judge):
            return True
    elif not isinstance(gold, Listing | SetOperation | Symbol) or not isinstance(
        answer, Listing | SetOperation | Symbol
    ):
        return False
    return judge.same_set(gold, answer)


def _relation(gold: Relation, answer: Node, judge: Judge) -> Verdict:
    """The gold is an equation or an inequality."""
    if gold.signs[0] == "in":
        return equal(gold.terms[-1], without_name(answer), judge)
    if isinstance(answer, Relation) and answer.signs[0] == "in":
        answer = answer.terms[-1]
    if not isinstance(answer, Relation):
        interval = as_interval(gold)
        if interval is not None:
            return equal(interval, answer, judge) if _is_set(answer) or isinstance(answer, Listing) else False
        if set(gold.signs) == {"="} and is_name(gold.terms[0]):
            return equal(gold.terms[-1], answer, judge)
        return False
    if len(gold.signs) == len(answer.signs) == 1:
        return _one_sign(gold, answer, judge)
    left, right = as_interval(gold), as_interval(answer)
    if left is not None and right is not None and left.opening == right.opening and left.closing == right.closing:
        return every([_same_variable(gold, answer), _in_order(left, right, judge)])
    if set(gold.signs) == set(answer.signs) == {"="}:
        ends = Relation(("=",), (gold.terms[0], gold.terms[-1])), Relation(("=",), (answer.terms[0], answer.terms[-1]))
        return _one_sign(*ends, judge)
    return False


def _same_variable(gold: Relation, answer: Relation) -> bool:
    return {term for term in gold.terms if is_name(term)} == {term for term in answer.terms if is_name(term)}


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def _one_sign(gold: Relation, answer: Relation, judge: Judge) -> Verdict:
    """`2x + 4y = 3` and `y = 3/4 - x/2` are one line, `-x > -1` is `x < 1`: the differences are proportional."""
    gold_sign, answer_sign = gold.signs[0], answer.signs[0]
    if gold_sign == answer_sign == "=" and is_name(gold.terms[0]) and is_name(answer.terms[0]):
        verdict = equal(gold.terms[1], answer.terms[1], judge)
        if gold.terms[0] == answer.terms[0]:
            return verdict
        if verdict and any(isinstance(relation.terms[0], Words | Apply) for relation in (gold, answer)):
            return True
    if answer_sign not in {gold_sign, _TURNED.get(gold_sign)}:
        return False
    if gold_sign in {"=", "!="}:
        return judge.same_zeros(_difference(gold), _difference(answer))
    sign = judge.ratio_sign(_difference(gold), _difference(answer))
    if sign is None:
        return None
    return sign == (1 if answer_sign == gold_sign else -1)


def _difference(relation: Relation) -> Node:
    return Apply("add", (as_value(relation.terms[0]), Apply("neg", (as_value(relation.terms[1]),))))


def _against_relation(gold: Node, answer: Relation, judge: Judge) -> Verdict:
    """The gold is no relation: an equation gives the value on its right, an inequality gives an interval."""
    if answer.signs[0] == "in":
        return equal(gold, answer.terms[-1], judge)
    if set(answer.signs) == {"="}:
        return _equation_as_value(gold, answer, judge)
    interval = as_interval(answer)
    if interval is None or not (_is_set(gold) or isinstance(gold, Listing)):
        return False
    return equal(gold, interval, judge)


def _equation_as_value(gold: Node, answer: Relation, judge: Judge) -> Verdict:
    """`m + n = 100 + 13 = 113` gives 113; `7 = 540` gives nothing, since it is false."""
    terms = answer.terms
    value = terms[-1]
    if isinstance(value, Symbol) and not isinstance(gold, Symbol) and rational(terms[0]) is not None:
        value = terms[0]
    known = [rational(term) for term in terms]
    numbers = {number for number in known if number is not None}
    if len(numbers) > 1:
        return False
    return equal(gold, value, judge)
