"""The signs of an answer: where one stands and what it is. Patterns only; `parsing` gives them meaning."""

from __future__ import annotations

import re

BLANK = re.compile(
    r"(?:[\s$~]|\\[,;:!> ()\[\]]|\\(?:left|right|middle|[Bb]ig{1,2}[lrm]?|displaystyle|textstyle|limits|quad|qquad"
    r"|thinspace|enspace|hspace\{[^{}]{0,20}\}|phantom\{[^{}]{0,40}\}|bf|rm|it|mathstrut|hfill|allowbreak|nobreak"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge|blacksquare|checkmark|square|qed|Box)(?![A-Za-z])"
    r"|\\(?:text)?color\s?\{[A-Za-z]{1,20}\}"
    r"|\\(?:left|right)\.(?!\d))+"
)
"""What separates signs and means nothing: spaces, math delimiters, sizes."""

NUMBER = re.compile(
    r"[1-9]\d{0,2}(?:(?:\{,\}|,\\!\s?|\\[,;: ]\s?|~)\d{3})+(?!\d)(?:\.\d+)?"
    r"|[1-9]\d{0,2}(?: \d{3})+(?![\d.])"
    r"|\d+(?:\.(?:\d+|(?!\d|\.|\s+[A-Za-z(])))?|\.\d+"
)
COMMA_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?![\d,]|,\d)(?:\.\d+)?")
"""`1,234` and the like: one number where no bracket is open, a list inside of brackets."""
REPEATING = re.compile(r"\\(?:overline|bar|dot)\s?(?:\{\s?(\d+)\s?\}|(\d))|\((\d+)\)(?=\s?(?:\\?[$.]|$))")
EXPONENT = re.compile(r"[eE]([+-]?\d{1,6})(?![\dA-Za-z.])")
COMMAND = re.compile(r"\\([A-Za-z]+)\*?")
LETTERS = re.compile(r"[A-Za-z]+")
SUBSCRIPT = re.compile(r"_\s?(?:\{\s?((?:\\text\s?\{|\\mathrm\s?\{)?[\w\s()+,-]{1,20}\}?)\s?\}|(\w|\\[a-z]{2,8}))")
DEGREE = re.compile(
    r"(?:\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z]))"
    r"(?:\s?(?:[CFK](?![A-Za-z])|\\(?:text|mathrm)\s?\{\s?[CFK]\s?\}))?"
)
POWER = re.compile(r"\^|\*\*")
TIMES = re.compile(r"(?<=[\d ])[xX](?=\s?10\s?\^)|\*(?!\*)|\\(?:times|cdot|ast|bullet)(?![A-Za-z])")
DIVIDE = re.compile(r"/|\\(?:div|slash)(?![A-Za-z])|divided\s+by\b|over\b")
PLUS = re.compile(r"\+(?!/?-)|plus\b")
MINUS = re.compile(r"-|minus\b")
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|\+/?-")
TEXT = re.compile(
    r"\\(text|textbf|textit|textrm|textsf|texttt|textnormal|mbox|hbox|mathrm|mathbf|mathit|mathsf|"
    r"operatorname|boldsymbol|bm|mathbb|mathcal|boxed|fbox|underline|emph|ensuremath)\s?\{"
)
JOINER = re.compile(
    r"(,\s?(?:\\text\s?\{\s?)?(?:and|or)\b\s?\}?|[,;]|\\(?:text|mbox|mathrm|textrm)\s?\{[\s,]{0,4}(?:and|or)[\s]{0,4}\}"
    r"|\\(?:lor|vee|land|wedge)(?![A-Za-z])|(?:and|or)\b)"
)
RELATION = re.compile(
    r"(<=|>=|=<|=>|!=|==|<|>|=|\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt|neq|ne|approx|simeq|cong|equiv|sim|in)"
    r"(?![A-Za-z])|is\s+in\b)"
)
RELATION_SIGNS = {
    "<=": "<=",
    "=<": "<=",
    "\\leq": "<=",
    "\\le": "<=",
    "\\leqslant": "<=",
    ">=": ">=",
    "\\geq": ">=",
    "\\ge": ">=",
    "\\geqslant": ">=",
    "<": "<",
    "\\lt": "<",
    ">": ">",
    "\\gt": ">",
    "=": "=",
    "==": "=",
    "!=": "!=",
    "\\ne": "!=",
    "\\neq": "!=",
    "\\approx": "~",
    "\\simeq": "~",
    "\\sim": "~",
    "\\cong": "~",
    "\\equiv": "=",
    "\\in": "in",
}
SET_SIGN = re.compile(r"\\(cup|cap|setminus|backslash|bigcup)(?![A-Za-z])|U(?=\s?(?:\\left)?\s?[(\[{\\])")
WORDS = re.compile(r"[A-Za-z][A-Za-z'-]*\.?(?:\s+[A-Za-z][A-Za-z'-]*\.?)*")
REMARK = re.compile(r"\((?:in )?base[ -]|\([A-Za-z][a-z]+[a-z' -]*\)")
UNIT_WORD = re.compile(r"([A-Za-z][A-Za-z'-]*|[^\x00-\x7f]+)\.?|[(\[]([A-Za-z][A-Za-z' -]*)[)\]]")
UNIT_LINK = re.compile(r"[/-](?=\s?(?:[A-Za-z]|\\(?:text|mathrm)))|\\cdot(?![A-Za-z])")
UNIT_POWER = re.compile(r"\s?\^\s?(?:\{\s?(-?\d)\s?\}|(-?\d))")
BASE_NOTE = re.compile(
    r"(?:in )?\(?(?:in )?base[ -](\d{1,2}|[A-Za-z]{3,8})\)?"
    r"|\\(?:text|mbox)\{ ?\(?(?:in )?base[ -](\d{1,2}|[A-Za-z]{3,8})\)?\}"
)
MODULUS_NOTE = re.compile(
    r"\\pmod\s?(?:\{[^{}]{1,20}\}|\d)|\\?\(?\s?(?:\\b?mod|mod|modulo)\s+[\w{}]{1,20}\s?\)?|\\bmod\s?\w{1,8}"
)
FACTORIAL = re.compile(r"!(?!=)")
PERCENT = re.compile(r"\\?%")
CURRENCY = re.compile(r"\\\$|[€£¥₹]")
RATIO = re.compile(r"\s?:\s?(?=\d)")
