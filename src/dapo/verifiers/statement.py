"""Reduces a stated answer to texts that may be a value: without wrapping, lead-in, reason or remark.

"The largest n is 34." states 34; "$m = 100$, $n = 13$, so $m+n = 113$" states 113; "540 (or maybe 541)" states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dapo.verifiers.vocabulary import ALTERS_VALUE

MAX_TIDIED = 20_000
"""Longer texts are left as they are: they can only be numbers of many digits."""
_MAX_LAYERS = 40
_MAX_SENTENCE = 2000

_BOLD = re.compile(r"(?<![\w)\]}*])(\*\*|__|\*|_)(?=[^\s*])([^\n]{1,400}?)(?<=[^\s*])\1(?![\w(*])")
_EDGE_LEFT = " \t\n*`\"':;,.~"
_EDGE_RIGHT = " \t\n*`\"';,:~"
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_CLOSING_ONLY = ("$$", "$", "\\)", "\\]")
_HTML = re.compile(r"</?(?:b|i|u|em|strong|p|br|span|div|code|mark|center|font)(?:\s[^<>]{0,60})?/?>", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{(?:align|aligned|equation|gather|gathered|split)\*?\}")
_BREAK = re.compile(r"\\(?:newline|par)(?![A-Za-z])|\\\\\s*$")

_HEDGED = re.compile(
    r"\b(?:or|maybe|perhaps|possibly|either|neither|nor|not|cannot|never|impossible|except|excluding|unless|between|wrong|incorrect|actually|wait|correction|"
    r"instead|rather|alternatively|at (?:least|most)|(?:more|less|fewer|greater|smaller) than|up to)\b|n't\b|\?",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"(?<=[^\s.]{2})[.!]\s+(?=[A-Z\\$(])|(?<=[\d$)}])\.\s+(?=[A-Z])|\n\s*|\s-{1,3}\s(?=[A-Za-z]{3})"
)
_REMARK = re.compile(r"^(.*?\S)\s*\(([^()]*(?:[A-Za-z]{3}|=)[^()]*)\)$", re.DOTALL)
_REASON = re.compile(r"[,;]?\s+(?:because|since|where|as|given|due to|by|via|using|which|whose|this)\b", re.IGNORECASE)
_CONCLUSION = re.compile(
    r"[,;.]?\s*(?:\b(?:so|thus|hence|therefore|giving|making|i\.e\.|that is)\b[,:]?(?:\s(?:that|the)\b)?"
    r"|\\(?:Rightarrow|implies|Longrightarrow|therefore|to|longrightarrow)(?![A-Za-z])|=>|-->?)",
    re.IGNORECASE,
)
_COPULA = re.compile(
    r"(?:\b(?:is|are|was|equals?|be|(?:comes|amounts|adds up|sums up|evaluates|simplifies|reduces) to|becomes?|gets?"
    r"|have|has|obtains?|gives?|yields?|but|total|answer|result|solution|exactly|only|approximately|about|around"
    r"|roughly)\b(?:\s(?:equal to|exactly|just|simply|approximately|about|only|therefore|thus))?|=|:)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.,\\])-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?(?![\w\\^_{]|[.,]\d)")
_FORMULA_SIGN = re.compile(r"[^\w\s.,;:!'\"()$%-]|[\d_]|(?<![A-Za-z])-")
_MATH_SPAN = re.compile(r"\$([^$\n]{1,400})\$")
_BUT = re.compile(r"\bnot\b[^\n]{0,200}\bbut\b(?:\s(?:rather|in fact))?\s+(?P<rest>\S.*)$", re.IGNORECASE | re.DOTALL)
_ABOUT = re.compile(r",?\s(?:or|i\.e\.,?)\s(?:about|approximately|roughly|around|\$?\\approx)\s[^\n]*$", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:option |choice )?"
    r"(?:\(([A-H])\)|([A-H])[.):]|\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?\(?([A-H])\)?[.):]?\s?\})"
    r"(?:\\[ ,;:]|\\q?quad(?![A-Za-z])|[~\s])+(?=\S)",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"(?:option|choice)\s+\(?([A-H])\)?", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text|mbox|textrm|mathrm)\s?\{([^{}]*)\}")


def tidy(text: str) -> str:
    """Take away what only decorates an answer: bold, quotes, code marks, math delimiters, a full stop at its end."""
    text = text.strip()
    if text.isalnum() or len(text) > MAX_TIDIED:
        return text
    if "<" in text:
        text = _HTML.sub(" ", text)
    if "*" in text or "_" in text:
        text = _BOLD.sub(r"\2", text)
    text = _BREAK.sub("", text)
    for _ in range(_MAX_LAYERS):
        before = text
        text = text.lstrip(_EDGE_LEFT) if not text.startswith(".") or not text[1:2].isdigit() else text
        text = text.rstrip(_EDGE_RIGHT)
        if text.endswith("\\"):
            text = text.rstrip("\\")
        if text.endswith("."):
            text = text[:-1]
        text = _without_stray_closing(_unwrapped(text))
        if text == before:
            break
    return text


def _without_stray_closing(text: str) -> str:
    """Drop a bracket or brace that nothing opened, such as that of the JSON object around an answer."""
    for openings, closings in (("{", "}"), ("([", ")]")):
        if not text.endswith(tuple(closings)) and not text.startswith(tuple(closings)):
            continue
        if sum(text.count(sign) for sign in openings) < sum(text.count(sign) for sign in closings):
            if text.startswith(tuple(closings)):
                return text[1:]
            if not text.endswith(("\\}", "\\)", "\\]")):
                return text[:-1]
    return text


def _unwrapped(text: str) -> str:
    for opening, closing in _DELIMITERS:
        inside = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) and opening not in inside:
            return inside
    for closing in _CLOSING_ONLY:
        opening = {"\\)": "\\(", "\\]": "\\["}.get(closing, closing)
        if text.endswith(closing) and opening not in text[: -len(closing)] and not text.endswith("\\" + closing):
            return text[: -len(closing)]
    return text


def label(text: str) -> tuple[str, str] | None:
    """`(C) 34` and `C. 34` name a choice and its value, `option C` a choice alone."""
    alone = _CHOICE.fullmatch(text)
    if alone is not None:
        return alone[1].upper(), alone[1].upper()
    match = _LABEL.match(text)
    return None if match is None else (next(name for name in match.groups() if name).upper(), text[match.end() :])


def is_hedged(text: str) -> bool:
    """Whether words doubt the answer, deny it, bound it or offer another."""
    return _HEDGED.search(text) is not None


def candidates(text: str, *, free: bool = False) -> Iterator[str]:
    """Texts that may be the value, the most literal first. `free`: no marker said that the text is an answer."""
    whole = tidy(_last_aligned_line(text))
    yield whole
    if len(whole) > _MAX_SENTENCE:
        return
    for step in (_behind_but, _before_rounding):
        if (shorter := tidy(step(whole))) != whole:
            whole = shorter
            yield whole
    parts = [part for part in _SENTENCE_END.split(whole) if part.strip()]
    if not parts or is_hedged(whole):
        return
    sentence = tidy(parts[-1] if free else parts[0])
    if sentence != whole:
        yield sentence
    for step in (_before_remark, _without_text_commands, _before_reason, _conclusion):
        if (shorter := tidy(step(sentence))) != sentence:
            sentence = shorter
            yield sentence
    tail = tidy(_COPULA.split(sentence)[-1])
    if tail != sentence:
        yield tail
    if not free:
        yield from _only_value(sentence)


def _last_aligned_line(text: str) -> str:
    if "\\begin" not in text or len(text) > MAX_TIDIED or not _ENVIRONMENT.search(text):
        return text
    return _ENVIRONMENT.sub(" ", text).replace("&", " ").rstrip("\\ \n$").rpartition("\\\\")[2]


def _behind_but(text: str) -> str:
    """`not 10 but 12` says 12."""
    but = _BUT.search(text)
    return text if but is None else but["rest"]


def _before_rounding(text: str) -> str:
    """`1/3 or about 0.33` says 1/3."""
    about = _ABOUT.search(text)
    return text if about is None or not _holds_value(text[: about.start()]) else text[: about.start()]


def _before_remark(text: str) -> str:
    remark = _REMARK.match(text)
    return text if remark is None else remark[1]


def _without_text_commands(text: str) -> str:
    return _TEXT.sub(r" \1 ", text)


def _before_reason(text: str) -> str:
    reason = _REASON.search(text)
    return text if reason is None or not _holds_value(text[: reason.start()]) else text[: reason.start()]


def _conclusion(text: str) -> str:
    return _CONCLUSION.split(text)[-1]


def _holds_value(text: str) -> bool:
    return any(sign.isdigit() or sign in "\\$" for sign in text)


def _only_value(sentence: str) -> Iterator[str]:
    """The one number or formula of a sentence, if it has exactly one."""
    spans = _MATH_SPAN.findall(sentence)
    outside = _MATH_SPAN.sub(" ", sentence)
    numbers = _NUMBER.findall(outside)
    around = _NUMBER.sub(" ", outside)
    if _FORMULA_SIGN.search(around) or any(word in ALTERS_VALUE for word in around.lower().split()):
        return
    if len(spans) + len(numbers) == 1:
        yield tidy(spans[0] if spans else numbers[0])
