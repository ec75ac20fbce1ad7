"""Every measurement is a process of its own, alone on the machine: asked by a JSON file, answering by another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.environments import BENCH, ROOT, python_of

_FIXED = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CACHE_ROOT": str(BENCH / "vllm-cache"),
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_PROGRESS = ("product:", "trl:")


def say(text: str) -> None:
    """Write a line at once, so that a long run shows how far it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class FailedRunError(Exception):
    """A measured process ended without an answer."""


def ask_product(script: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run `benchmarks.product.SCRIPT` with this interpreter. Raises FailedRunError."""
    return _ask([sys.executable, "-m", f"benchmarks.product.{script}"], script, request, {})


def ask_peer(script: str, environment: str, request: Mapping[str, Any], **variables: str) -> dict[str, Any]:
    """Run `benchmarks/peers/SCRIPT.py` in an environment of its own. Raises FailedRunError."""
    command = [str(python_of(environment)), str(ROOT / "benchmarks/peers" / f"{script}.py")]
    return _ask(command, script, request, variables)


def _ask(command: list[str], name: str, request: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    work = BENCH / "work"
    work.mkdir(parents=True, exist_ok=True)
    asked, answered, log = (work / f"{name}.{kind}" for kind in ("request.json", "answer.json", "log"))
    asked.write_text(json.dumps(request), encoding="utf-8")
    answered.unlink(missing_ok=True)
    count = str(request.get("threads", threads()))
    environment = {**os.environ, **_FIXED, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, **variables}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [*command, str(asked), str(answered)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                stream.write(line)
                if line.startswith(_PROGRESS):
                    say("    " + line.rstrip())
            status = process.wait()
        finally:
            process.kill()  # where this program is interrupted, the measured one ends with it
            process.wait()
    if status != 0 or not answered.is_file():
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        raise FailedRunError(f"{name} ended with status {status}; the whole log is {log}:\n{tail}")
    answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return answer
