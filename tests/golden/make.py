"""Twenty steps of every algorithm on a tiny model through the command line. `python -m tests.golden.make` stores them anew."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# One thread sums in one order. Torch reads this when it is first imported.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

HERE = Path(__file__).parent
STEPS = 20

RECIPE = f"""
steps = {STEPS}
seed = 5

[model]
path = "model"
device = "cpu"

[task]
type = "jsonl"
path = "problems.jsonl"
held_out = 0
reward = "golden_rewards:digits"

[batch]
groups_per_step = 4
group_size = 4
updates_per_step = 2
max_tokens = 8
max_prompt_tokens = 16

[engine]
type = "hf"
precision = "float32"

[trainer]
precision = "float32"
learning_rate = 1e-3

[evaluation]
enabled = false
"""

REWARDS = """
def digits(problem, reply):
    share = sum(character.isdigit() for character in reply) / max(len(reply), 1)
    return share if reply[:1].isdigit() else share - 1
"""

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "dapo": ("type=dapo", "dynamic_sampling.max_rounds=3"),
    "grpo": ("type=grpo",),
    "ppo": ("type=ppo", "critic.learning_rate=1e-3", "kl_beta=0.01"),
    "ppo_shared": ("type=ppo", "critic.backbone=shared", "critic.learning_rate=1e-2"),
    "dr_grpo": ("type=dr_grpo",),
    "gspo": ("type=gspo", "clip_low=0.02", "clip_high=0.03"),
    "cispo": ("type=cispo",),
    "rloo": ("type=rloo",),
    "reinforce_plus_plus": ("type=reinforce_plus_plus",),
    "clip_cov": ("type=clip_cov", "share=0.05", "covariance_low=0.1"),
    # With the engine's log-probabilities as the old ones a first ratio is 1 but for rounding, and |log ratio| has a kink there.
    "kl_cov": ("type=kl_cov", "share=0.05", "trainer.old_logprobs=trainer"),
}
"""Settings by the name of the stored file, of `[algorithm]` unless they name a table. Shares are large, since a step has a
hundred tokens."""

KEPT = (
    "optim/loss",
    "optim/grad_norm",
    "reward/mean",
    "reward/accuracy_all",
    "policy/kl",
    "policy/clip_high",
    "policy/chosen",
    "value/loss",
)


def furnish(folder: Path) -> None:
    """Write model, problems, reward and recipe."""
    from tests.tiny import make_tiny

    make_tiny(folder / "model", spread=0.1, positions=64)
    problems = [{"prompt": f"{left}+{right}", "answer": left + right} for left in range(8) for right in range(8)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems), encoding="utf-8")
    (folder / "golden_rewards.py").write_text(REWARDS, encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")


def trajectory(name: str, run: Path) -> list[dict[str, Any]]:
    """Train by an algorithm in the working directory, which `furnish` has filled; return what is kept of each step."""
    from dapo.cli.main import app

    words = ["train", "recipe.toml", "--run", str(run), "--json"]
    for setting in ALGORITHMS[name]:
        words += ["-o", setting if setting.startswith("trainer.") else f"algorithm.{setting}"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(words, standalone_mode=False)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        {"step": line["step"]} | {metric: float(f"{line[metric]:.7g}") for metric in KEPT if metric in line}
        for line in lines
    ]


def main(names: Sequence[str]) -> None:
    """Store the trajectories of the named algorithms, or of all."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        furnish(Path(folder))
        for name in names or ALGORITHMS:
            steps = trajectory(name, Path(folder) / "runs" / name)
            lines = ",\n".join(f"  {json.dumps(step)}" for step in steps)
            (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
