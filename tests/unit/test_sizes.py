"""A room with one purpose is small. Exceptions stand here by name, each with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dapo"
MAX_LINES = 300
MAX_FUNCTION_LINES = 60

LONG_MODULES: dict[str, str] = {
    "metrics.py": "one catalogue: a sentence or two on each of the metrics, and little else",
    "verifiers/atoms.py": "one table of what an expression can be made of",
    "verifiers/comparing.py": "one comparison, case by case",
    "verifiers/extract.py": "one search for the last stated answer",
    "types.py": "all the values that flow, in the order in which they are made",
}

LONG_FUNCTIONS: dict[str, str] = {
    "cli/eval.py:evaluate": "its parameters are the command's options, one or two lines each",
}


def test_modules_are_small() -> None:
    long = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert set(long) <= set(LONG_MODULES), {name: lines for name, lines in long.items() if name not in LONG_MODULES}


def test_functions_are_short() -> None:
    long = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                name = f"{path.relative_to(SOURCE)}:{node.name}"
                if lines > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS:
                    long.append(f"{name} {lines}")
    assert not long, long
