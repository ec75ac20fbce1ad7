"""What can be decided in the calling process: numbers in digits, rational arithmetic, the kind of an answer.

Bounded: texts longer than a few thousand signs are only compared as digits, in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from dapo.verifiers import grammar, statement
from dapo.verifiers.comparing import Verdict, equal
from dapo.verifiers.cursor import NeedsLibrary, NotMathematics
from dapo.verifiers.integers import DecimalNumber, read_number
from dapo.verifiers.nodes import Apply, Based, Listing, Node, Relation, Symbol, Words
from dapo.verifiers.rational import rational
from dapo.verifiers.settling import is_name
from dapo.verifiers.text import overrides_direction, to_plain

_BOX = re.compile(r"\\(?:boxed|fbox|text|textbf|mathbf|mathrm|mbox|bm|boldsymbol)\s?\{([^{}]*)\}")
_HUNDREDTH = -2
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Value:
    """A stated answer, or a gold: its text, and what it was read as.

    At most one of the rest is set: `number` (decimal digits; `percent` if a percent sign followed), `node` (a tree),
    `library` (a text that only the mathematics library reads). All are empty where the text is no value.
    """

    text: str
    number: DecimalNumber | None = None
    percent: bool = False
    node: Node | None = None
    library: str | None = None
    choice: str | None = None

    @property
    def source(self) -> str:
        """The text that stands for all of the value."""
        return self.library or (f"{self.text}\\%" if self.percent else self.text)

    @property
    def shown(self) -> str:
        """The answer for people and for votes: whole numbers in plain digits, everything else as it was written."""
        if self.number is not None and self.number.is_integer and self.number.exponent <= 50 and not self.percent:
            digits = self.number.digits + "0" * self.number.exponent or "0"
            text = f"-{digits}" if self.number.negative else digits
        else:
            text = self.text
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def read_value(text: str, *, free: bool = False) -> Value:
    """Read a stated answer. `free`: no marker stood before it, so only its end may be the value."""
    if len(text) > statement.MAX_TIDIED and not text.isascii():
        return Value(text[:_SHOWN])
    plain = to_plain(text)
    number = _number(plain)
    if number is not None and not overrides_direction(text):
        return number
    if overrides_direction(text):
        return Value(statement.tidy(plain))
    words: Value | None = None
    for candidate in statement.candidates(plain, free=free):
        value = _candidate(candidate)
        if value is None:
            continue
        if not isinstance(value.node, Words):
            return value
        words = value
    return words or Value(statement.tidy(plain))


def _number(plain: str) -> Value | None:
    """A text that is a number in digits and decoration, without building a tree."""
    text = statement.tidy(plain)
    if "\\" in text and len(text) < 200 and (box := _BOX.fullmatch(text)):
        text = statement.tidy(box[1])
    text = text.strip("$ ")
    percent = text.endswith("%")
    if percent:
        text = text[:-1].rstrip("\\ ")
    number = read_number(text)
    return None if number is None else Value(text, number=number, percent=percent)


def _candidate(text: str) -> Value | None:
    choice = None
    labelled = statement.label(text)
    if labelled is not None:
        choice, text = labelled
    number = _number(text)
    if number is not None:
        return Value(number.text, number=number.number, percent=number.percent, choice=choice)
    try:
        node = grammar.parse(text)
        return None if _is_broken_list(node) else Value(text, node=node, choice=choice)
    except NeedsLibrary:
        return Value(text, library=text, choice=choice)
    except NotMathematics:
        return Value(text, choice=choice) if choice is not None else None


def _is_broken_list(node: Node) -> bool:
    """Whether a comma or an "and" parts a value from mere words, as in "34 and nothing else"."""
    return isinstance(node, Listing) and len({isinstance(item, Words) for item in node.items}) == 2


@lru_cache(maxsize=4096)
def read_gold(text: str) -> Value:
    """Read a gold answer. Of a GSM8K solution only what follows its last `####` counts."""
    if "####" in text:
        text = text.rpartition("####")[2]
    return read_value(text)


def is_in_words(gold: Value) -> bool:
    """Whether the gold is a name, a word or a letter, so that an answer need hold no mathematical sign."""
    return isinstance(gold.node, Words | Symbol) or (gold.number is None and gold.node is None)


_NOISE = re.compile(
    r"[\s$~]|\\[,;:! ]|\\(?:left|right|displaystyle|text|mathrm|textbf|mathbf|mbox)(?![A-Za-z])|\\[()\[\]]|[.,;]$"
)
_LETTERS = re.compile(r"[^a-z0-9]+")
_BETWEEN_DIGITS = re.compile(r"(?<=[\d.,])\s+(?=[\d.,])")
_FRACTION = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_CHOICE = re.compile(r"\W*(?:\\(?:text|mathrm|textbf|mathbf)\W*)?\(?([A-H])\)?\W*")


def same_text(gold: str, answer: str) -> bool:
    """Whether two texts differ only by spaces and layout; spaces between digits are no layout."""
    left, right = _without_layout(gold), _without_layout(answer)
    return left == right and left.strip("{}()") != ""


def _without_layout(text: str) -> str:
    text = _BETWEEN_DIGITS.sub("#", _NOISE.sub(" ", _FRACTION.sub(r"\\frac", text)))
    return text.replace(" ", "")


def same_words(gold: str, answer: str) -> bool:
    """Whether two texts hold the same words, whatever case and punctuation."""
    left, right = (_LETTERS.sub(" ", _NOISE_WORDS.sub(" ", text).lower()).strip() for text in (gold, answer))
    return left == right != ""


_NOISE_WORDS = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox|textit|emph|boxed)(?![A-Za-z])|\b(?:the|a|an)\b", re.I)


def decide(gold: Value, answer: Value) -> Verdict:
    """Whether the answer is equal to the gold; None where it takes symbolic mathematics."""
    if gold.number is not None and answer.number is not None:
        return _same_number(gold, answer)
    if gold.number is None and same_text(gold.text, answer.text):
        return True
    letter = _CHOICE.fullmatch(gold.text)
    if letter is not None and answer.choice is not None:
        return letter[1] == answer.choice
    if isinstance(gold.node, Words) or _is_nothing(gold):
        return same_words(gold.text, answer.text)
    if isinstance(answer.node, Words):
        return is_name(gold.node) and same_words(gold.text, answer.text) if gold.node is not None else False
    if gold.library is not None or answer.library is not None:
        return None
    if _is_nothing(answer):
        return False
    left, right = node_of(gold), node_of(answer)
    return False if left is None or right is None else equal(left, right, QuickJudge())


def _is_nothing(value: Value) -> bool:
    return value.number is None and value.node is None and value.library is None


def _same_number(gold: Value, answer: Value) -> bool:
    left, right = gold.number, answer.number
    if left is None or right is None:
        return False
    if left == right:
        return True
    if gold.percent == answer.percent:
        return False
    return left.shifted(_HUNDREDTH) == right if gold.percent else right.shifted(_HUNDREDTH) == left


def node_of(value: Value) -> Node | None:
    """The tree of a value; None where it has too many digits for one."""
    if value.node is not None:
        return value.node
    try:
        return grammar.parse(value.source)
    except NotMathematics:
        return None


class QuickJudge:
    """Decides on rational numbers and plain symbols."""

    def same(self, gold: Node, answer: Node) -> Verdict:
        if gold == answer:
            return True
        if isinstance(gold, Based) != isinstance(answer, Based):
            return False
        left, right = rational(gold), rational(answer)
        if left is not None and right is not None:
            return left == right
        if isinstance(gold, Symbol) and isinstance(answer, Symbol):
            return False
        if (left is not None and _is_monomial(answer)) or (right is not None and _is_monomial(gold)):
            return False
        return None

    def ratio_sign(self, gold: Node, answer: Node) -> int | None:
        return 1 if gold == answer else None

    def same_zeros(self, gold: Node, answer: Node) -> Verdict:
        return True if gold == answer else None

    def same_set(self, gold: Node, answer: Node) -> Verdict:
        return True if gold == answer else None


def _is_monomial(node: Node) -> bool:
    """A symbol, or a product of numbers and symbols: never a rational number other than 0."""
    if isinstance(node, Symbol):
        return True
    return isinstance(node, Apply) and node.head == "mul" and _factors_are_plain(node)


def _factors_are_plain(node: Apply) -> bool:
    values = [rational(arg) for arg in node.args]
    symbols = [arg for arg in node.args if isinstance(arg, Symbol)]
    return bool(symbols) and all(
        isinstance(arg, Symbol) or (value is not None and value != 0)
        for arg, value in zip(node.args, values, strict=True)
    )


def why_not(gold: Value, answer: Value) -> str:
    """The reason of a wrong answer, in words."""
    if _is_nothing(answer):
        return "the stated answer is no single value"
    single = gold.number is not None
    if single and isinstance(answer.node, Listing):
        return "a list is not a number"
    if single and isinstance(answer.node, Relation):
        return "the relation gives another value, or none"
    if isinstance(answer.node, Words) and single:
        return "words are not a number"
    return "another value than the gold"
