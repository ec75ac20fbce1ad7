from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.running import Shell

RECIPE = """
steps = 4

[model]
path = "package:no_such_package"

[task]
type = "arithmetic"

[algorithm]
type = "dapo"

[batch]
groups_per_step = 8
group_size = 4
updates_per_step = 2
max_tokens = 40
max_prompt_tokens = 64
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a working directory that is otherwise empty."""
    monkeypatch.chdir(tmp_path)
    path = Path("mine.toml")
    path.write_text(RECIPE, encoding="utf-8")
    return path
