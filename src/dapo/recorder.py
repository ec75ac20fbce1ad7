"""Sends a run's results where they belong: the run folder, the screen, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dapo.config import RunConfig
from dapo.jsonlines import read_json_lines
from dapo.reporting.console import Console
from dapo.storage.run_folder import RunFolder
from dapo.types import Collected, LabelledBatch

if TYPE_CHECKING:
    from dapo.evaluation import Evaluation
    from dapo.models.render import Renderer
    from dapo.ports import Reporter, Trainer
    from dapo.prompts import PromptStream


class FolderRecorder:
    """Sends a run's results to its folder, to the screen and into checkpoints."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, trainer: Trainer, renderer: Renderer, stream: PromptStream
    ) -> None:
        self._config = config
        self._folder = folder
        self._trainer = trainer
        self._renderer = renderer
        self._stream = stream
        self._console: Console | None = Console(config.steps) if config.report.console else None
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

    def groups(self, step: int, collected: Collected, labelled: LabelledBatch | None) -> None:
        from dapo.storage.rollouts import rollout_lines

        if not collected.groups:
            return  # the data had ended before the step began
        self._folder.add_rollouts(step, rollout_lines(step, collected, labelled))

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        self._folder.add_metrics(step, metrics)
        for reporter in self._reporters:
            reporter.write(step, metrics)

    def evaluation(self, step: int, result: Evaluation) -> None:
        line = result.summary(step, self._config.task.type)
        self._folder.add_evaluation(line)
        self._keep_replies(step, result, line)
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
        EvaluationFolder(self._folder.path / "evaluations" / f"step-{step:06d}").replace(settings, lines, line)

    def save(self, step: int) -> None:
        from dapo.storage.checkpoint import Progress, save_checkpoint

        self.stage("save")
        save_checkpoint(
            self._folder.checkpoints,
            Progress(step=step, stream_position=self._stream.position),
            self._trainer,
            self._renderer.tokenizer,
            keep=self._config.checkpoint.keep,
        )

    def close(self) -> None:
        for reporter in self._reporters:
            reporter.close()
