"""Sends a run's results where they belong: the run folder, the screen, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dapo.config import RunConfig
from dapo.files import disk_errors_told
from dapo.jsonlines import read_json_lines, to_json
from dapo.reporting.console import Console
from dapo.reporting.guarded import GuardedConsole
from dapo.storage.checkpoint import Progress
from dapo.storage.run_folder import RunFolder
from dapo.storage.saver import Saver, SaverPlan
from dapo.types import Collected, LabelledBatch

if TYPE_CHECKING:
    from dapo.evaluation import Evaluation
    from dapo.models.render import Renderer
    from dapo.ports import Reporter, Trainer


_log = logging.getLogger(__name__)


class FolderRecorder:
    """Sends a run's results to its folder, to the screen and into checkpoints."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, trainer: Trainer, renderer: Renderer, *, done: int = 0
    ) -> None:
        """`done` steps were made before, and their numbers are in the folder."""
        self._config = config
        self._folder = folder
        self._done = done
        kept = config.checkpoint
        plan = SaverPlan(
            folder=folder.checkpoints,
            keep=kept.keep,
            accuracies=lambda: folder.accuracies() if kept.keep_best else None,
            sync=folder.sync_lines,
        )
        self._saver = Saver(plan, trainer, renderer.tokenizer)
        self._console = GuardedConsole(Console(config.steps)) if config.report.console else None
        self._reporters: list[Reporter] = [self._console] if self._console else []

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Every evaluation of the run so far."""
        return read_json_lines(self._folder.evaluations)

    def stage(self, name: str) -> None:
        if self._console:
            self._console.stage(name)

    def note(self, text: str) -> None:
        """Tell the person at the screen."""
        if self._console:
            self._console.note(text)

    def warn(self, text: str) -> None:
        """Tell the person what went wrong, also where no screen is wanted."""
        if self._console:
            self._console.note(text)
        else:
            _log.warning(text)

    def groups(self, step: int, collected: Collected, labelled: LabelledBatch | None) -> None:
        from dapo.storage.rollouts import rollout_lines

        if not collected.groups:
            return  # the data had ended before the step began
        self._folder.add_rollouts(step, rollout_lines(step, collected, labelled))

    def suspects(self, step: int, collected: Collected, labelled: LabelledBatch, rows: Sequence[int]) -> None:
        from dapo.storage.rollouts import suspect_lines, write_rollouts

        path = self._folder.path / "nonfinite" / f"step-{step:06d}.jsonl.gz"
        lines = suspect_lines(step, collected, labelled, rows)
        with disk_errors_told(path, lambda: sum(len(to_json(line)) for line in lines)):
            write_rollouts(path, lines)

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        whole = metrics.get("time/step", 0.0)
        saving = {
            "time/save_share": metrics.get("time/save", 0.0) / whole if whole else 0.0,
            "time/save_background": self._saver.seconds(),
        }
        values = dict(sorted({**metrics, **saving}.items()))
        self._folder.add_metrics(step, values)
        self._done = step
        self._saver.write()  # only now: what a checkpoint says is done stands in the other files already
        for reporter in self._reporters:
            reporter.write(step, values)
        self._saver.raise_early()

    def evaluation(self, step: int, result: Evaluation) -> None:
        line = result.summary(step, self._config.task.type)
        self._keep_replies(step, result, line)
        self._folder.add_evaluation(line)  # last: a step with a line has been measured
        self.note(
            f"held-out accuracy after step {step}: {line['avg']:.1%} (95% interval {line['ci_low']:.1%} to "
            f"{line['ci_high']:.1%}; {line['problems']} problems x {line['samples']})"
        )

    def _keep_replies(self, step: int, result: Evaluation, line: Mapping[str, Any]) -> None:
        """Write the replies as an evaluation folder, so that they can be read, graded again and compared."""
        from dapo.storage.evaluation_folder import EvaluationFolder, evaluation_settings, reply_line

        task = self._config.task
        groups = [one.group for one in result.results]
        settings = evaluation_settings(
            model=f"{self._folder.path}/step-{step:06d}",
            data={"path": task.type, "task": task.model_dump(mode="json")},
            problems=[group.prompt.problem for group in groups],
            samples=line["samples"],
            sampling=result.sampling,
            seed=self._config.seed,
            verifier=task.verifier.name if task.type == "math" else None,
        )
        lines = [reply_line(number, one.group, one.scores) for number, one in enumerate(result.results)]
        path = self._folder.path / "evaluations" / f"step-{step:06d}"
        with disk_errors_told(path, lambda: sum(len(to_json(line)) for line in lines)):
            EvaluationFolder(path).replace(settings, lines, line)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self.stage("save")
        self._saver.take(Progress(step=step, state=state))
        if step <= self._done:
            self._saver.write()

    def finish(self) -> None:
        """Wait until everything is written. Raises RunError if something was not."""
        self._saver.finish()

    def close(self) -> None:
        """Free what is held. What is being written is written to its end, as far as it goes."""
        failure = self._saver.close()
        if failure is not None:
            self.warn(str(failure))
        for reporter in self._reporters:
            reporter.close()
