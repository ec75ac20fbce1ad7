"""The row of benchmarks/sampling_waste.py: tokens generated for each group that is trained on, with a memory of prompts."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.environments import ROOT
from benchmarks.options import Options
from benchmarks.processes import FailedRunError
from benchmarks.rows import Measured


def sampling_waste_vs_plain(options: Options) -> Measured:
    """Run the simulation; its first setting is the row, all of them are told. Raises FailedRunError where it fails."""
    size = ["--seeds", "1", "--problems", "64"] if options.quick else []
    command = [sys.executable, str(ROOT / "benchmarks/sampling_waste.py"), "simulate", "--json", *size]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        raise FailedRunError(f"sampling_waste.py ended with status {done.returncode}: {done.stderr[-500:]}")
    first = rows[0]
    return Measured(
        name="sampling_waste_vs_plain",
        meaning="tokens generated for each kept group, with the memory of prompts and without, in a simulation with a made-up "
        f"policy ({first['what']})",
        peer_name="plain dynamic sampling with the same seeds",
        unit="tokens a kept group",
        product=[first["tokens_per_group_memory"]],
        peer=[first["tokens_per_group_plain"]],
        ratio=first["ratio"],
        runs=first["seeds"],
        notes=[
            f"{row['what']}: ratio {row['ratio']:.3f} ({row['ratio_least']:.3f} to {row['ratio_greatest']:.3f} over "
            f"{row['seeds']} seeds); held-out accuracy {row['accuracy_plain']:.1%} without, {row['accuracy_memory']:.1%} with"
            for row in rows
        ],
        details={"rows": rows},
    )
