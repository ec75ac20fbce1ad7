"""Cleaning of text before anything is searched in it. Every function here takes time linear in its text."""

from __future__ import annotations

import re
import unicodedata

MAX_SEARCHED = 2_000_000
"""Characters of a response, counted from its end, that are searched."""

_THINK_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning|thought)>", re.IGNORECASE)

_END_MARKER = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|end|eos)\|>"
    r"|<｜end▁of▁sentence｜>|<end_of_turn>|<eos>|\[/?INST\]",
    re.IGNORECASE,
)
_SENTENCE_MARKER = re.compile(r"</?s>|<pad>", re.IGNORECASE)


def without_reasoning(text: str) -> str:
    """Drop `<think>…</think>` blocks; a block that never closes is dropped to the end of the text.

    A closing tag without an opening one ends a block that began in the prompt, so all before it is dropped too.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    depth = 0
    position = 0
    for tag in _THINK_TAG.finditer(text):
        if not tag[1]:
            if depth == 0:
                kept.append(text[position : tag.start()])
            depth += 1
        elif depth == 0:
            kept.clear()
        else:
            depth -= 1
        position = tag.end()
    if depth == 0:
        kept.append(text[position:])
    return "\n".join(kept)


def without_end_markers(text: str) -> str:
    """End the text at its first end-of-turn marker; what a model writes after it belongs to no reply."""
    if "<" not in text and "[" not in text:
        return text
    for marker in _END_MARKER.finditer(text):
        if text[: marker.start()].strip():
            text = text[: marker.start()]
            break
    return _SENTENCE_MARKER.sub(" ", text)


_TO_LATEX = {
    **dict.fromkeys("−﹣－‐‑‒–—―", "-"),
    **dict.fromkeys("或", " or "),
    **dict.fromkeys("和与及", " and "),
    **dict.fromkeys("：﹕︰", ":"),
    **dict.fromkeys("，、﹐", ","),
    **dict.fromkeys("；", ";"),
    **dict.fromkeys("（", "("),
    **dict.fromkeys("）", ")"),
    **dict.fromkeys("［【〔", "["),
    **dict.fromkeys("］】〕", "]"),
    **dict.fromkeys("｛", "{"),
    **dict.fromkeys("｝", "}"),
    **dict.fromkeys("＋", "+"),
    **dict.fromkeys("＝", "="),
    **dict.fromkeys("／∕⁄", "/"),
    **dict.fromkeys("％", "%"),
    **dict.fromkeys("＄", "$"),
    **dict.fromkeys("。．", "."),
    **dict.fromkeys("‘’‛′", "'"),
    **dict.fromkeys("“”„‟«»‹›", '"'),
    **dict.fromkeys("×✕✖", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("÷", r"\div "),
    **dict.fromkeys("√", r"\sqrt "),
    **dict.fromkeys("∛", r"\sqrt[3] "),
    **dict.fromkeys("πΠ𝜋𝝅", r"\pi "),
    **dict.fromkeys("∞", r"\infty "),
    **dict.fromkeys("≤⩽≦", r"\le "),
    **dict.fromkeys("≥⩾≧", r"\ge "),
    **dict.fromkeys("≠", r"\ne "),
    **dict.fromkeys("≈≃≅", r"\approx "),
    **dict.fromkeys("≡", r"\equiv "),
    **dict.fromkeys("±", r"\pm "),
    **dict.fromkeys("∪⋃", r"\cup "),
    **dict.fromkeys("∩⋂", r"\cap "),
    **dict.fromkeys("∈", r"\in "),
    **dict.fromkeys("∅⌀", r"\emptyset "),
    **dict.fromkeys("∖", r"\setminus "),
    **dict.fromkeys("°º˚", r"^\circ "),
    **dict.fromkeys("→⟶", r"\to "),
    **dict.fromkeys("⇒⟹∴", r"\Rightarrow "),
    **dict.fromkeys("⌊", r"\lfloor "),
    **dict.fromkeys("⌋", r"\rfloor "),
    **dict.fromkeys("⌈", r"\lceil "),
    **dict.fromkeys("⌉", r"\rceil "),
    **dict.fromkeys("⟨〈", r"\langle "),
    **dict.fromkeys("⟩〉", r"\rangle "),
    **dict.fromkeys("ℝ", r"\mathbb{R}"),
    **dict.fromkeys("ℤ", r"\mathbb{Z}"),
    **dict.fromkeys("ℕ", r"\mathbb{N}"),
    **dict.fromkeys("ℚ", r"\mathbb{Q}"),
    **dict.fromkeys("ℂ", r"\mathbb{C}"),
    **{chr(0x3B1 + i): rf"\{name} " for i, name in enumerate(("alpha", "beta", "gamma", "delta", "epsilon"))},
    **{"θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ", "ρ": r"\rho ", "σ": r"\sigma "},
    **{"Σ": r"\Sigma ", "Δ": r"\Delta ", "Ω": r"\Omega "},
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ORDER_OVERRIDES = "\u202d\u202e"


def overrides_direction(text: str) -> bool:
    """Whether the text is shown in another order than it is written in, so that a reader sees what it does not say."""
    return any(sign in text for sign in _ORDER_OVERRIDES)


def to_plain(text: str) -> str:
    """Write an answer in ASCII: digits of every script by value, mathematical signs as LaTeX, invisible signs dropped.

    Signs that mean nothing in mathematics (emoji, ticks) become spaces. Other letters stay as they are.
    """
    if text.isascii():
        return _CONTROL.sub("", text.replace("\r", "\n")) if not text.isprintable() else text
    text = _RAISED.sub(lambda run: "^{" + "".join(_SUPERSCRIPTS[sign] for sign in run[0]) + "}", text)
    text = _LOWERED.sub(lambda run: "_{" + "".join(_SUBSCRIPTS[sign] for sign in run[0]) + "}", text)
    text = _NOT_ASCII.sub(lambda sign: _plain_sign(sign[0]), text)
    return _CONTROL.sub("", text.replace("\r", "\n"))


def _plain_sign(sign: str) -> str:
    known = _TO_LATEX.get(sign)
    if known is not None:
        return known
    category = unicodedata.category(sign)
    if category == "Nd":
        return str(unicodedata.decimal(sign))
    if category == "No":
        return _plain_fraction(sign)
    if category in {"Cf", "Cc", "Mn", "Me"}:
        return ""
    if category.startswith("Z") or category in {"So", "Sk", "Co", "Cn", "Cs"}:
        return " "
    folded = unicodedata.normalize("NFKC", sign)
    return folded if folded.isascii() else sign


def _plain_fraction(sign: str) -> str:
    """`½` is `\\frac{1}{2}`; other number signs (circled digits and the like) stay and are not read."""
    parts = unicodedata.normalize("NFKC", sign).split("⁄")
    if len(parts) == 2 and all(part.isdecimal() for part in parts):
        return rf"\frac{{{parts[0]}}}{{{parts[1]}}}"
    return sign
