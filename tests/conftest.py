"""What many tests share: one thread for tiny models, and the tiny models themselves, made once a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# A tiny model is faster on one thread than on many, and sums in one order. Torch reads this when it is first imported, and
# the commands that tests start inherit it; tests without torch pay nothing.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny(kind="qwen2", ...)` returns the folder of a tiny model, the same one for the same arguments.

    The folder is shared: a test reads it and writes nothing there.
    """
    from tests.tiny import make_tiny

    made: dict[str, Path] = {}

    def get(**settings: object) -> Path:
        name = repr(sorted(settings.items()))
        if name not in made:
            made[name] = make_tiny(tmp_path_factory.mktemp("tiny"), **settings)  # type: ignore[arg-type]
        return made[name]

    return get


@pytest.fixture(autouse=True)
def _own_modules_do_not_leak() -> Iterator[None]:
    """A test's own `my_...` modules are of that test alone, whatever ran before it."""
    yield
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]
