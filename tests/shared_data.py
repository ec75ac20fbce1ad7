"""Finds public test data that is kept beside the checkout and not in it; a test that needs it skips where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared"


def shared_file(name: str) -> Path:
    """Return the path of a shared file, e.g. `shared_file("data/math500.jsonl")`, or skip the test."""
    path = Path(os.environ.get("DAPO_SHARED", _DEFAULT)) / name
    if not path.exists():
        pytest.skip(f"needs {name}, which is kept beside the checkout (set DAPO_SHARED to its folder)")
    return path
