"""Where a run begins: anew, where it was stopped, or from a checkpoint of another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.config import RunConfig
from dapo.errors import ConfigError, DataError, RequestError, RunError
from dapo.storage.checkpoint import Found, copy_checkpoint, half_written, newest_whole, read_progress, set_aside
from dapo.storage.run_folder import BESIDE, RunFolder

if TYPE_CHECKING:
    from dapo.ports import Trainer
    from dapo.prompts import PromptStream

MAY_CHANGE = ("steps", "evaluation", "checkpoint", "report")
"""The sections of a recipe that a resumed run may change: they change what is seen of it, or how long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins. `origin` is the step that this folder's run began after; `state` what the loop goes on with.

    `warnings` say what was lost or damaged; `notes` say the rest.
    """

    first_step: int = 1
    origin: int = 0
    state: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    forked_from: Mapping[str, Any] | None = None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that would make a different run, by name: what they were and what they are now."""
    old, new = _flat(before), _flat(now)
    passed = (*MAY_CHANGE, *BESIDE)
    names = sorted(name for name in old.keys() | new.keys() if name.split(".")[0] not in passed)
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def refuse_another_run(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume with a recipe that would make a different run. Raises ConfigError with the difference."""
    changed = differences(before, now)
    if changed:
        raise ConfigError(
            f"--resume was asked for, and the recipe is not the one that {path} was begun with:\n{_shown(changed)}\n"
            f"That would be a different run. Use the same settings ({', '.join(MAY_CHANGE)} may change), or begin another "
            f"run from this one's newest checkpoint: --fork {path} with a new folder as --run."
        )


def take_up(config: RunConfig, folder: RunFolder, trainer: Trainer, stream: PromptStream) -> Start:
    """Take back the newest whole checkpoint, and drop what was made after it. Raises RequestError if none is whole.

    A run that was stopped before its first checkpoint begins anew.
    """
    found = newest_whole(folder.checkpoints)
    forked_from = folder.config().get("forked_from")
    if found is None:
        if forked_from is not None:
            raise RequestError(
                f"{folder.path} was to be forked from {forked_from['folder']}, and was stopped before that was done. Remove "
                "the folder and fork once more."
            )
        warnings = _half_written(folder)
        folder.forget_after(-1)
        anew = "There is no checkpoint to go on from: the run begins anew. checkpoint.every says how often one is made."
        return Start(notes=(anew,), warnings=tuple(warnings))
    origin = 0 if forked_from is None else int(forked_from["step"])
    is_fork = forked_from is not None and found.step == origin
    changed = forked_from["difference"] if is_fork and forked_from else {}
    state, notes = _restore(found.checkpoint, trainer, stream, changed)
    lost = _lost_lines(folder, origin + 1, found.step)  # first: a file that is not the run's stops it as it is
    warnings = [*_tidy(folder, found), *lost]
    folder.forget_after(found.step)
    return Start(
        first_step=found.step + 1,
        origin=origin,
        state=state,
        notes=(*notes, _where(found.step, config.steps)),
        warnings=tuple(warnings),
        forked_from=forked_from,
    )


def refuse_nested(source: Path, folder: Path) -> None:
    """Refuse a fork into the folder that it is forked from, or the other way round. Raises RequestError."""
    there, here = source.resolve(), folder.resolve()
    if there == here or there in here.parents or here in there.parents:
        raise RequestError(
            f"--fork {source} was asked for with the run folder {folder}, and one of them lies in the other: each would hold "
            "files of the other's run. Choose a folder beside it with --run."
        )


def check_fork(source: RunFolder) -> None:
    """Refuse, before anything is loaded, a fork from what is no run. Raises RequestError."""
    if not (source.path / "config.json").is_file() or source.newest_checkpoint() is None:
        raise RequestError(
            f"--fork {source.path} was asked for, and that folder holds no run with a checkpoint. Name the folder of a run, "
            "the one with metrics.jsonl and checkpoints/ in it."
        )
    source.config()


def fork(config: RunConfig, folder: RunFolder, source: RunFolder, trainer: Trainer, stream: PromptStream) -> Start:
    """Begin a run in an empty folder from the newest whole checkpoint of another: weights, optimizer, counters.

    With the same settings all else goes on too. Where a setting differs, carried groups stay behind; the place in the
    data is kept if the data is the same. Raises RequestError where the checkpoint does not fit the recipe.
    """
    refuse_nested(source.path, folder.path)
    found = newest_whole(source.checkpoints)
    assert found is not None  # check_fork saw one
    if found.step >= config.steps:
        raise ConfigError(
            f"The checkpoint {found.checkpoint} has made {found.step} steps, and the recipe asks for {config.steps} in all: "
            f"nothing would be trained. Ask for more, e.g. -o steps={2 * found.step}."
        )
    now = config.model_dump(mode="json")
    changed = differences(source.config(), now)
    try:
        state, notes = _restore(found.checkpoint, trainer, stream, changed)
    except RunError as error:
        raise ConfigError(f"--fork {source.path} was asked for, and its checkpoint cannot serve: {error}") from error
    forked_from = {
        "folder": str(source.path.resolve()),
        "step": found.step,
        "difference": {name: {"there": there, "here": here} for name, (there, here) in changed.items()},
    }
    folder.start(now, forked_from=forked_from)
    copy_checkpoint(found.checkpoint, folder.checkpoints)
    said = f"Forked from {source.path} after step {found.step}" + (
        f", with other settings:\n{_shown(changed)}" if changed else ", with the same settings."
    )
    return Start(
        first_step=found.step + 1,
        origin=found.step,
        state=state,
        notes=(said, *notes),
        warnings=tuple(f"The checkpoint {path} is damaged: {fault}." for path, fault in found.damaged.items()),
        forked_from=forked_from,
    )


def _restore(
    checkpoint: Path, trainer: Trainer, stream: PromptStream, changed: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Give trainer and stream their state back. Raises RequestError where a whole checkpoint holds something else than
    they can use."""
    from safetensors import SafetensorError

    try:
        trainer.restore(checkpoint)
        return _restore_stream(stream, read_progress(checkpoint).state, changed)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            f"The checkpoint {checkpoint} is whole, and what it holds cannot be taken back ({type(error).__name__}: {error}). "
            "Rename its folder, so that the one before it is used, or restore it from a copy."
        ) from error


def _lost_lines(folder: RunFolder, first: int, last: int) -> list[str]:
    """Say which steps the run has made and metrics.jsonl does not show."""
    missing = folder.missing_steps(first, last)
    if not missing:
        return []
    shown = ", ".join(str(step) for step in missing[:_SHOWN_STEPS]) + (", …" if len(missing) > _SHOWN_STEPS else "")
    whole = f"{missing[0]} to {missing[-1]}" if len(missing) == last - first + 1 > 1 else shown
    return [f"metrics.jsonl has no line for {len(missing)} steps that the run has made: {whole}. They stay lost."]


_SHOWN_STEPS = 10


def _restore_stream(
    stream: PromptStream, state: Mapping[str, Any], changed: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Give the stream its place back. With changed settings of a fork, nothing else of the state is taken over: groups
    that another recipe collected stay behind."""
    if not changed:
        stream.restore(state["stream"])
        return state, []
    try:
        stream.restore(state["stream"])
    except DataError:
        return None, ["The training problems are others than there: they are drawn from their beginning."]
    return None, []


def _tidy(folder: RunFolder, found: Found) -> list[str]:
    """Put damaged checkpoints out of the way; say so, and what was only half written."""
    warnings = [
        f"The checkpoint {path} is damaged: {fault}. It is now {set_aside(path).name}, and the one before it is used."
        for path, fault in found.damaged.items()
    ]
    return warnings + _half_written(folder)


def _half_written(folder: RunFolder) -> list[str]:
    return [
        f"The checkpoint {name} was only half written when the run was stopped; it is removed."
        for name in half_written(folder.checkpoints)
    ]


def _where(step: int, steps: int) -> str:
    if step >= steps:
        return f"The run has made {step} steps already, and the recipe asks for {steps}: nothing is left to train."
    return f"Going on after step {step}."


def _shown(changed: Mapping[str, tuple[Any, Any]]) -> str:
    return "\n".join(f"  - {name}: {there!r} there, {here!r} now" for name, (there, here) in changed.items())


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
