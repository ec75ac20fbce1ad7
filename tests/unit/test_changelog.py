"""The version is said in three places, and they agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import dapo

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_newest_version_is_the_package_s_and_pyproject_s() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    newest = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (unreleased|\d{4}-\d{2}-\d{2})", headings[0])
    assert newest is not None, f"the first heading is {headings[0]!r}, not e.g. '[0.1.0] - unreleased'"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert newest[1] == dapo.__version__ == project["version"]


def test_kinds_of_change_are_those_of_keep_a_changelog() -> None:
    kinds = set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
