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
        self.note(
            f"held-out accuracy after step {step}: {line['avg']:.1%} (95% interval {line['ci_low']:.1%} to "
            f"{line['ci_high']:.1%}; {line['problems']} problems x {line['samples']})"
        )

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
