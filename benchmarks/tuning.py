"""The best settings of a peer: each is tried once, what was tried is kept in `.bench/tuned.json` and told in the notes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.environments import BENCH
from benchmarks.processes import FailedRunError, say

TUNED = BENCH / "tuned.json"
Settings = Mapping[str, Any]


def best_settings(
    key: str, variants: Sequence[Settings], measure: Callable[[Settings], float], *, again: bool
) -> tuple[Settings, list[str]]:
    """Return the settings with the fewest seconds, and a line on each that was tried. Raises FailedRunError if none ran."""
    known: dict[str, Any] = json.loads(TUNED.read_text(encoding="utf-8")) if TUNED.is_file() else {}
    if again or [one["settings"] for one in known.get(key, [])] != [dict(variant) for variant in variants]:
        known[key] = [_try(variant, measure) for variant in variants]
        TUNED.parent.mkdir(parents=True, exist_ok=True)
        TUNED.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return choose(known[key])


def choose(tried: Sequence[Mapping[str, Any]]) -> tuple[Settings, list[str]]:
    """The fastest of what was tried, and a line on each. Settings marked `"other": why` are told and never chosen."""
    ran = [one for one in tried if one["seconds"] is not None and "other" not in one["settings"]]
    if not ran:
        raise FailedRunError(f"no settings of the peer ran: {[one['error'] for one in tried]}")
    best = min(ran, key=lambda one: one["seconds"])
    return best["settings"], [_line(one, is_best=one is best) for one in tried]


def _try(settings: Settings, measure: Callable[[Settings], float]) -> dict[str, Any]:
    say(f"  trying {describe(settings)}")
    try:
        return {"settings": dict(settings), "seconds": measure(settings), "error": None}
    except FailedRunError as failure:
        say(f"    did not run: {failure}")
        return {"settings": dict(settings), "seconds": None, "error": str(failure).splitlines()[-1][:200]}


def _line(one: Mapping[str, Any], *, is_best: bool) -> str:
    outcome = "did not run" if one["seconds"] is None else f"{one['seconds']:.1f} s"
    other = one["settings"].get("other")
    mark = " (chosen)" if is_best else f" (not chosen: {other})" if other else ""
    return f"tried {describe(one['settings'])}: {outcome}{mark}"


def describe(settings: Settings) -> str:
    """Settings as text."""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "other")
