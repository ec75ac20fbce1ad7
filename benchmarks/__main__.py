"""`python -m benchmarks`: measures rows and writes docs/benchmarks.json and docs/benchmarks.md.

    python -m benchmarks [--only NAME ...] [--runs 3] [--long] [--quick] [--tune] [--list]

Without --only every row but the long one is measured; a row that fails is told and does not end the others. --quick makes
everything tiny and writes to .bench/quick instead: it shows that the benchmarks work and measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import generation, growth, shares, steps, waste
from benchmarks.environments import BENCH, ROOT
from benchmarks.machine import describe_machine
from benchmarks.options import Options
from benchmarks.processes import FailedRunError, say
from benchmarks.report import markdown
from benchmarks.rows import Measured, merge_rows, to_row

Row = Callable[[Options], Measured]

ROWS: Mapping[str, Row] = {
    "step_quickstart_vs_trl": steps.step_quickstart_vs_trl,
    "step_long_vs_trl": steps.step_long_vs_trl,
    "time_to_60_vs_trl": steps.time_to_60_vs_trl,
    "generate_vs_transformers": generation.generate_vs_transformers,
    "generate_vs_vllm_cpu": generation.generate_vs_vllm_cpu,
    "generate_vs_floor": generation.generate_vs_floor,
    "train_vs_floor": shares.train_vs_floor,
    "overhead_share": shares.overhead_share,
    "memory_vs_state": shares.memory_vs_state,
    "sampling_waste_vs_plain": waste.sampling_waste_vs_plain,
    "growth_tokens": growth.growth_tokens,
    "growth_memory": growth.growth_memory,
    "growth_data": growth.growth_data,
}
LONG = frozenset({"time_to_60_vs_trl"})


def chosen_rows(only: Sequence[str], *, long: bool) -> list[str]:
    """The rows to measure: those named, or all but the long ones. Raises ValueError for a name that is none."""
    unknown = [name for name in only if name not in ROWS]
    if unknown:
        raise ValueError(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if only:
        return [name for name in ROWS if name in only]
    return [name for name in ROWS if long or name not in LONG]


def measure(name: str, options: Options) -> dict[str, Any] | None:
    """One row; None where it could not be measured."""
    machine = describe_machine()
    say(f"{name} (load {machine['load']})")
    if machine["load"] > 0.7 and not options.quick:
        say("  the machine is not idle: the numbers will be worse than they are")
    try:
        measured = ROWS[name](options)
    except FailedRunError as failure:
        say(f"  could not be measured: {failure}")
        return None
    row = to_row(measured, machine=machine, date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"))
    say(f"  product {row['product']} {row['unit']}, peer {row['peer']}: ratio {row['ratio']}")
    return row


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Merge rows into benchmarks.json, and write benchmarks.md from all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmarks.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    merged = merge_rows(before, rows, list(ROWS))
    path.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    (folder / "benchmarks.md").write_text(markdown(merged), encoding="utf-8")


def main() -> int:
    """Measure; 0 if every row that was asked for was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="measure these rows alone")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side")
    parser.add_argument("--long", action="store_true", help="also the training to 60%%, up to an hour")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, results in .bench/quick")
    parser.add_argument("--tune", action="store_true", help="look for the peers' best settings anew")
    parser.add_argument("--list", action="store_true", help="list the rows")
    given = parser.parse_args()
    if given.list:
        say("\n".join(ROWS))
        return 0
    try:
        names = chosen_rows(given.only, long=given.long)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = Options(runs=given.runs, quick=given.quick, tune=given.tune)
    folder = BENCH / "quick" if given.quick else ROOT / "docs"
    failed = []
    for name in names:
        row = measure(name, options)
        if row is None:
            failed.append(name)
        else:
            write(folder, [row])  # after every row: what was measured is not lost with one that is interrupted
    if failed:
        say(f"not measured: {', '.join(failed)}")
    say(f"{folder / 'benchmarks.md'}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; the rows that were measured are kept")
        sys.exit(130)
