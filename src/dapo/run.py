"""From a recipe to a run: checks everything that can be checked, opens every part, closes them in reverse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.config import RunConfig, remarks
from dapo.errors import ConfigError
from dapo.models.source import check_source
from dapo.recorder import FolderRecorder
from dapo.sampling_plan import evaluation_sampling, held_out_problems, order_seed, training_sampling
from dapo.seeds import derive_seed
from dapo.signals import stops_cleanly
from dapo.storage.run_folder import RunFolder
from dapo.types import Problem

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm
    from dapo.loop import Outcome, Run
    from dapo.models.render import Renderer
    from dapo.ports import Engine, Task, Trainer
    from dapo.prompts import PromptStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a training run came to."""

    outcome: Outcome
    folder: Path
    policy: Path | None
    report: Path
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    seconds: float


def check_request(config: RunConfig, folder: RunFolder, *, resume: bool) -> None:
    """Refuse, before anything is loaded or written, what can be seen to be impossible. Raises RequestError."""
    folder.check(resume=resume)
    if resume and folder.newest_checkpoint() is not None:
        refuse_another_run(folder.config(), config.model_dump(mode="json"), folder.path)
    config.task.check()
    check_source(config.model)


_MAY_CHANGE = ("steps", "evaluation", "checkpoint", "report", "versions")


def refuse_another_run(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume with a recipe that would make a different run. Raises ConfigError with the difference."""
    old, new = _flat(before), _flat(now)
    names = sorted(name for name in old.keys() | new.keys() if name.split(".")[0] not in _MAY_CHANGE)
    changed = [name for name in names if old.get(name) != new.get(name)]
    if changed:
        lines = "\n".join(f"  - {name}: {old.get(name)!r} there, {new.get(name)!r} now" for name in changed)
        raise ConfigError(
            f"--resume was asked for, and the recipe is not the one that {path} was begun with:\n{lines}\n"
            f"That would be a different run. Use the same settings ({', '.join(_MAY_CHANGE[:-1])} may change), or another "
            "run folder."
        )


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def train_run(config: RunConfig, path: Path, *, resume: bool = False) -> Result:
    """Train by a recipe into a run folder. Ctrl-C and SIGTERM end the run cleanly after saving."""
    folder = RunFolder(path)
    check_request(config, folder, resume=resume)
    from dapo.models.load import check_positions, open_renderer
    from dapo.prompts import PromptStream, check_prompt_lengths

    task = config.task.build(config.seed)
    renderer = open_renderer(config.model)
    limit = config.batch.max_prompt_tokens
    problems = task.train_problems()
    held_out = held_out_problems(config, task) if config.evaluation.enabled else ()
    longest = limit
    if config.batch.overlong_prompts == "refuse":
        longest = check_prompt_lengths(problems, renderer.prompt, limit, what="training")
    check_positions(config.model, longest + config.batch.max_tokens)
    stream = PromptStream(
        problems,
        renderer.prompt,
        seed=order_seed(config),
        max_prompt_tokens=limit if config.batch.overlong_prompts == "drop" else None,
        epochs=config.batch.epochs,
    )
    with folder.lock():
        return asyncio.run(_train(config, folder, task, renderer, stream, held_out, resume=resume))


async def _train(
    config: RunConfig,
    folder: RunFolder,
    task: Task,
    renderer: Renderer,
    stream: PromptStream,
    held_out: Sequence[Problem],
    *,
    resume: bool,
) -> Result:
    from dapo.loop import Ending, train, unless_stopped
    from dapo.reporting.html import write_report

    started = time.perf_counter()
    algorithm = config.algorithm.build(config.batch.max_tokens)
    trainer = config.trainer.build(config.model, algorithm, config.batch.temperature)
    engine = config.engine.build(config.model, renderer)
    # From here on something is written: all that can refuse the request has had its turn.
    first_step = _restore(folder, trainer, stream) if resume else 1
    folder.start(config.model_dump(mode="json"))  # on resume too: the recipe that is followed from here on
    recorder = FolderRecorder(config, folder, trainer, renderer, stream)
    for remark in [*remarks(config), *(_resumed(folder, first_step, config.steps) if resume else [])]:
        recorder.note(remark)
    try:
        run = _assemble(config, algorithm, task, renderer, stream, engine, trainer, recorder, held_out, first_step)
        with stops_cleanly(run.stop, recorder.note):
            outcome = await train(run)
            if outcome.steps >= first_step:
                recorder.save(outcome.steps)
            is_measured = any(line["step"] == outcome.steps for line in recorder.evaluations)
            if outcome.ending is not Ending.STOPPED and outcome.steps > 0 and not is_measured:
                await unless_stopped(run.evaluate(outcome.steps), run.stop)
    finally:
        await engine.close()
        trainer.close()
        recorder.close()
        if folder.path.exists():
            write_report(folder.path, replies=config.report.replies_in_report)
    lines = recorder.evaluations
    return Result(
        outcome=outcome,
        folder=folder.path,
        policy=folder.newest_checkpoint(),
        report=folder.report,
        before=lines[0] if lines and lines[0]["step"] == 0 else None,
        after=lines[-1] if lines and lines[-1]["step"] > 0 else None,
        seconds=time.perf_counter() - started,
    )


def _resumed(folder: RunFolder, first_step: int, steps: int) -> list[str]:
    """What a person should know about where a resumed run goes on."""
    if folder.newest_checkpoint() is None:
        return [
            "There is no checkpoint to go on from: the run begins anew. checkpoint.every says how often one is made."
        ]
    if first_step > steps:
        return [
            f"The run has made {first_step - 1} steps already, and the recipe asks for {steps}: nothing is left to train."
        ]
    return [f"Going on after step {first_step - 1}."]


def _restore(folder: RunFolder, trainer: Trainer, stream: PromptStream) -> int:
    """Take back the newest checkpoint, if there is one; return the number of the next step."""
    from dapo.storage.checkpoint import read_progress

    checkpoint = folder.newest_checkpoint()
    if checkpoint is None:
        folder.forget_after(-1)
        return 1
    progress = read_progress(checkpoint)
    trainer.restore(checkpoint)
    stream.position = progress.stream_position
    folder.forget_after(progress.step)
    return progress.step + 1


def _assemble(
    config: RunConfig,
    algorithm: Algorithm,
    task: Task,
    renderer: Renderer,
    stream: PromptStream,
    engine: Engine,
    trainer: Trainer,
    recorder: FolderRecorder,
    held_out: Sequence[Problem],
    first_step: int,
) -> Run:
    from dapo.collect import CollectPlan
    from dapo.loop import Run
    from dapo.machine import peak_memory_gb

    batch, dynamic = config.batch, config.algorithm.dynamic_sampling
    settings = config.evaluation

    engine_is_old, reuses = _old_logprobs(config, engine.precision, trainer.precision)
    return Run(
        algorithm=algorithm,
        task=task,
        stream=stream,
        engine=engine,
        trainer=trainer,
        recorder=recorder,
        evaluate=_measurer(config, task, renderer, engine, recorder, held_out),
        plan=CollectPlan(
            groups=batch.groups_per_step,
            group_size=batch.group_size,
            sampling=training_sampling(config),
            seed=config.seed,
            max_rounds=dynamic.max_rounds if dynamic.enabled else 1,
            oversample=dynamic.oversample if dynamic.enabled else 1.0,
        ),
        first_step=first_step,
        last_step=config.steps,
        updates_per_step=batch.updates_per_step,
        reuses_rollouts=reuses,
        engine_is_old=engine_is_old,
        saves_at=lambda step: step % config.checkpoint.every == 0,
        evaluates_at=lambda step: bool(settings.every) and step % (settings.every or 1) == 0,
        peak_memory_gb=peak_memory_gb,
    )


def _measurer(
    config: RunConfig,
    task: Task,
    renderer: Renderer,
    engine: Engine,
    recorder: FolderRecorder,
    held_out: Sequence[Problem],
) -> Callable[[int], Awaitable[None]]:
    """What measures held-out accuracy after a step; nothing where there are no problems for it."""
    from dapo.evaluation import evaluate

    settings = config.evaluation

    async def measure(step: int) -> None:
        if not held_out:
            return
        recorder.stage("evaluate")
        result = await evaluate(
            held_out,
            renderer.prompt,
            engine,
            task,
            sampling=evaluation_sampling(config),
            samples=settings.samples,
            seed=derive_seed(config.seed, "evaluation", step),
        )
        recorder.evaluation(step, result)

    return measure


def _old_logprobs(config: RunConfig, engine_precision: str, trainer_precision: str) -> tuple[bool, bool]:
    """Return whether the engine's log-probabilities are the old ones, and whether the trainer must compute its own.

    With one update a rollout neither is needed: the old policy is the one at hand.
    """
    choice = config.trainer.old_logprobs
    if choice == "auto":
        alike = engine_precision == trainer_precision == "float32"
        choice = "engine" if alike else "trainer"
    if choice == "engine":
        return config.batch.updates_per_step > 1 or config.trainer.old_logprobs == "engine", False
    return False, config.batch.updates_per_step > 1
