"""Shows a few replies of a run: what the policy was asked, what it wrote, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dapo.reporting.record import RunRecord, number, read_groups
from dapo.reporting.text import escape, shorten

_MOST_CHARACTERS = 4000  # of one text; a group of long replies would make the page too heavy to open

_REASONS = {
    "kept": "Trained on",
    "all_right": "Not trained on: every reply was right, so there was nothing to compare",
    "all_wrong": "Not trained on: every reply was wrong, so there was nothing to compare",
    "surplus": "Not trained on: the batch was full",
    "carried": "Trained on, a step or more after it was generated",
    "top_up": "Trained on with advantage 0, to fill a step that found too few groups",
    "stale": "Not trained on: the policy had moved on too far since these replies were drawn",
    "error": "Not trained on: the engine failed on a reply",
}


def shown_groups(record: RunRecord) -> list[tuple[int, Mapping[str, Any]]]:
    """Return one group of the first, the middle and the last step that have groups, with the step's number."""
    files = record.rollout_files
    places = sorted({0, (len(files) - 1) // 2, len(files) - 1}) if files else []
    chosen = [(files[place][0], choose_group(read_groups(files[place][1]))) for place in places]
    return [(step, group) for step, group in chosen if group is not None]


def choose_group(groups: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the group that says most: the first that was trained on and has right and wrong replies.

    Without one, the first that was trained on; without that, the first; None if there is none.
    """
    first = first_kept = None
    for group in groups:
        first = first or group
        if group.get("kept") is True:
            first_kept = first_kept or group
            if len({bool(reply.get("correct")) for reply in _replies(group)}) == 2:
                return group
    return first_kept or first


def choose_replies(replies: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return at most `most` replies in their order, right and wrong ones as evenly as there are."""
    right = [index for index, reply in enumerate(replies) if reply.get("correct")]
    wrong = [index for index, reply in enumerate(replies) if not reply.get("correct")]
    take_right = min(len(right), max(most // 2, most - len(wrong)))
    chosen = {*right[:take_right], *wrong[: most - take_right]}
    return [reply for index, reply in enumerate(replies) if index in chosen]


def group_html(step: int, group: Mapping[str, Any], most: int) -> str:
    """Return one group with at most `most` of its replies. Every text of the group is escaped and cut if long."""
    replies = _replies(group)
    shown = choose_replies(replies, most)
    count_right = sum(bool(reply.get("correct")) for reply in replies)
    reason = str(group.get("reason", "kept" if group.get("kept") else "unknown"))
    why = _REASONS.get(reason, f"Not trained on: {reason}")
    counts = f"{count_right} of {len(replies)} replies right"
    if len(shown) < len(replies):
        counts += f"; {len(shown)} shown"
    items = "".join(_reply_html(reply) for reply in shown)
    # HTML drops the first newline inside `pre`, so each gets one to drop.
    return (
        f'<article class="group"><header><h3>Step {step}</h3>'
        f'<span class="label">group {escape(str(group.get("group", "?")))}</span></header>'
        f'<p class="why">{escape(why)}. {escape(counts)}.</p>'
        f'<div class="label">Prompt</div><pre>\n{_text(group.get("prompt"))}</pre>'
        f'<p class="gold"><span class="label">Right answer</span> <code>{_text(group.get("gold"))}</code></p>'
        f'<ol class="replies">{items}</ol></article>'
    )


def _reply_html(reply: Mapping[str, Any]) -> str:
    is_right = bool(reply.get("correct"))
    verdict = "✓ right" if is_right else "✗ wrong"
    facts = [("answer read", _text(reply.get("extracted"), none="none"))]
    facts.append(("reward", _reward(reply)))
    advantage = number(reply.get("advantage"))
    facts.append(("advantage", "none" if advantage is None else f"{advantage:+.2f}"))
    facts.append(("finish", _text(reply.get("finish"), none="?")))
    tokens = reply.get("token_ids")
    if isinstance(tokens, list) and tokens:
        facts.append(("tokens", f"{len(tokens):,}"))
    if reply.get("trained") is False and advantage is not None:
        facts.append(("trained on", "no"))
    numbers = "".join(f"<span>{name} <b>{value}</b></span>" for name, value in facts)
    return (
        f'<li class="reply {"right" if is_right else "wrong"}"><div class="numbers">'
        f'<span class="verdict">{verdict}</span>{numbers}</div><pre>\n{_text(reply.get("text"))}</pre></li>'
    )


def _reward(reply: Mapping[str, Any]) -> str:
    """The total, and the parts it is made of where there are several that are not zero."""
    total = number(reply.get("total"))
    text = "?" if total is None else f"{total:+.2f}"
    parts = reply.get("reward")
    if not isinstance(parts, Mapping):
        return text
    values = {str(name): number(value) for name, value in parts.items()}
    named = [f"{escape(name)} {value:+.2f}" for name, value in values.items() if value]
    return f"{text} ({', '.join(named)})" if len(named) > 1 else text


def _replies(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    replies = group.get("replies")
    return [reply for reply in replies if isinstance(reply, Mapping)] if isinstance(replies, list) else []


def _text(value: object, *, none: str = "") -> str:
    """Escaped text of bounded length."""
    return none if value is None else escape(shorten(str(value), _MOST_CHARACTERS))
