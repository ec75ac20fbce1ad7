"""How a script is asked and how it answers: the paths of two JSON files on its command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def serve(work: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Read the request, do the work, write the answer."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(work(request)), encoding="utf-8")


def say(text: str) -> None:
    """A line of progress on the standard error stream."""
    sys.stderr.write(f"product: {text}\n")
    sys.stderr.flush()
