"""Whether a row holds a problem of an evaluation set: the same text, or a large part of its word runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from dapo.data.normal import runs, text_key, tokens
from dapo.data.records import Record

_RUN = 8
_FEW_RUNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """An evaluation problem that a row holds, and the share of its runs of eight words; 1 for equal text."""

    id: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationIndex:
    """Evaluation problems by their normal form and by every run of eight words."""

    by_key: dict[bytes, str]
    by_run: dict[int, tuple[int, ...]]
    ids: tuple[str, ...]
    num_runs: tuple[int, ...]

    def find(self, text: str, share: float, words: list[str] | None = None) -> Overlap | None:
        """Return the evaluation problem that the text holds most of, from `share` of its runs on, or None.

        A problem with fewer than ten runs must be there whole: `ways to arrange the letters of` is not one.
        """
        equal = self.by_key.get(text_key(text))
        if equal is not None:
            return Overlap(id=equal, share=1.0)
        words = tokens(text) if words is None else words
        if len(words) < _RUN:
            return None
        hits = Counter(place for run in runs(words, _RUN) for place in self.by_run.get(run, ()))
        enough = [
            (count / self.num_runs[place], -place)
            for place, count in hits.items()
            if count >= self.num_runs[place] * (share if self.num_runs[place] >= _FEW_RUNS else 1.0)
        ]
        if not enough:
            return None
        best, place = max(enough)
        return Overlap(id=self.ids[-place], share=best)


def index_evaluation(records: Iterable[Record]) -> EvaluationIndex:
    """Index the problems of evaluation sets; copies of one problem count once."""
    by_key: dict[bytes, str] = {}
    by_run: dict[int, list[int]] = defaultdict(list)
    ids: list[str] = []
    num_runs: list[int] = []
    for record in records:
        key = text_key(record.text)
        if key in by_key:
            continue
        by_key[key] = record.id
        words = tokens(record.text)
        found = runs(words, _RUN) if len(words) >= _RUN else set()
        for run in found:
            by_run[run].append(len(ids))
        ids.append(record.id)
        num_runs.append(max(1, len(found)))
    return EvaluationIndex(
        by_key=by_key,
        by_run={run: tuple(places) for run, places in by_run.items()},
        ids=tuple(ids),
        num_runs=tuple(num_runs),
    )
