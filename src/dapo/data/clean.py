"""Writes a problem set anew: mended where one reading is right, without what must leave, each with its reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dapo.data.check import (
    DROP,
    KEEP,
    MEND,
    CountTokens,
    Inspection,
    Judged,
    copy_finding,
    inspect,
    judge,
    wants_integers,
)
from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.findings import POLICY, Finding, Kind, Report
from dapo.data.opening import OpenedSource, ScannedRow, open_rows, scan_rows
from dapo.data.records import Record
from dapo.data.rewriting import changes_answer, rewrite
from dapo.data.writing import JsonLinesWriter, ParquetWriter, RowWriter, aside, to_line
from dapo.errors import DataError

_WORD = {KEEP: "kept", MEND: "mended", DROP: "dropped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSummary:
    """What a clean-up wrote. `dropped_by` and `mended_by` count findings of each kind in rows of that fate."""

    source: str
    layout: str
    out: str
    report: str
    rows: int
    kept: int
    dropped: int
    mended: int
    dropped_by: Mapping[str, int]
    mended_by: Mapping[str, int]
    options: Mapping[str, Any]

    def to_json(self) -> str:
        """The summary as one JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def to_text(self) -> str:
        """The summary for a person."""
        lines = [
            f"{self.source} ({self.layout}): {self.rows} rows, {self.kept} written to {self.out}, "
            f"{self.mended} of them mended, {self.dropped} dropped",
            f"every row and why: {self.report}",
        ]
        for word, counts in (("dropped", self.dropped_by), ("mended", self.mended_by)):
            lines += [f"{count:>9}  {word}: {kind}, {POLICY[Kind(kind)].meaning}" for kind, count in counts.items()]
        return "\n".join(lines)


def run_clean(
    source: str | Path | SourceConfig,
    out: str | Path,
    options: CheckConfig | None = None,
    *,
    count_tokens: CountTokens | None = None,
    overwrite: bool = False,
) -> CleanSummary:
    """Check a set, then write `out` (.jsonl or .parquet), `out.report.jsonl` and `out.summary.json`.

    Rows that stay as they are keep all their columns; mended rows differ in prompt and answer alone. Raises DataError
    if the source cannot be opened or `out` cannot be written, ConfigError for the options.
    """
    config = SourceConfig.model_validate(source)
    options = options or CheckConfig()
    target = Path(out)
    opened = open_rows(config)
    _refuse_target(target, opened, overwrite=overwrite)
    inspection = inspect(opened, options, count_tokens=count_tokens)
    report_path = target.with_name(f"{target.name}.report.jsonl")
    with aside(target) as data, aside(report_path) as log:
        writer = _writer(data, target, opened)
        with log.open("wb") as stream:
            fate = _write_rows(opened, inspection, options, writer, stream)
        writer.close()
    summary = _summary(inspection.report, target, report_path, fate, options)
    with aside(target.with_name(f"{target.name}.summary.json")) as place:
        place.write_text(summary.to_json() + "\n", encoding="utf-8")
    return summary


def _refuse_target(target: Path, opened: OpenedSource, *, overwrite: bool) -> None:
    if target.suffix.lower() not in (".jsonl", ".parquet"):
        raise DataError(f"{target} ends in {target.suffix or 'nothing'}; a clean set is written as .jsonl or .parquet")
    if any(file.path.exists() and target.resolve() == file.path.resolve() for file in opened.files):
        raise DataError(f"{target} is the set that is cleaned; write to another file")
    if target.exists() and not overwrite:
        raise DataError(f"{target} exists; remove it, write to another file, or say that it may be overwritten")


def _writer(place: Path, target: Path, opened: OpenedSource) -> RowWriter:
    if target.suffix.lower() == ".jsonl":
        return JsonLinesWriter(place)
    from dapo.data.arrow_rows import Parquet

    first = opened.files[0]
    return ParquetWriter(place, first.schema() if isinstance(first, Parquet) else None, opened.layout.answer)


def _write_rows(
    opened: OpenedSource, inspection: Inspection, options: CheckConfig, writer: RowWriter, log: BinaryIO
) -> dict[int, Counter[str]]:
    """Pass over the source a second time; return how often each kind stands behind each fate."""
    fates: dict[int, Counter[str]] = {KEEP: Counter(), MEND: Counter(), DROP: Counter()}
    integers = wants_integers(opened.layout, options)
    for row, scanned in enumerate(scan_rows(opened)):
        fate = inspection.actions[row]
        findings = _findings_of(row, scanned, inspection, options)
        fates[fate].update(str(finding.kind) for finding in findings if _stands_behind(finding, fate))
        changes: list[dict[str, Any]] = []
        if fate != DROP and isinstance(scanned.record, Record):
            if fate == MEND:
                judged = judge(scanned.record, integers=integers, options=options)
                changes = _changes(scanned.record, judged)
                values = rewrite(scanned.raw.values, opened.layout, scanned.record, judged)
                writer.write(values, None, judged.record)
            else:
                writer.write(scanned.raw.values, scanned.raw.raw, scanned.record)
        if findings:
            log.write(to_line(_entry(row, scanned, fate, findings, changes)))
    return fates


def _findings_of(row: int, scanned: ScannedRow, inspection: Inspection, options: CheckConfig) -> list[Finding]:
    findings = list(inspection.findings.get(row, ()))
    if inspection.copy_of[row] >= 0:
        findings.append(copy_finding(row, scanned.record.id, inspection.copy_of, options))
    return findings


def _stands_behind(finding: Finding, fate: int) -> bool:
    return {"drop": DROP, "mend": MEND, "report": KEEP}[finding.action] == fate


def _entry(
    row: int, scanned: ScannedRow, fate: int, findings: list[Finding], changes: list[dict[str, Any]]
) -> dict[str, Any]:
    reasons = [
        {
            "kind": str(finding.kind),
            "action": str(finding.action),
            "detail": finding.detail,
            "related": list(finding.related),
        }
        for finding in findings
    ]
    return {"row": row, "id": scanned.record.id, "fate": _WORD[fate], "reasons": reasons, "changes": changes}


def _changes(record: Record, judged: Judged) -> list[dict[str, Any]]:
    changes = [
        {"field": "prompt", "before": before.content, "after": after.content}
        for before, after in zip(record.messages, judged.record.messages, strict=True)
        if before != after
    ]
    if judged.answer is not None and changes_answer(record, judged):
        changes.append({"field": "answer", "before": record.answer.text, "after": judged.answer})
    return changes


def _summary(
    report: Report, target: Path, report_path: Path, fates: dict[int, Counter[str]], options: CheckConfig
) -> CleanSummary:
    return CleanSummary(
        source=report.source,
        layout=report.layout,
        out=str(target),
        report=str(report_path),
        rows=report.rows,
        kept=report.kept,
        dropped=report.dropped,
        mended=report.mended,
        dropped_by={str(kind): fates[DROP][kind] for kind in Kind if fates[DROP][kind]},
        mended_by={str(kind): fates[MEND][kind] for kind in Kind if fates[MEND][kind]},
        options=options.model_dump(mode="json"),
    )
