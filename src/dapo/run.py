"""From a recipe to a run: checks everything that can be checked, opens every part, closes them in reverse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.config import RunConfig, remarks
from dapo.errors import RequestError
from dapo.models.source import check_source
from dapo.recorder import FolderRecorder
from dapo.resume import Start, check_fork, fork, refuse_another_run, take_up
from dapo.sampling_plan import evaluation_sampling, held_out_problems, order_seed, training_sampling
from dapo.seeds import derive_seed
from dapo.signals import stops_cleanly, unless_stopped
from dapo.storage.checkpoint import steps_saved
from dapo.storage.run_folder import RunFolder
from dapo.types import Problem

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm
    from dapo.loop import Outcome, Run
    from dapo.models.render import Renderer
    from dapo.ports import Engine, Task, Trainer
    from dapo.prompts import Preference, PromptStream


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


def check_request(config: RunConfig, folder: RunFolder, *, resume: bool, source: RunFolder | None = None) -> None:
    """Refuse, before anything is loaded or written, what can be seen to be impossible. Raises RequestError."""
    if resume and source is not None:
        raise RequestError(
            "--resume and --fork were asked for together: --fork begins a new run, --resume goes on with one. Leave --fork "
            "away to go on with a run that was forked."
        )
    folder.check(resume=resume)
    if resume and steps_saved(folder.checkpoints):
        refuse_another_run(folder.config(), config.model_dump(mode="json"), folder.path)
    if source is not None:
        check_fork(source)
    config.task.check()
    check_source(config.model)


def train_run(config: RunConfig, path: Path, *, resume: bool = False, fork_of: Path | None = None) -> Result:
    """Train by a recipe into a run folder. Ctrl-C and SIGTERM end the run cleanly after saving.

    `resume` goes on with the run in the folder; `fork_of` begins a new one there from the newest checkpoint of another.
    """
    folder = RunFolder(path)
    source = RunFolder(fork_of) if fork_of is not None else None
    check_request(config, folder, resume=resume, source=source)
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
        preference=_preference(config),
    )

    def begin(trainer: Trainer) -> Start:
        if source is not None:
            return fork(config, folder, source, trainer, stream)
        return take_up(config, folder, trainer, stream) if resume else Start()

    with folder.lock():
        return asyncio.run(_train(config, folder, task, renderer, stream, held_out, begin))


def _preference(config: RunConfig) -> Preference | None:
    from dapo.prompts import Preference

    if not config.prompt_memory.enabled:
        return None
    batch = config.batch
    return Preference(config=config.prompt_memory, group_size=batch.group_size, groups_per_step=batch.groups_per_step)


async def _train(
    config: RunConfig,
    folder: RunFolder,
    task: Task,
    renderer: Renderer,
    stream: PromptStream,
    held_out: Sequence[Problem],
    begin: Callable[[Trainer], Start],
) -> Result:
    from dapo.loop import Ending, train

    started = time.perf_counter()
    algorithm = config.algorithm.build(config.batch.max_tokens)
    trainer = config.trainer.build(config.model, algorithm, config.batch.temperature)
    engine = config.engine.build(config.model, renderer)
    # From here on something is written: all that can refuse the request has had its turn.
    start = begin(trainer)
    # On resume too: the recipe that is followed from here on.
    folder.start(config.model_dump(mode="json"), forked_from=start.forked_from)
    recorder = FolderRecorder(config, folder, trainer, renderer, done=start.first_step - 1)
    for warning in start.warnings:
        recorder.warn(warning)
    for remark in [*remarks(config), *start.notes]:
        recorder.note(remark)
    try:
        run = _assemble(config, algorithm, task, renderer, stream, engine, trainer, recorder, held_out, start)
        with stops_cleanly(run.stop, recorder.note):
            outcome = await train(run)
            if outcome.ending is not Ending.STOPPED and outcome.steps > 0:
                await unless_stopped(run.evaluate(outcome.steps), run.stop)
            recorder.finish()
    finally:
        await engine.close()
        trainer.close()
        recorder.close()
        _report(folder, config, recorder)
    lines = recorder.evaluations
    return Result(
        outcome=outcome,
        folder=folder.path,
        policy=folder.newest_checkpoint(),
        report=folder.report,
        before=lines[0] if lines and lines[0]["step"] == start.origin else None,
        after=lines[-1] if lines and lines[-1]["step"] > start.origin else None,
        seconds=time.perf_counter() - started,
    )


def _report(folder: RunFolder, config: RunConfig, recorder: FolderRecorder) -> None:
    """Write the report. A disk that does not take it is no reason to hide how the run ended."""
    from dapo.reporting.html import write_report

    try:
        write_report(folder.path, replies=config.report.replies_in_report)
    except OSError as error:
        recorder.note(f"The report could not be written: {error}. `dapo report {folder.path}` makes it again.")


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
    start: Start,
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
            max_groups=dynamic.max_groups if dynamic.enabled else None,
            max_tokens=dynamic.max_tokens if dynamic.enabled else None,
            max_staleness=dynamic.max_staleness,
            when_short=dynamic.when_short if dynamic.enabled else "train_partial",
            scoring_seconds=batch.scoring_seconds,
            judging_seconds=batch.judging_seconds,
        ),
        first_step=start.first_step,
        resumed=start.state,
        last_step=config.steps,
        updates_per_step=batch.updates_per_step,
        reuses_rollouts=reuses,
        engine_is_old=engine_is_old,
        overlaps=batch.overlap,
        max_skipped_in_a_row=batch.max_skipped_in_a_row,
        saves_at=lambda step: step % config.checkpoint.every == 0,
        evaluates_at=lambda step: step == start.origin or (bool(settings.every) and step % (settings.every or 1) == 0),
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
    """What measures held-out accuracy after a step, once; nothing where there are no problems for it."""
    from dapo.evaluation import evaluate

    settings = config.evaluation

    async def measure(step: int) -> None:
        if not held_out or any(line["step"] == step for line in recorder.evaluations):
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
            scoring_seconds=config.batch.scoring_seconds,
        )
        recorder.evaluation(step, result)

    return measure


def _old_logprobs(config: RunConfig, engine_precision: str, trainer_precision: str) -> tuple[bool, bool]:
    """Return whether the engine's log-probabilities are the old ones, and whether the trainer must compute its own.

    With one update a rollout, and none that is used later, neither is needed: the old policy is the one at hand.
    """
    choice = config.trainer.old_logprobs
    if choice == "auto":
        alike = engine_precision == trainer_precision == "float32"
        choice = "engine" if alike else "trainer"
    if choice == "engine":
        is_reused = config.batch.updates_per_step > 1 or config.algorithm.dynamic_sampling.max_staleness > 0
        return is_reused or config.trainer.old_logprobs == "engine", False
    return False, config.batch.updates_per_step > 1
