"""docs/benchmarks.md from docs/benchmarks.json. Pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LOWER_IS_BETTER = ("overhead_share", "memory_vs_state", "sampling_waste_vs_plain", "growth_memory")

AIMS: Mapping[str, tuple[float, float]] = {
    "step_quickstart_vs_trl": (4.0, 5.0),
    "step_long_vs_trl": (3.0, 4.0),
    "time_to_60_vs_trl": (3.0, 5.0),
    "generate_vs_transformers": (4.0, 6.0),
    "generate_vs_vllm_cpu": (1.5, 2.0),
    "generate_vs_floor": (0.5, 0.65),
    "train_vs_floor": (0.6, 0.7),
    "overhead_share": (0.03, 0.01),
    "memory_vs_state": (1.5, 1.3),
    "sampling_waste_vs_plain": (0.7, 0.7),
}
"""What each ratio should be, at least (or at most) and as an aim."""

_HEAD = """# Benchmarks

<!-- Made by `make bench`; the numbers are docs/benchmarks.json. -->

The product against the tools that people use and against what the processor can do, measured on one machine in one session:
product and peer take turns, each in a process of its own. Numbers are medians over runs, with the smallest and largest in
brackets. A ratio above 1 is better for the product, except where the table says so; shares of a floor are at most 1.

Make them again with `make bench`. The first time it sets up the peers' environments in `.bench/` and looks for the peers' best
settings, about two hours in all; later about one. One row: `make bench ARGS="--only NAME"`; the training to 60% as well:
`make bench ARGS="--long"`.
"""


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    if not rows:
        return _HEAD + "\nNothing was measured yet.\n"
    parts = [_HEAD, *_machine(rows), "## Results\n", *_table(rows), "", *_stages(rows)]
    return "\n".join([*parts, "## How each was measured\n", *_notes(rows)])


def _machine(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The machine of the newest row; a row that was measured elsewhere says so among its notes."""
    newest = max(rows, key=lambda row: row["date"])["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    return [
        "## Machine and versions\n",
        f"{newest['processor']}, {newest['threads']} threads, {newest['memory_gb']:.0f} GB; {newest['system']}.\n",
        f"{versions}.\n",
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| row | product | peer | unit | ratio | at least | aim | runs |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        bound, aim = AIMS.get(row["name"], (None, None))
        sign = "at most " if row["name"] in LOWER_IS_BETTER and bound is not None else ""
        lines.append(
            f"| `{row['name']}` | {_side(row, 'product')} | {_side(row, 'peer')} | {row['unit']} | **{_number(row['ratio'])}** "
            f"| {sign}{_number(bound)} | {_number(aim)} | {row['runs']} |"
        )
    return lines


def _stages(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the seconds of a step go, from the row `overhead_share`."""
    details = next((row["details"] for row in rows if row["name"] == "overhead_share"), None)
    if details is None:
        return []
    stages, floors = details["stages"], details["floors"]
    lines = ["## A step of the quickstart, stage by stage\n"]
    lines += ["| stage | seconds | share of the step | floor, seconds | floor / seconds |", "|---|---:|---:|---:|---:|"]
    for name, seconds in stages.items():
        floor = floors.get(name)
        share = f"{floor / seconds:.0%}" if floor is not None and seconds else ""
        lines.append(
            f"| {name.replace('_', ' ')} | {seconds:.2f} | {seconds / stages['step']:.1%} "
            f"| {'' if floor is None else f'{floor:.2f}'} | {share} |"
        )
    return [*lines, ""]


def _side(row: Mapping[str, Any], side: str) -> str:
    low, high = row["spread"][side]
    return _number(row[side]) if low == high else f"{_number(row[side])} ({_number(low)} to {_number(high)})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    newest = max(rows, key=lambda row: row["date"])["machine"]
    lines = []
    for row in rows:
        lower = " Lower is better." if row["name"] in LOWER_IS_BETTER else ""
        lines.append(f"### `{row['name']}`\n\n{_sentence(row['meaning'])}{lower} Peer: {row['peer_name']}.\n")
        lines += [f"- {note}" for note in row["notes"]]
        lines.append(
            f'- `make bench ARGS="--only {row["name"]}"`, {row["date"]}, load before it {row["machine"]["load"]:.1f}'
        )
        differs = [
            f"{name} {value}"
            for name, value in row["machine"].items()
            if name in ("processor", "threads") and value != newest[name]
        ]
        lines += [f"- measured elsewhere: {', '.join(differs)}"] if differs else []
        lines.append("")
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
