"""An evaluation on disk: what determines the replies, the replies themselves, and the numbers; readable as it is.

settings.json          model, data, sampling, seed and scorer, with a digest of them
replies.jsonl          one line a problem, written when it is complete
summary.json           the numbers
replies-NAME.jsonl     the same replies graded by the verifier NAME, and summary-NAME.json
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dapo.errors import DataError, RequestError
from dapo.files import write_atomically
from dapo.jsonlines import append_json_line, read_json_lines, to_json
from dapo.storage.run_folder import package_versions
from dapo.types import Problem, RolloutGroup, Sampling, Score

_BESIDE = ("digest", "versions")
"""What settings.json holds beside the settings."""


class EvaluationFolder:
    """Paths, readers and writers of one evaluation's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def settings_file(self) -> Path:
        return self.path / "settings.json"

    def replies(self, verifier: str | None = None) -> Path:
        """The file of the replies, as they were graded first or by a verifier since."""
        return self.path / ("replies.jsonl" if verifier is None else f"replies-{verifier}.jsonl")

    def summary(self, verifier: str | None = None) -> Path:
        """The file of the numbers."""
        return self.path / ("summary.json" if verifier is None else f"summary-{verifier}.json")

    @property
    def exists(self) -> bool:
        """Whether an evaluation was begun here."""
        return self.settings_file.is_file()

    def settings(self) -> dict[str, Any]:
        """What the evaluation was begun with. Raises RequestError where there is none or it cannot be read."""
        if not self.exists:
            raise RequestError(
                f"{self.path} holds no evaluation (no settings.json). Name a folder of `dapo eval --data`."
            )
        try:
            content = json.loads(self.settings_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RequestError(f"{self.settings_file} is not JSON: {error}. Restore the file.") from error
        if not isinstance(content, dict):
            raise RequestError(f"{self.settings_file} holds no object. Restore the file.")
        return {name: value for name, value in content.items() if name not in _BESIDE}

    def replace(
        self, settings: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
    ) -> None:
        """Write a complete evaluation in place of whatever evaluation is here."""
        if self.exists:
            shutil.rmtree(self.path)
        self.start(settings)
        self.write(lines, summary)

    def start(self, settings: Mapping[str, Any]) -> None:
        """Begin an evaluation, or go on with the one that has the same settings.

        Raises RequestError, with the differences, for a folder that holds another one, or other files.
        """
        if self.exists:
            refuse_other_settings(self.settings(), settings, self.path)
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RequestError(
                f"{self.path} holds something else than an evaluation. Choose another folder with --out."
            )
        content = {**settings, "digest": settings_digest(settings), "versions": package_versions()}
        write_atomically(self.settings_file, _pretty(content))

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a problem's line."""
        append_json_line(self.replies(), line)

    def lines(self, verifier: str | None = None) -> list[dict[str, Any]]:
        """The complete lines in the order of the problems, each problem once. Raises DataError for a broken one."""
        path = self.replies(verifier)
        found = {}
        for number, line in enumerate(read_json_lines(path), start=1):
            if not isinstance(line.get("number"), int) or not isinstance(line.get("replies"), list):
                raise DataError(f"line {number} of {path} is no line of replies; remove it or restore the file")
            found[line["number"]] = line
        return [found[number] for number in sorted(found)]

    def write(
        self, lines: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], *, verifier: str | None = None
    ) -> None:
        """Write all lines and the numbers, each file whole or not at all."""
        write_atomically(self.replies(verifier), "".join(to_json(line) + "\n" for line in lines).encode())
        write_atomically(self.summary(verifier), _pretty(summary))


def refuse_other_settings(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise RequestError with every setting that differs."""
    old, new = _flat(before), _flat(json.loads(json.dumps(now)))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    if names:
        lines = "\n".join(f"  - {name}: {old.get(name)!r} there, {new.get(name)!r} now" for name in names)
        raise RequestError(
            f"{path} holds an evaluation with other settings:\n{lines}\n"
            "Its replies cannot be mixed with others. Use the same settings to go on with it, or another folder with "
            "--out; to grade its replies by another verifier, use --regrade."
        )


def evaluation_settings(
    *,
    model: str,
    data: Mapping[str, Any],
    problems: Sequence[Problem],
    samples: int,
    sampling: Sampling,
    seed: int,
    verifier: str | None,
    model_mark: str | None = None,
    copies: int = 1,
) -> dict[str, Any]:
    """Put together the content of `settings.json`. `data` says where the problems come from, its `path` by name.

    `verifier` None: a task's own rule scored. `copies`: how often the data held each problem.
    """
    mark = _digest([problem_mark(problem) for problem in problems])
    return {
        "model": {"path": model, "mark": model_mark},
        "data": {**data, "problems": len(problems), "mark": mark, "copies": copies},
        "samples": samples,
        "sampling": asdict(sampling) | {"stop": list(sampling.stop)},
        "seed": seed,
        "scorer": {"verifier": verifier},
    }


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Name settings by 16 hexadecimal digits."""
    return _digest(settings)


def problem_mark(problem: Problem) -> str:
    """Name what a problem asks and its answer by 16 hexadecimal digits."""
    return _digest([[[message.role, message.content] for message in problem.messages], problem.answer])


def reply_line(number: int, group: RolloutGroup, scores: Sequence[Score]) -> dict[str, Any]:
    """A problem's line of `replies.jsonl`. `number` is its place among the problems, `length` is in tokens."""
    problem = group.prompt.problem
    return {
        "number": number,
        "id": problem.id,
        "mark": problem_mark(problem),
        "prompt": group.prompt.text,
        "gold": problem.answer,
        "replies": [
            {
                "text": rollout.text,
                "finish": rollout.finish.value,
                "length": rollout.length,
                "correct": score.correct,
                "extracted": score.extracted,
                **({"error": score.error} if score.error is not None else {}),
            }
            for rollout, score in zip(group.rollouts, scores, strict=True)
        ],
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
