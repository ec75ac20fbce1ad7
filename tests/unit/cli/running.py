"""Calls the command line in this process, as the console script does."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from dapo.cli.main import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands: `shell("show", "mine.toml")`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["dapo", *words])
        hook = sys.excepthook
        try:
            with pytest.raises(SystemExit) as ended:
                run()
                raise SystemExit(0)  # the console script ends so where `run` returns
        finally:
            sys.excepthook = hook  # typer puts its own in
        printed = self._capsys.readouterr()
        code = ended.value.code
        return Done(code=code if isinstance(code, int) else 0 if code is None else 1, out=printed.out, err=printed.err)
