"""Runs trainings as children of a process that has loaded every library: a child starts in milliseconds.

Reads one request a line from the standard input, as JSON, and answers each with one line. A request names a run:
`overrides`, `run`, `resume`; and how it dies, if it does:

    kill_after   seconds, after which the child gets SIGKILL
    kill_at      the number of the moment, from 1, at which the child kills itself
    torn_line    the number of the line, from 1, of which the child writes half before it kills itself
    file_limit   no file may grow beyond so many bytes (RLIMIT_FSIZE)
    fork_of      the run that it is forked from

A moment is a call that changes the disk: a rename, a sync, a link, a removal, a folder made, tensors or a line written.
The answer: `killed`, `code`, `moments`, `seconds`, `said` (the error's words) and `heard` (the standard error).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

RECIPE = Path("recipe.toml")
HEARD = Path("heard.txt")
LOADED = (
    "safetensors.torch",
    "transformers.models.llama.modeling_llama",
    "dapo.cli.main",
    "dapo.engines.hf",
    "dapo.evaluation",
    "dapo.loop",
    "dapo.reporting.html",
    "dapo.run",
    "dapo.storage.evaluation_folder",
    "dapo.storage.rollouts",
    "dapo.trainers.core",
)


def serve() -> None:
    """Load everything once, then answer requests until the input ends."""
    import torch

    for name in LOADED:
        import_module(name)
    torch.set_num_threads(1)  # a process with more threads must not be forked
    say("ready")
    for line in sys.stdin:
        say(json.dumps(answer(json.loads(line))))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run a training in a child."""
    reading, writing = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        run_and_end(request, writing)
    os.close(writing)
    if request.get("kill_after") is not None:
        time.sleep(request["kill_after"])
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    moments, _, words = said.partition("\n")
    return {
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "moments": int(moments) if moments else None,
        "said": words,
        "heard": HEARD.read_text(),
        "seconds": time.perf_counter() - started,
    }


def run_and_end(request: dict[str, Any], pipe: int) -> None:
    """Train in this process, and end it with the exit code that the command would have."""
    from dapo.config import load_config
    from dapo.errors import DapoError
    from dapo.run import train_run

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(HEARD, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if request.get("file_limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"], resource.RLIM_INFINITY))
    moments = Moments(request.get("kill_at"), request.get("torn_line"))
    moments.watch()
    code, words = 0, ""
    try:
        config = load_config(RECIPE, request["overrides"])
        fork_of = Path(request["fork_of"]) if request.get("fork_of") else None
        train_run(config, Path(request["run"]), resume=request["resume"], fork_of=fork_of)
    except DapoError as error:
        code, words = error.exit_code, str(error)
    except BaseException as error:
        code, words = 99, repr(error)
        raise
    finally:
        os.write(pipe, f"{moments.count}\n{words}".encode())
        os._exit(code)


class Moments:
    """Counts the calls that change the disk, and kills the process at the one that was asked for."""

    def __init__(self, kill_at: int | None, torn_line: int | None) -> None:
        self.count = self.lines = 0
        self._kill_at = kill_at
        self._torn_line = torn_line

    def watch(self) -> None:
        """Put a count in front of every such call."""
        import safetensors.torch
        import transformers.modeling_utils

        import dapo.jsonlines
        import dapo.storage.run_folder
        import dapo.trainers.state

        for name in ("replace", "fsync", "symlink", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self._counted(getattr(os, name)))
        save = self._counted(safetensors.torch.save_file)
        dapo.trainers.state.save_file = save
        transformers.modeling_utils.safe_save_file = save
        append = dapo.jsonlines.append_json_line

        def append_line(path: Path, value: dict[str, Any]) -> None:
            self.lines += 1
            if self.lines == self._torn_line:
                with path.open("a", encoding="utf-8") as file:
                    line = json.dumps(value)
                    file.write(line[: len(line) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            if self.is_last():
                os.kill(os.getpid(), signal.SIGKILL)
            append(path, value)

        dapo.storage.run_folder.append_json_line = append_line

    def is_last(self) -> bool:
        """Count a moment; say whether it is the one to die at."""
        self.count += 1
        return self.count == self._kill_at

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if self.is_last():
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return counted


if __name__ == "__main__":
    serve()
