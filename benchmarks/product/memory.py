"""The memory that this process holds, from the kernel. Linux only; elsewhere nothing is measured."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def resident_gb(*, peak: bool = False) -> float:
    """Resident memory now, or its peak since the last reset, in GB (10^9 bytes)."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in _STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e9
    raise OSError(f"{_STATUS} has no {name}")


def reset_peak() -> None:
    """Start the peak anew from what is resident now."""
    _RESET.write_text("5", encoding="utf-8")
