"""What the machine says of itself."""

from __future__ import annotations

import resource
import sys


def peak_memory_gb() -> float:
    """The largest memory this process has held: the GPU's where torch runs on one, else the process's own. In GB."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 1e9
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e9
