"""When two texts are one problem: a normal form, and the words that overlaps are counted in."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib
from array import array

from dapo.data.templates import strip_wrapper

_FIGURE = re.compile(r"(?:\[asy\]|<asy>|\\begin\{asy\}).*?(?:\[/asy\]|</asy>|\\end\{asy\}|\Z)", re.DOTALL)
_STYLE = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|nolimits|text|textit|textbf|textrm|emph|mathrm|mathbf|mathit"
    r"|bigl|bigr|big|quad|qquad|item|noindent)(?![a-z])|\\[,;!: \\()\[\]]|\[/?[biu]\]"
)
_FRACTION = re.compile(r"\\[dtc]frac(?![a-z])")
_EATEN_FRACTION = re.compile(r"\x0crac(?![a-z])")
_FULL_STOP = re.compile(r"(?<!\d)\.|\.(?!\d)")
_DROPPED = re.compile(r"[\s$~{},;:\"“”‘’`?'*\\\x00-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r"\d+|[a-z]+|[^\x00-\x7f]|[+\-*/=<>^!|]")


def without_figures(text: str) -> str:
    """Leave out drawings in Asymptote: their code says where to draw, not what is asked."""
    return _FIGURE.sub(" ", text)


def normal_form(text: str) -> str:
    """Return what is left of a problem when its typesetting is taken off.

    Gone: the DAPO wrapper, white space, letter case, punctuation between words, dollar signs, braces, style commands,
    and the difference between \\frac, \\dfrac and \\tfrac. Left: words, numbers, operators, brackets and figures.
    """
    plain = unicodedata.normalize("NFKC", strip_wrapper(text)).casefold()
    plain = _FRACTION.sub(r"\\frac", _EATEN_FRACTION.sub(r"\\frac", plain))
    return _DROPPED.sub("", _FULL_STOP.sub("", _STYLE.sub("", plain)))


def text_key(text: str) -> bytes:
    """16 bytes that are equal for texts of one normal form."""
    return hashlib.blake2b(normal_form(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fingerprint(text: str) -> str:
    """The sha256, in hex, of the normal form without figures: names a problem without showing it."""
    return hashlib.sha256(normal_form(without_figures(text)).encode("utf-8", "surrogatepass")).hexdigest()


def tokens(text: str) -> list[str]:
    """Words, numbers, operators and single Chinese characters, without wrapper, figures and letter case."""
    plain = unicodedata.normalize("NFKC", strip_wrapper(text)).casefold()
    plain = without_figures(_EATEN_FRACTION.sub(r"\\frac", plain))
    return _TOKEN.findall(_STYLE.sub(" ", plain))


def runs(words: list[str], length: int) -> set[int]:
    """32-bit hashes of all runs of `length` words; one run where there are fewer words."""
    return {
        zlib.crc32(" ".join(words[begin : begin + length]).encode("utf-8", "surrogatepass"))
        for begin in range(max(1, len(words) - length + 1))
    }


def numbers_of(words: list[str]) -> list[str]:
    """The numbers among the words, in their order."""
    return [word for word in words if word[0].isdigit()]


def figure_digits(text: str) -> str:
    """All digits of the drawings of a text, sorted; empty without one."""
    return "".join(sorted(character for figure in _FIGURE.findall(text) for character in figure if character.isdigit()))


def as_array(hashes: set[int]) -> array[int]:
    """Hashes in rising order, four bytes each."""
    return array("I", sorted(hashes))
