"""Saves beside training: the state is copied while training waits, and written, checked and renamed while it goes on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dapo.errors import DapoError, RunError
from dapo.files import check_room, disk_errors_told
from dapo.ports import Snapshot, Trainer
from dapo.storage.checkpoint import Progress, checkpoint_path, settle, write_checkpoint


class SavedTokenizer(Protocol):
    """What of a tokenizer is used here."""

    def save_pretrained(self, folder: str, /) -> object:
        """Write its files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SaverPlan:
    """How checkpoints are kept.

    `accuracies` reads the held-out accuracy by step, or gives None where no best checkpoint is to stay. `sync` brings
    to the disk what a checkpoint takes to be there: the lines of all steps up to its own.
    """

    folder: Path
    keep: int
    accuracies: Callable[[], Mapping[int, float] | None]
    sync: Callable[[], None] = lambda: None


class Saver:
    """Takes checkpoints, one at a time. A thread of its own writes them; what goes wrong there is raised to the caller.

    While one is written, a copy of the whole state stands in the processor's memory: weights, both moments of AdamW, and
    those of a critic; three times the policy's float32 weights without one.
    """

    def __init__(self, plan: SaverPlan, trainer: Trainer, tokenizer: SavedTokenizer) -> None:
        self._plan = plan
        self._trainer = trainer
        self._tokenizer = tokenizer_files(tokenizer)  # once: nobody may use a tokenizer while another thread saves it
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dapo-save")
        self._taken: tuple[Progress, Snapshot] | None = None
        self._running: Future[None] | None = None
        self._last: int | None = None
        self._seconds = 0.0

    def take(self, progress: Progress) -> None:
        """Copy the state as it is now, once the checkpoint before is written. Nothing happens for a step that is saved.

        Raises RunError for what that checkpoint met, and where the disk has no room for this one.
        """
        if progress.step == self._last or checkpoint_path(self._plan.folder, progress.step).exists():
            return
        self.wait()
        snapshot = self._trainer.snapshot()
        self._plan.folder.mkdir(parents=True, exist_ok=True)
        check_room(
            self._plan.folder,
            snapshot.num_bytes + sum(len(content) for content in self._tokenizer.values()),
            what=f"The checkpoint {checkpoint_path(self._plan.folder, progress.step)}",
        )
        self._taken, self._last = (progress, snapshot), progress.step

    def write(self) -> None:
        """Begin to write what was taken, if anything was."""
        if self._taken is not None:
            self._running = self._threads.submit(self._write, *self._taken)
            self._taken = None

    def wait(self) -> None:
        """Wait for the checkpoint that is being written. Raises RunError for what it met."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def raise_early(self) -> None:
        """Raise the RunError of a checkpoint that has failed, without waiting for one that is being written."""
        if self._running is not None and self._running.done():
            self.wait()

    def finish(self) -> None:
        """Wait for what is being written; then drop what need not stay, and point to the best. Raises RunError."""
        self.wait()
        self._settle()

    def seconds(self) -> float:
        """How long checkpoints were written beside training, in those that ended since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> DapoError | None:
        """Let what is being written end, and free the thread. Returns the error of a write that nobody waited for."""
        self._threads.shutdown(wait=True)
        try:
            self.wait()
        except DapoError as error:
            return error
        return None

    def _write(self, progress: Progress, snapshot: Snapshot) -> None:
        started = time.perf_counter()
        write_checkpoint(self._plan.folder, progress, snapshot, self._tokenizer, before_it_counts=self._plan.sync)
        self._settle()
        self._seconds += time.perf_counter() - started

    def _settle(self) -> None:
        with disk_errors_told(self._plan.folder, lambda: 0):
            settle(self._plan.folder, keep=self._plan.keep, accuracies=self._plan.accuracies())


def tokenizer_files(tokenizer: SavedTokenizer) -> dict[str, bytes]:
    """The files that a tokenizer saves, by their path. Raises RunError where they cannot be written even for a moment."""
    with tempfile.TemporaryDirectory(prefix="dapo-tokenizer-") as name:
        folder = Path(name)
        try:
            tokenizer.save_pretrained(name)
        except Exception as error:  # what a full disk is to tokenizers is no OSError
            raise RunError(
                f"The tokenizer's files could not be written into the temporary folder {folder.parent}: {error}. Make room "
                "there, or name another by the environment variable TMPDIR, then go on with --resume."
            ) from error
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
