"""The words around a problem: taken off, put on, or left as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SLOT = "{problem}"

TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "dapo": (
            "Solve the following math problem step by step. The last line of your response should be of the form "
            "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
            f"{SLOT}\n\n"
            'Remember to put your answer on its own line after "Answer:".'
        ),
        "boxed": f"{SLOT}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    }
)
"""Templates with a name. `dapo` is the wrapper of DAPO-Math-17K and of its AIME file, word for word."""

KEEP = "keep"
BARE = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A text in three parts; `prefix + body + suffix` is the text again."""

    prefix: str
    body: str
    suffix: str


def _spaced(words: str) -> str:
    return r"\s+".join(re.escape(word) for word in words.split())


_BEFORE, _AFTER = (_spaced(part) for part in TEMPLATES["dapo"].split(SLOT))
_PREFIX = re.compile(rf"\s*{_BEFORE}\s*")
_SUFFIX = re.compile(rf"\s*{_AFTER}\s*\Z")


def split_wrapper(text: str) -> Wrapped:
    """Part the DAPO wrapper from the problem in it, whatever the white space between its words."""
    start = _PREFIX.match(text)
    begin = start.end() if start else 0
    stop = _SUFFIX.search(text, begin) if "Remember to put your answer" in text else None
    end = stop.start() if stop else len(text)
    return Wrapped(prefix=text[:begin], body=text[begin:end], suffix=text[end:])


def strip_wrapper(text: str) -> str:
    """Return the problem without the DAPO wrapper; text without it comes back as it is."""
    return split_wrapper(text).body


def is_template(name: str) -> bool:
    """Whether `apply_template` knows what to do with it."""
    return name in (KEEP, BARE) or name in TEMPLATES or SLOT in name


def apply_template(text: str, template: str) -> str:
    """Return the text as the template wants it.

    `keep`: as it is; `bare`: without the wrapper; a name of TEMPLATES, or any text with `{problem}` in it: the
    wrapper is taken off first, so nothing is wrapped twice.
    """
    if template == KEEP:
        return text
    body = strip_wrapper(text)
    return body if template == BARE else TEMPLATES.get(template, template).replace(SLOT, body)
