"""Saved evaluations: read, graded again by another verifier, compared. No model is opened here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.errors import RequestError
from dapo.storage.evaluation_folder import EvaluationFolder
from dapo.types import Finish
from dapo.verifiers.config import VerifierConfig
from dapo.verifiers.grades import Reply, VerifierName

if TYPE_CHECKING:
    from dapo.data.known_keys import KeyDifference
    from dapo.evaluation import Comparison, ProblemSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An evaluation that is complete in its folder: its numbers, one row a problem, and rows with a wrong known key."""

    folder: Path
    summary: Mapping[str, Any]
    table: Sequence[Mapping[str, Any]]
    key_differences: Sequence[KeyDifference] = ()


def regrade(path: Path, verifier: VerifierName) -> Measured:
    """Grade an evaluation's saved replies by a verifier, into `replies-NAME.jsonl` and `summary-NAME.json`.

    No model is opened and the first marks stay. Raises RequestError for an evaluation that is not complete.
    """
    folder, settings, lines = _complete(path, None)
    with VerifierConfig(name=verifier).build() as pool:
        graded = pool.grade_many(
            Reply(response=reply["text"], gold=line["gold"], truncated=reply["finish"] == Finish.LENGTH)
            for line in lines
            for reply in line["replies"]
        )
    grades = iter(graded)
    again = []
    for line in lines:
        replies = []
        for reply in line["replies"]:
            grade = next(grades)
            failed = reply["finish"] == Finish.ERROR  # what the engine did not finish is wrong, whatever it holds
            kept = {name: reply[name] for name in ("text", "finish", "length")}
            marks: dict[str, Any] = {"correct": grade.correct and not failed, "extracted": grade.extracted}
            error = reply.get("error") if failed else grade.error
            replies.append(kept | marks | ({"error": error} if error is not None else {}))
        again.append({**line, "replies": replies})
    summary = summary_of(again, settings, verifier)
    folder.write(again, summary, verifier=verifier)
    return measured(folder, summary, again)


def compare_evaluations(first: Path, second: Path, verifier: str | None = None) -> Comparison:
    """Compare two evaluations on the same problems, by their own marks or by those of a verifier since.

    Raises RequestError where the problems or the scorers differ, or one is not complete.
    """
    from dapo.evaluation import compare

    _, before, old = _complete(first, verifier)
    _, after, new = _complete(second, verifier)
    _refuse_other_problems(first, old, second, new)
    rules = [_rule(settings) for settings in (before, after)]
    if verifier is None and rules[0] != rules[1]:
        raise RequestError(
            f"{first} was scored by {rules[0]} and {second} by {rules[1]}; the difference would be the scorers'. Grade both "
            "by one verifier with --regrade, and compare by it with --verifier."
        )
    by_id = {line["id"]: line for line in new}
    return compare(_problems_of(old), _problems_of([by_id[line["id"]] for line in old]))


def newest_evaluation(path: Path) -> Path | None:
    """The evaluation that a path names: its own folder, or the newest one that a run made in training."""
    if EvaluationFolder(path).exists:
        return path
    found = sorted(folder for folder in (path / "evaluations").glob("step-*") if (folder / "summary.json").is_file())
    return found[-1] if found else None


def summary_of(lines: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], verifier: str) -> dict[str, Any]:
    """The content of `summary.json`."""
    from dapo.evaluation import summarise

    return {
        "model": settings["model"]["path"],
        "data": settings["data"]["path"],
        "verifier": verifier,
        **summarise(_problems_of(lines)),
        "copies": settings["data"]["copies"],
        "temperature": settings["sampling"]["temperature"],
        "top_p": settings["sampling"]["top_p"],
        "max_tokens": settings["sampling"]["max_tokens"],
        "seed": settings["seed"],
    }


def measured(
    folder: EvaluationFolder,
    summary: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    differences: Sequence[KeyDifference] = (),
) -> Measured:
    """Put numbers and table of complete lines together."""
    from dapo.evaluation import problem_table

    table = problem_table(_problems_of(lines))
    return Measured(folder=folder.path, summary=summary, table=table, key_differences=differences)


def _problems_of(lines: Sequence[Mapping[str, Any]]) -> list[ProblemSamples]:
    from dapo.evaluation import ProblemSamples, Sample

    return [
        ProblemSamples(
            id=line["id"],
            gold=line["gold"],
            samples=tuple(
                Sample(
                    correct=reply["correct"],
                    extracted=reply["extracted"],
                    truncated=reply["finish"] == Finish.LENGTH,
                    length=reply["length"],
                    has_error="error" in reply,
                )
                for reply in line["replies"]
            ),
        )
        for line in lines
    ]


def _complete(path: Path, verifier: str | None) -> tuple[EvaluationFolder, dict[str, Any], list[dict[str, Any]]]:
    """Read an evaluation. Raises RequestError if problems are missing or the verifier's marks are."""
    folder = EvaluationFolder(path)
    settings = folder.settings()
    own = verifier is None or settings["scorer"].get("verifier") == verifier
    if not own and not folder.replies(verifier).exists():
        raise RequestError(
            f"{path} holds no marks of the verifier {verifier}. Make them: dapo eval --regrade {path} --verifier {verifier}"
        )
    lines = folder.lines(None if own else verifier)
    wanted = settings["data"]["problems"]
    if len(lines) < wanted:
        raise RequestError(
            f"{path} is not complete: {len(lines)} of {wanted} problems are answered. Finish it first, by the command "
            "that began it."
        )
    return folder, settings, lines


def _rule(settings: Mapping[str, Any]) -> str:
    """Name what scored: a verifier, or the own rule of a task with its settings."""
    verifier = settings["scorer"]["verifier"]
    return f"the verifier {verifier}" if verifier else f"the task {settings['data'].get('task')}"


def _refuse_other_problems(
    first: Path, old: Sequence[Mapping[str, Any]], second: Path, new: Sequence[Mapping[str, Any]]
) -> None:
    marks, others = ({line["id"]: line["mark"] for line in lines} for lines in (old, new))
    faults = [f"  - {name}: only in {first}" for name in marks if name not in others]
    faults += [f"  - {name}: only in {second}" for name in others if name not in marks]
    faults += [
        f"  - {name}: another question or gold" for name in marks if name in others and marks[name] != others[name]
    ]
    if faults:
        more = [f"  and {len(faults) - 5} more"] if len(faults) > 5 else []
        shown = "\n".join([*faults[:5], *more])
        raise RequestError(
            f"{first} and {second} are not of the same problems, so they cannot be compared:\n{shown}\n"
            "Measure both on the same --data, with the same --problems and --template."
        )
