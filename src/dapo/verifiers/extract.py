"""Finds the last stated answer of a response. Time is linear in the text; nothing here knows the gold.

What states an answer: a box (`\\boxed`, `\\fbox`), an `Answer:` line or heading, GSM8K's `####`, an `<answer>` tag, or
"the answer is …". The last of them decides, wherever it stands. A response with none of them may end on a bare value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dapo.verifiers.boxes import Box, read_box
from dapo.verifiers.passages import DISPLAYS, MAX_LINE, line_from, next_text, with_display, without_bullet
from dapo.verifiers.text import MAX_SEARCHED, without_end_markers, without_reasoning

Kind = Literal["box", "line", "hash", "tag", "sentence", "free"]

_WINDOW = 4000
_LARGEST_WINDOW = 256_000
_CONTEXT = 1000
_MAX_SKIPPED = 64  # statements without a value that are passed over before the search gives up

# The first sign is a plain set, so that the search skips over everything else at the speed of C.
_MARKER = re.compile(
    r"[\\\x08b#<aA答]"
    r"(?:(?P<box>(?<=\\)(?:boxed|fbox)(?![A-Za-z])|(?<=\x08)oxed|(?<![A-Za-z\\\x08]b)(?<=b)oxed(?=\s?\{))"
    r"|(?P<hash>(?<=\#)\#{3,})|(?P<tag>(?<=<)/?(?i:answer)>)"
    r"|(?P<word>(?<=[aA])(?<![A-Za-z\\].)(?i:nswers?|ns)(?![A-Za-z])|(?<=答)案|(?<=答)(?=[:：])))"
)
_AFTER_WORD = re.compile(
    r"[*_`\"'\s)}\]$]{0,8}(?:\([^()\n]{0,40}\)[*_\s]{0,4})?"
    r"(?:(?:to|for|of|in|here|therefore|then|thus)\b[^\n:：.=\d$\\]{0,60}?)?"
    r"(?:(?P<colon>[:：])"
    r"|(?P<copula>(?:is|are|was|equals|becomes|(?:would|will|should|must)\s{1,3}be)(?![A-Za-z])|[-=]>|=|→|⇒|of(?=\s{1,3}[-$\\]{0,2}\d)|[–—](?=\s)|是|为))",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:if|whether|suppose|supposing|assume|assuming|unless|is|what)\s{1,3}(?:that\s)?(?:the\s)?(?:\w{1,12}\s)?$",
    re.I,
)
_BEFORE_LABEL = re.compile(
    r"\\?(?:text|textbf|mathbf|boxed|the|my|our|so|thus|hence|therefore|and|final|correct|short|numerical|exact)"
    r"(?![A-Za-z])|最终|正确|[所因]?以|此|的",
    re.IGNORECASE,
)
_CHECKED = re.compile(r"\b(?:check|checks|verify|verifies|confirm|confirms|test|compare)\b", re.IGNORECASE)
_CLOSERS = re.compile(r"[*_}\"'`]*")
_LEAD = re.compile(
    r"[\s:：]*(?:(?:thus|therefore|then|hence|simply|just|exactly|equal to|now)\b[\s:,]*)*", re.IGNORECASE
)
_NEGATED = re.compile(r"(?:not|never|n't)\b", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[\s*_`\"'(<\[{$\\]*(?:text\{)?(?:(?:your|the)\s)?(?:final\s)?(?:answer|ans)\b|[\s.…_]+$", re.IGNORECASE
)
_REFERS_BACK = re.compile(
    r"\W*(?:(?:see|as|is|it|the|value|answer|result|number|shown|given|stated|found|boxed|in|box|computed|expression)\W+)*"
    r"(?:above|earlier|before|boxed|box)\W*$",
    re.IGNORECASE,
)
_VALUE_SIGN = re.compile(r"[\d\\∞π½√]")
_NUMBERED_HEADING = re.compile(r"\s*\d+\s*[.):]\s*[A-Za-z*]|\s*[A-Za-z]+\s+\d+\s*[.:]?\s*$")
_HEADING_NAMES = frozenset(
    {"answer", "answers", "final answer", "the answer", "the final answer", "final answers", "答案"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An answer as it stands in the response. `boxes` are the boxes of its passage, for an answer in several parts."""

    text: str
    kind: Kind
    boxes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """There is no final answer, and why."""

    why: str


def find_answer(response: str, *, truncated: bool = False, in_words: bool = False) -> Stated | Missing:
    """Return the last stated answer. `in_words` also lets "the answer is Tom" state one without a mathematical sign.

    A truncated response may state its answer by a marker, but not by merely ending on a value.
    """
    body = without_end_markers(without_reasoning(response[-MAX_SEARCHED:]))
    skipped = 0
    for markers, first in _marker_windows(body):
        for index in range(len(markers) - 1, first - 1, -1):
            found = _read_marker(body, markers, index, truncated=truncated, in_words=in_words)
            if found is not None:
                return found
            skipped += 1
            if skipped > _MAX_SKIPPED:
                return Missing(why="no answer stands among the last passages that speak of one")
    if truncated:
        return Missing(why="the response was cut off before it stated an answer")
    return _free(body)


def _marker_windows(body: str) -> Iterator[tuple[list[re.Match[str]], int]]:
    """The markers from the end of the text to its start, window by window; those before `first` only give context."""
    end, size = len(body), _WINDOW
    while end > 0:
        start = max(0, end - size)
        found = _MARKER.finditer(body, max(0, start - _CONTEXT), min(len(body), end + _CONTEXT))
        markers = [marker for marker in found if marker.start() < end]
        yield markers, sum(marker.start() < start for marker in markers)
        end, size = start, min(4 * size, _LARGEST_WINDOW)


def _read_marker(
    body: str, markers: Sequence[re.Match[str]], index: int, *, truncated: bool, in_words: bool
) -> Stated | Missing | None:
    """Read one marker; None where it states nothing."""
    marker = markers[index]
    match marker.lastgroup:
        case "box":
            return _boxed(body, markers, index)
        case "hash":
            return _hash(body, marker)
        case "tag":
            return _tagged(body, marker, truncated=truncated)
        case _:
            return _worded(body, marker, in_words=in_words)


def _boxed(body: str, markers: Sequence[re.Match[str]], index: int) -> Stated | Missing | None:
    starts = [marker for marker in markers[max(0, index - 8) : index + 1] if marker.lastgroup == "box"]
    boxes = [read_box(body, marker.start(), marker.end()) for marker in starts]
    last = boxes[-1]
    if last is None:
        return None
    if not last.closed:
        return Missing(why="the last box is cut off")
    outer = last
    for box in reversed(boxes[:-1]):
        if box is None:
            continue
        if not box.closed and "\n" not in body[box.start : last.start]:
            return Missing(why="the last box is cut off")
        if box.closed and box.end >= outer.end:
            outer = box
    if not outer.content.strip():
        return Missing(why="the last box is empty")
    earlier = [box for box in boxes[:-1] if box is not None and box.closed and box.end <= outer.start]
    text = _joined(body, earlier, outer)
    if _is_hedged_outside(body, outer):
        return Missing(why="the last box is one of several offered answers")
    passage = [box.content for box in earlier if "\n\n" not in body[box.end : outer.start]]
    return Stated(text=text, kind="box", boxes=(*passage, outer.content))


_BETWEEN_NOISE = re.compile(
    r"[\s$*{}]|\\[()\[\],;!]|\\(?:text|quad|qquad|mbox|mathrm)(?![A-Za-z])|[A-Za-z](?:_\{?\w\}?)?\s*="
)
_COMMAS = frozenset({",", "and", ",and", ";", "&", "和"})
_ORS = frozenset({"or", ",or", "或"})


def _joined(body: str, earlier: Sequence[Box], last: Box) -> str:
    """The last box, and the boxes that only a comma, "and" or "or" parts from it."""
    text = last.content
    position = last.start
    for box in reversed(earlier):
        between = body[box.end : position]
        link = _BETWEEN_NOISE.sub("", between).lower() if len(between) <= 60 else ""
        if link in _ORS:
            text = f"{box.content} \\text{{ or }} {text}"
        elif link in _COMMAS:
            text = f"{box.content}, {text}"
        else:
            break
        position = box.start
    sign = body[:position].rstrip(" ")
    return f"-{text}" if _is_sign(sign, spaced=len(sign) < position) else text


def _is_sign(before: str, *, spaced: bool) -> bool:
    """Whether the text before a box ends in a minus that belongs to the box and is no operator, bullet or dash."""
    if not before.endswith(("-", "−")):
        return False
    line = before[:-1].rpartition("\n")[2]
    if not line.strip():
        return not spaced
    left = line.rstrip(" ")
    return left.endswith(("=", "$", "(", "[", "{", ":", "<", ">", "\\approx"))


_HEDGE_AFTER = re.compile(r"[\s$).,*\\\]]{0,12}\(?\s?(?:or|maybe|perhaps|possibly)\b[^\n]{0,80}?\d", re.IGNORECASE)
_HEDGE_BEFORE = re.compile(r"\d[\s$).,*\\\]]{0,8}(?:or|or maybe|or perhaps|maybe)[\s$(*\\\[]{1,8}$", re.IGNORECASE)


def _is_hedged_outside(body: str, box: Box) -> bool:
    return bool(_HEDGE_AFTER.match(body, box.end) or _HEDGE_BEFORE.search(body, max(0, box.start - 40), box.start))


def _hash(body: str, marker: re.Match[str]) -> Stated | Missing | None:
    line = line_from(body, marker.end()).lstrip("#").strip(" :：\t\r")
    if not line:
        return None if body[marker.end() :].strip() else Missing(why="the last answer line is empty")
    if not _VALUE_SIGN.search(line) or _NUMBERED_HEADING.match(line) or len(line[:MAX_LINE].split()) > 8:
        return None
    return Stated(text=line, kind="hash")


def _tagged(body: str, marker: re.Match[str], *, truncated: bool) -> Stated | Missing | None:
    if marker[0].startswith("</"):
        opening = max(body.rfind(name, 0, marker.start()) for name in ("<answer>", "<Answer>", "<ANSWER>"))
        if opening < 0:
            return None
        content = body[opening + len("<answer>") : marker.start()]
    elif truncated:
        return Missing(why="the last answer tag is cut off")
    else:
        content = body[marker.end() :]
    if not content.strip():
        return Missing(why="the last answer tag is empty")
    if _MARKER.search(content):
        return find_answer(content, in_words=True)
    return Stated(text=content.strip(), kind="tag")


def _worded(body: str, marker: re.Match[str], *, in_words: bool) -> Stated | Missing | None:
    after = _AFTER_WORD.match(body, marker.end())
    if after is None or (after["copula"] and "\n" in after[0]):
        return _below_heading(body, marker)
    if after["colon"]:
        if _is_quoted(body, marker.start(), after.end()):
            return None
        if _is_in_passing(body, marker.start(), after.end()):
            return None
        closers = _CLOSERS.match(body, after.end())
        return _after_colon(body, closers.end() if closers else after.end())
    if _SUPPOSED.search(body, max(0, marker.start() - 40), marker.start()):
        return None
    return _sentence(line_from(body, after.end()), in_words=in_words)


def _is_quoted(body: str, start: int, end: int) -> bool:
    """Whether the label itself stands in quotes, as in: put it after "Answer:"."""
    return start > 0 and body[start - 1] in "\"'`“" and body[end : end + 1] in {'"', "'", "`", "”"}


def _is_in_passing(body: str, start: int, end: int) -> bool:
    """Whether a sentence merely speaks of "our answer: …" on its way; an answer line begins with the word."""
    before = body[max(body.rfind("\n", 0, start) + 1, start - 80) : start]
    if not _BEFORE_LABEL.sub("", before).strip(" \t*_#>`~$\\{}[]()\"'-.,|✅👉"):
        return False
    return _CHECKED.search(before) is not None or len(line_from(body, end)[:MAX_LINE].split()) > 8


def _after_colon(body: str, start: int) -> Stated | Missing | None:
    first = next_text(body, start)
    if first is None:
        return Missing(why="the last answer line is empty")
    if "\n" in body[start:first]:
        first = without_bullet(body, first)
    line = with_display(body, first)
    if _PLACEHOLDER.match(line[:80]):
        return None
    if not any(sign.isdigit() for sign in line[:80]) and len(line) < 80 and _REFERS_BACK.match(line):
        return None
    rest = body[first + len(line) :].strip()
    if rest and "\n" in rest and len(line.split()) > 12:
        ending = _free(body[first:])
        if isinstance(ending, Stated):
            return ending
    return Stated(text=line, kind="line")


def _below_heading(body: str, marker: re.Match[str]) -> Stated | None:
    """A line that says only "Final answer" makes the text below it the answer."""
    line_start = body.rfind("\n", 0, marker.start()) + 1
    if marker.start() - line_start > 40:
        return None
    line = line_from(body, line_start)
    if " ".join(line.strip(" #*_>`~=-\t\r✅").lower().split()) not in _HEADING_NAMES:
        return None
    first = next_text(body, line_start + len(line))
    if first is None:
        return None
    below = with_display(body, without_bullet(body, first))
    return Stated(text=below, kind="line") if len(below[:MAX_LINE].split()) <= 12 else None


def _sentence(line: str, *, in_words: bool) -> Stated | None:
    lead = _LEAD.match(line)
    line = line[lead.end() :] if lead else line
    if _NEGATED.match(line):
        _, but, line = line.partition(" but ")
        if not but:
            return None
    if _PLACEHOLDER.match(line[:80]) or line.rstrip(" *$").endswith("?"):
        return None
    if _VALUE_SIGN.search(line[:MAX_LINE]) or (in_words and line.strip() and len(line.split()) <= 4):
        return Stated(text=line, kind="sentence")
    return None


def _free(body: str) -> Stated | Missing:
    """The last sentence of a response without a marker, which has to end on a value to count."""
    text = body.strip()
    if not text:
        return Missing(why="the response is empty")
    last = text[text.rfind("\n") + 1 :].strip()
    for opening, closing in DISPLAYS:
        if last == closing or (last.endswith(closing) and opening not in last[: -len(closing)]):
            start = text.rfind(opening, max(0, len(text) - MAX_LINE), len(text) - len(closing))
            if start >= 0:
                last = text[start:]
            break
    if len(last) > MAX_LINE and " " in last[-MAX_LINE:].strip():
        last = last[-MAX_LINE:]
    if last.rstrip(" *$").endswith("?"):
        return Missing(why="the response ends on a question")
    return Stated(text=last, kind="free")
