"""What the machine says of itself."""

from __future__ import annotations

import ctypes
import resource
import sys


def peak_memory_gb() -> float:
    """The largest memory this process has held: the GPU's where torch runs on one, else the process's own. In GB."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 1e9
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e9


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h


def keep_freed_memory() -> None:
    """Let this process keep memory that it has freed and will want again, where the C library is glibc.

    It would return each large tensor to the system at once and fetch zeroed pages for the next: a training step on the
    processor faulted 740,000 pages that way, a third of its time. The largest tensors still go back at once, lest holes of
    their size be left. `return_freed_memory` between two stages keeps the sum from growing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_MMAP_THRESHOLD, 2**25)
    mallopt(_ARENA_MAX, 1)  # other threads' arenas cannot grow large


def return_freed_memory() -> None:
    """Give freed memory back to the system now, where the C library is glibc."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
