"""Small made-up problem sets for the tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dapo.data.check import run_check
from dapo.data.config import CheckConfig
from dapo.data.findings import Finding, Kind, Report

QUESTION = "A baker fills 12 trays with 9 rolls each and sells all but 8 of them. How many rolls does the baker sell?"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write rows as JSON lines; text is written as it stands."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def plain_set(path: Path, pairs: Iterable[tuple[Any, Any]]) -> Path:
    """Write (prompt, answer) pairs as JSON lines."""
    return write_lines(path, ({"prompt": prompt, "answer": answer} for prompt, answer in pairs))


def dapo_row(problem: str, answer: Any, index: Any = 0) -> dict[str, Any]:
    """A row with the columns of DAPO-Math-17K."""
    return {
        "data_source": "made_up",
        "prompt": [{"content": problem, "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": index},
    }


def check_pairs(folder: Path, pairs: Iterable[tuple[Any, Any]], **options: Any) -> Report:
    """Check a set of (prompt, answer) pairs."""
    return run_check(plain_set(folder / "set.jsonl", pairs), CheckConfig(**options))


def the_only(report: Report, kind: Kind) -> Finding:
    """The one finding of a kind."""
    found = report.of(kind)
    assert len(found) == 1 == report.counts[kind], f"{len(found)} of {kind}"
    return found[0]
