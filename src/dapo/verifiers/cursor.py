"""A position in the text of an answer, and how it moves on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dapo.verifiers import signs
from dapo.verifiers.boxes import closing_brace
from dapo.verifiers.vocabulary import COMMON_WORDS, CONSTANTS, FUNCTION_SPELLINGS, FUNCTIONS, UNITS

MAX_DEPTH = 64
MAX_DIVISIONS = 100
_CLOSING = re.compile(r"[)\]}|]|\\[}|]|\\(?:rangle|rfloor|rceil|rvert|rbrace|vert|end)(?![A-Za-z])")
_LETTER_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log")


class NotMathematics(ValueError):
    """The text is no mathematical value, or none that can be read without guessing."""


class NeedsLibrary(NotMathematics):
    """The text holds an operation that only the mathematics library reads, such as a sum or an integral."""


class Cursor:
    """Where reading stands, how deep it is nested, and how many brackets are open."""

    def __init__(self, text: str, *, depth: int = 0, brackets: int = 0) -> None:
        self.text = text
        self.position = 0
        self.depth = depth
        self.brackets = brackets
        self.bars = 0
        self.divisions = 0

    def blank(self) -> bool:
        """Pass over what means nothing; returns whether anything was passed."""
        match = signs.BLANK.match(self.text, self.position)
        if match is None:
            return False
        self.position = match.end()
        return True

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass over blanks and the pattern; None where it does not stand here."""
        self.blank()
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def sees(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern stands here, after blanks."""
        self.blank()
        return pattern.match(self.text, self.position) is not None

    def take_word(self, *words: str) -> str | None:
        """Pass over one of these words."""
        self.blank()
        match = signs.LETTERS.match(self.text, self.position)
        if match is None or match[0].lower() not in words:
            return None
        self.position = match.end()
        return match[0].lower()

    def starts(self, sign: str) -> bool:
        """Whether the text goes on with this sign."""
        return self.text.startswith(sign, self.position)

    def at_end(self) -> bool:
        self.blank()
        return self.position >= len(self.text)

    def at_closing(self) -> bool:
        """Whether a bracket, a bar or an environment closes here."""
        return self.sees(_CLOSING)

    def at_digit(self) -> bool:
        self.blank()
        return self.text[self.position : self.position + 1].isdigit() or self.sees(_POINT_DIGIT)

    def rest(self) -> str:
        """What has not been read, cut short for a message."""
        left = self.text[self.position :]
        return left if len(left) <= 40 else left[:40] + "…"

    def group(self) -> str:
        """The inside of the brace group that was just opened; the cursor moves behind it."""
        end = closing_brace(self.text, self.position)
        if end is None:
            raise NotMathematics("a brace is not closed")
        inside = self.text[self.position : end]
        self.position = end + 1
        return inside

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting. Raises NotMathematics beyond the limit, long before Python's own."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMathematics(f"the answer is nested more than {MAX_DEPTH} levels deep")
        yield
        self.depth -= 1

    def count_division(self) -> None:
        """Count a sign of division: each makes the tree one level deeper. Raises NotMathematics beyond the limit."""
        self.divisions += 1
        if self.divisions > MAX_DIVISIONS:
            raise NotMathematics(f"the answer divides more than {MAX_DIVISIONS} times")

    def letters(self) -> str | None:
        """The name that the letters here begin with: a function, a constant or one variable; None for a word."""
        match = signs.LETTERS.match(self.text, self.position)
        return None if match is None else first_name(match[0])


_POINT_DIGIT = re.compile(r"\.\d")


def first_name(run: str) -> str | None:
    """`sin`, `pi` and `x` are names; of `xy` the name is `x`, of `sinx` it is `sin`; `apples` is a word: None."""
    if run in FUNCTIONS or run in FUNCTION_SPELLINGS or run in CONSTANTS or run.lower() in {"sqrt", "infinity"}:
        return run
    for name in _LETTER_FUNCTIONS:
        if run.startswith(name) and len(run) == len(name) + 1:
            return name
    if len(run) == 1:
        return run
    return None if len(run) >= 4 or run in COMMON_WORDS or run in UNITS else run[0]


def is_mathematical(words: str) -> bool:
    """Whether all of these words are names of variables, functions or constants."""
    return all(first_name(run) is not None for run in signs.LETTERS.findall(words))
