"""Measures a policy on a file of problems, into a folder of its own that an interrupted evaluation goes on from."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.data.config import SourceConfig
from dapo.inference.policy import open_policy
from dapo.inference.saved import Measured, measured, summary_of
from dapo.models.config import ModelConfig
from dapo.models.source import check_source
from dapo.seeds import derive_seed
from dapo.storage.evaluation_folder import EvaluationFolder, evaluation_settings, reply_line, settings_digest
from dapo.storage.run_folder import find_policy
from dapo.types import Problem, Sampling
from dapo.verifiers.config import VerifierConfig

if TYPE_CHECKING:
    from dapo.data.known_keys import KeyDifference
    from dapo.evaluation import ProblemResult


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What to measure a model on, and how. `samples` None: as many as the file holds copies of each problem."""

    model: str
    data: SourceConfig
    sampling: Sampling
    samples: int | None = None
    problems: int | None = None
    seed: int = 0
    verifier: VerifierConfig = field(default_factory=VerifierConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """A request with its data opened: what will be asked, and into which folder."""

    request: EvaluationRequest
    problems: Sequence[Problem]
    copies: int
    key_differences: Sequence[KeyDifference]
    settings: Mapping[str, Any]
    folder: EvaluationFolder

    @property
    def samples(self) -> int:
        return self.request.samples or self.copies


def plan_evaluation(request: EvaluationRequest, out: Path | None = None) -> EvaluationPlan:
    """Open the data, check its known keys, and settle all that determines the replies. Raises RequestError.

    The folder is `out`, or `evaluations/MODEL-DATA-DIGEST`, so that the same request finds its own folder again.
    """
    from dapo.data.problems import open_problems

    model = find_policy(request.model)
    check_source(ModelConfig(path=model))
    copies, differences = _look_at(request.data)
    problems: Sequence[Problem] = open_problems(request.data)
    problems = problems[: request.problems or len(problems)]
    settings = evaluation_settings(
        model=model,
        model_mark=_model_mark(Path(model).expanduser()),
        data={"path": request.data.path, "template": request.data.template},
        problems=problems,
        copies=copies,
        samples=request.samples or copies,
        sampling=request.sampling,
        seed=request.seed,
        verifier=request.verifier.name,
    )
    name = f"{_model_name(model)}-{Path(request.data.path).stem}-{settings_digest(settings)[:8]}"
    return EvaluationPlan(
        request=request,
        problems=problems,
        copies=copies,
        key_differences=differences,
        settings=settings,
        folder=EvaluationFolder(out or Path("evaluations") / name),
    )


def run_evaluation(plan: EvaluationPlan, on_progress: Callable[[int, int], None] | None = None) -> Measured:
    """Make what is missing of an evaluation. Every problem is on disk once it is complete; a stop loses none of those.

    `on_progress` is called with the number of complete problems and of all. No model is opened if nothing is missing.
    """
    plan.folder.start(plan.settings)
    complete = {line["number"] for line in plan.folder.lines()}
    missing = {problem.id: number for number, problem in enumerate(plan.problems) if number not in complete}
    if missing:
        _generate(plan, missing, on_progress)
    lines = plan.folder.lines()
    summary = summary_of(lines, plan.settings, plan.settings["scorer"]["verifier"])
    plan.folder.write(lines, summary)
    return measured(plan.folder, summary, lines, plan.key_differences)


def _generate(plan: EvaluationPlan, missing: Mapping[str, int], on_progress: Callable[[int, int], None] | None) -> None:
    from dapo.evaluation import evaluate
    from dapo.tasks.mathematics import Mathematics

    done = len(plan.problems) - len(missing)

    def keep(result: ProblemResult) -> None:
        nonlocal done
        number = missing[result.group.prompt.problem.id]
        plan.folder.add(reply_line(number, result.group, result.scores))
        done += 1
        if on_progress is not None:
            on_progress(done, len(plan.problems))

    policy = open_policy(plan.settings["model"]["path"])
    problems = [plan.problems[number] for number in missing.values()]

    async def ask() -> None:
        with plan.request.verifier.build() as pool:
            try:
                await evaluate(
                    problems,
                    policy.renderer.prompt,
                    policy.engine,
                    Mathematics(train=(), held_out=problems, pool=pool),
                    sampling=plan.request.sampling,
                    samples=plan.samples,
                    seed=derive_seed(plan.request.seed, "evaluation", 0),
                    on_result=keep,
                )
            finally:
                await policy.engine.close()

    asyncio.run(ask())


def _look_at(data: SourceConfig) -> tuple[int, list[KeyDifference]]:
    """Return how many copies of each problem the rows hold (1 where not all have equally many), and known keys that differ."""
    from dapo.data.known_keys import check_keys
    from dapo.data.normal import text_key
    from dapo.data.opening import scan_records
    from dapo.data.records import Record

    records = [record for record in scan_records(data) if isinstance(record, Record)]
    copies = set(Counter(text_key(record.text) for record in records).values())
    return copies.pop() if len(copies) == 1 else 1, check_keys(records)


def _model_name(path: str) -> str:
    """A short name for folders: `RUN-step-000020` for a checkpoint, otherwise the last part of the path."""
    parts = [part for part in re.split(r"[/:]", path) if part]
    is_checkpoint = len(parts) > 2 and parts[-2] == "checkpoints"
    return re.sub(r"[^\w.-]", "_", f"{parts[-3]}-{parts[-1]}" if is_checkpoint else parts[-1])


def _model_mark(folder: Path) -> str | None:
    """Name a local model by its settings and by size and ends of its weight files; None for a model from elsewhere."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("tokenizer*.json")]):
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for place in (0, max(0, size - (1 << 20))):  # training changes every weight, so the ends are enough
                file.seek(place)
                digest.update(file.read(1 << 20))
    return digest.hexdigest()[:16]
