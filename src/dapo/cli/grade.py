"""`dapo grade`: grade responses against golds."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dapo.cli.options import AsJson
from dapo.errors import DataError
from dapo.verifiers import Grade, Reply, VerifierConfig, VerifierName


def grade(
    file: Annotated[
        str,
        typer.Argument(
            help="JSON lines with `response` and `gold`; - or nothing reads standard input.", metavar="FILE"
        ),
    ] = "-",
    verifier: Annotated[
        VerifierName, typer.Option(help="math: is the final answer right? dapo: the authors' rule.")
    ] = "math",
    seconds: Annotated[float, typer.Option(min=0.1, help="Limit on the time that one answer may take.")] = 5.0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that do symbolic mathematics.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Grade responses. With --json: the same rows in the same order, with `correct`, `extracted` and `why` added."""
    rows = list(_rows(file))
    with VerifierConfig(name=verifier, seconds=seconds, workers=workers).build() as pool:
        grades = pool.grade_many(
            Reply(response=row["response"], gold=str(row["gold"]), truncated=bool(row.get("truncated", False)))
            for row in rows
        )
    if as_json:
        for row, graded in zip(rows, grades, strict=True):
            print(json.dumps(_with_grade(row, graded)))
        return
    for name, value in _totals(rows, grades).items():
        print(f"{name:<18} {value}")


def _rows(file: str) -> Iterator[dict[str, Any]]:
    """Read rows; a bad one is an error that names its line. Raises DataError."""
    if file == "-":
        lines: Any = sys.stdin.buffer
    elif Path(file).is_file():
        lines = Path(file).open("rb")  # noqa: SIM115 - closed with the loop below
    else:
        raise DataError(f"{file} is not a file. Name a file of JSON lines, or - for standard input.")
    with lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_float=str)  # a number keeps its digits
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {number} of {file} is not JSON ({error}). Mend or remove the line.") from error
            if not isinstance(row, dict) or not isinstance(row.get("response"), str):
                raise DataError(
                    f"line {number} of {file} has no text `response`. Each row needs `response` and `gold`."
                )
            if isinstance(row.get("gold"), bool) or not isinstance(row.get("gold"), str | int):
                raise DataError(f"line {number} of {file} has no `gold`. Each row needs it, as text or an integer.")
            yield row


def _with_grade(row: dict[str, Any], graded: Grade) -> dict[str, Any]:
    more = {"error": graded.error} if graded.error is not None else {}
    return {**row, "correct": graded.correct, "extracted": graded.extracted, "why": graded.why, **more}


def _totals(rows: list[dict[str, Any]], grades: list[Grade]) -> dict[str, str]:
    count = max(1, len(rows))
    right = sum(graded.correct for graded in grades)
    totals = {
        "responses": str(len(rows)),
        "right": f"{right} ({right / count:.1%})",
        "wrong": f"{len(rows) - right} ({(len(rows) - right) / count:.1%})",
        "no answer found": str(sum(graded.extracted is None for graded in grades)),
        "verifier errors": str(sum(graded.error is not None for graded in grades)),
    }
    judged = [(row["expected"], graded.correct) for row, graded in zip(rows, grades, strict=True) if "expected" in row]
    if judged:
        pairs = Counter((bool(expected), found) for expected, found in judged)
        totals["expected given"] = str(len(judged))
        totals["false positives"] = f"{pairs[False, True]} of {pairs[False, True] + pairs[False, False]}"
        totals["false negatives"] = f"{pairs[True, False]} of {pairs[True, False] + pairs[True, True]}"
    return totals
