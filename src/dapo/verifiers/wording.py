"""Words in an answer: in `\\text{…}` or plain, as units, as remarks, or as all there is."""

from __future__ import annotations

import re

from dapo.verifiers import signs
from dapo.verifiers.cursor import Cursor, is_mathematical
from dapo.verifiers.vocabulary import number_from_words

_TEXT_NAMES = frozenset(
    {"text", "mbox", "hbox", "textrm", "textnormal", "textbf", "textit", "textsf", "texttt", "emph"}
)
_UNIT_LIKE = re.compile(r"[A-Za-z.]+(?:\^\{?-?\d\}?)?(?:\s?[/·]\s?[A-Za-z.]+(?:\^\{?-?\d\}?)?)*")
_NOON = re.compile(r"\b([AaPp])\.?\s?[Mm]\b\.?")
_UNIT_TEXTS = _TEXT_NAMES | {"mathrm", "mathit", "mathbf", "mathsf"}


def is_mathematical_text(content: str) -> bool:
    """Whether the inside of a text command is read as mathematics: it holds digits and names of variables alone."""
    return bool(content.strip()) and is_mathematical(re.sub(r"\\[A-Za-z]+", "", content))


def text_is_factor(cursor: Cursor) -> bool:
    """Whether a `\\text{…}` behind a value is a factor; letters alone are a unit there (`25\\text{ m/s}`), but e and i."""
    ahead = Cursor(cursor.text)
    ahead.position = cursor.position
    command = ahead.take(signs.TEXT)
    content = ahead.group().strip()
    if command is None or not is_mathematical_text(content) or content in {"or", "and"}:
        return False
    return command[1] not in _UNIT_TEXTS or content in {"e", "i"} or not _UNIT_LIKE.fullmatch(content)


def text_words(cursor: Cursor) -> str | None:
    """The words of a `\\text{…}` that holds nothing else; the cursor moves behind it. None elsewhere."""
    start = cursor.position
    command = cursor.take(signs.TEXT)
    if command is not None and command[1] != "mathbb":
        content = cursor.group().strip(" .")
        if signs.WORDS.fullmatch(content):
            return content
    cursor.position = start
    return None


def unit_words(cursor: Cursor) -> list[str]:
    """The words that stand here, plain or in `\\text`, with powers such as `cm^2`; they end at "and", "or" and a comma."""
    words: list[str] = []
    while not cursor.at_end() and not cursor.sees(signs.JOINER):
        if cursor.take(signs.UNIT_LINK) and words:
            words.append("/")
            continue
        start = cursor.position
        if (command := cursor.take(signs.TEXT)) is not None and command[1] in _UNIT_TEXTS:
            content = _NOON.sub(r"\1m", cursor.group().strip(" .~,()"))
        elif (plain := cursor.take(signs.UNIT_WORD)) is not None:
            content = plain[1] or plain[2]
        else:
            cursor.position = start
            break
        if any(sign.isdigit() for sign in re.sub(r"\^\s?\{?-?\d\}?", "", content)) or number_from_words(content):
            cursor.position = start
            break
        if (power := cursor.take(signs.UNIT_POWER)) is not None:
            content += f"^{power[1] or power[2]}"
        words.extend(content.replace("^ ", "^").replace("{", "").replace("}", "").split())
    return words
