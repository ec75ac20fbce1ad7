"""One process a run folder, and a crash leaves no lock behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dapo.errors import RequestError
from dapo.storage.run_folder import RunFolder

HOLD = """
import sys
from pathlib import Path
from dapo.storage.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(RequestError, match="Another process is training in"), RunFolder(folder).lock():
        pass
    holder.kill()
    holder.wait()
    with RunFolder(folder).lock():
        assert folder.is_dir()


def test_a_refused_request_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with RunFolder(folder).lock():
        pass
    assert not folder.exists()
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="is a file"):
        RunFolder(tmp_path / "file" / "run").check(resume=False)
