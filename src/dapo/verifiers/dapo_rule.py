"""The rule of the DAPO authors, as they published it, for people who reproduce their numbers.

It reads the last `Answer:` line within the last 300 characters, rewrites it by fixed replacements (those of the Minerva
paper) and compares strings. Its known gaps are kept on purpose; docs/verifier.md lists them. Every step is linear.
"""

from __future__ import annotations

import re

from dapo.verifiers.grades import Grade

WINDOW = 300
"""Characters at the end of a response that the rule sees."""

_ANSWER_LINE = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)
_REMOVED = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points"),
    *("feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples"),
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    '"',
    "\\dots",
)
_UNWRAPPED = ("\\text{", "\\textbf{", "\\overline{")
_SHORT_FRACTION = re.compile(r"frac([^{])(.)")
_SHORT_ROOT = re.compile(r"sqrt([^{])")


def grade(response: str, gold: str) -> Grade:
    """Grade by the rule. Where no `Answer:` line is in sight the rule compares the text `[INVALID]`."""
    lines = _ANSWER_LINE.findall(response[-WINDOW:])
    answer = normalize(lines[-1] if lines else "[INVALID]")
    correct = answer == normalize(gold)
    if not lines:
        return Grade(correct=correct, extracted=None, why=f"no answer line within the last {WINDOW} characters")
    why = "the same text after normalisation" if correct else "another text after normalisation"
    return Grade(correct=correct, extracted=answer, why=why)


def normalize(answer: str) -> str:
    """Rewrite an answer as the rule does before it compares."""
    answer = answer.rpartition("=")[2]
    for old, new in _REPLACED:
        answer = answer.replace(old, new)
    for removed in _REMOVED:
        answer = answer.replace(removed, "")
    answer = _first_formula(answer)
    for opening in _UNWRAPPED:
        answer = _unwrap_each(answer, opening)
    answer = _unwrap_box(answer)
    answer = _SHORT_FRACTION.sub(r"frac{\1}{\2}", answer)
    answer = _SHORT_ROOT.sub(r"sqrt{\1}", answer)
    answer = answer.replace("$", "")
    digits = answer.replace(",", "")
    return (digits if digits.isdigit() else answer).strip()


def _first_formula(text: str) -> str:
    """Of a text with two dollar signs only what stands between the first two."""
    _, opening, rest = text.partition("$")
    inside, closing, _ = rest.partition("$")
    return f"${inside}$" if opening and closing else text


def _unwrap_each(text: str, opening: str) -> str:
    """Drop every `opening` and the next closing brace behind it."""
    parts: list[str] = []
    position = 0
    while True:
        start = text.find(opening, position)
        end = text.find("}", start + len(opening)) if start >= 0 else -1
        if end < 0:
            parts.append(text[position:])
            return "".join(parts)
        parts += [text[position:start], text[start + len(opening) : end]]
        position = end + 1


def _unwrap_box(text: str) -> str:
    """Drop the first `\\boxed{` and the last closing brace."""
    before, found, rest = text.partition("\\boxed{")
    inside, closed, after = rest.rpartition("}")
    return before + inside + after if found and closed else text
