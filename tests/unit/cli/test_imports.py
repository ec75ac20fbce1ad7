"""A person who asks for help, looks at a recipe or mistypes a field does not wait for torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
from dapo.cli.main import run

HEAVY = ("torch", "transformers", "datasets", "pyarrow", "sympy", "numpy")
for words in json.loads(sys.argv[1]):
    sys.argv = ["dapo", *words]
    code = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    loaded = [name for name in HEAVY if name in sys.modules]
    print("RESULT", code or 0, *loaded, file=sys.__stderr__)
"""


def results(tmp_path: Path, *requests: list[str]) -> list[str]:
    """Make the requests one after the other in a new process; return the exit code and what heavy thing is loaded."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(requests)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return [line.removeprefix("RESULT ") for line in done.stderr.splitlines() if line.startswith("RESULT")]


def test_help_and_show_need_nothing_heavy(recipe: Path, tmp_path: Path) -> None:
    requests = [
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["eval", "--help"],
        ["sample", "--help"],
        ["show", str(recipe)],
        ["show", str(recipe), "--json"],
    ]
    assert results(tmp_path, *requests) == ["0"] * len(requests)


def test_wrong_requests_need_nothing_heavy(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1?"}\n')
    requests = [
        ["show", "none.toml"],
        ["show", str(recipe), "-o", "algorithm.clip_hihg=0.3"],
        ["train", str(recipe), "-o", "batch.group_size=1"],
        ["train", str(recipe), "-o", "algorithm.soft_overlong.cache=40"],
        ["train", str(recipe), "-o", "steps=0"],
        ["train", str(recipe)],  # the model is missing
        ["train", str(recipe), "-o", "task={ type = 'jsonl', path = 'none.jsonl' }"],
        ["train", str(recipe), "-o", "task={ type = 'jsonl', path = 'rows.jsonl' }"],
        ["train", str(recipe), "--resume"],
        ["eval"],
        ["nonsense"],
    ]
    assert results(tmp_path, *requests) == ["2"] * len(requests)
