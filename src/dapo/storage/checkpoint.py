"""A checkpoint: the policy in Hugging Face format, and beside it all that resume needs. Whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dapo.errors import RunError
from dapo.files import sync_tree, write_atomically
from dapo.ports import Trainer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAME = re.compile(r"step-(\d{6,})")
_PROGRESS = "progress.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands: steps made, and prompts drawn from the stream. All else follows from the seed."""

    step: int
    stream_position: int


def save_checkpoint(
    folder: Path, progress: Progress, trainer: Trainer, tokenizer: PreTrainedTokenizerBase, *, keep: int
) -> Path:
    """Write `folder/step-NNNNNN` aside, rename it into place, and drop all but the newest `keep`. Returns its path.

    Raises RunError if the disk does not take it; older checkpoints are untouched then.
    """
    from safetensors import SafetensorError  # what a full disk is to it; no OSError

    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{progress.step:06d}"
    if target.exists():
        return target
    aside = folder / f".saving-{target.name}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        trainer.save(aside)
        tokenizer.save_pretrained(str(aside))
        write_atomically(aside / _PROGRESS, (json.dumps(asdict(progress)) + "\n").encode())
        sync_tree(aside)
        os.replace(aside, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(
            f"The checkpoint {target} could not be written: {error}. Older checkpoints are as they were. Make room "
            f"({shutil.disk_usage(folder).free / 1e9:.1f} GB are free) or choose another folder, then use --resume."
        ) from error
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and (path / _PROGRESS).is_file()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def read_progress(checkpoint: Path) -> Progress:
    """Read where the run stood when the checkpoint was written."""
    return Progress(**json.loads((checkpoint / _PROGRESS).read_text(encoding="utf-8")))
