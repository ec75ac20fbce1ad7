"""Measures what the memory of prompts saves: generated tokens for each group that is trained on, with it / without it.

    python benchmarks/sampling_waste.py simulate [--seeds 5] [--problems 256] [--json]
    python benchmarks/sampling_waste.py train [--recipe benchmarks/sampling_waste.toml] [--runs runs/waste] [--seeds 1] [-o k=v]

`simulate` takes seconds: the program's own sampling (`collect`) with a made-up policy in the place of the model. `train`
makes two real runs a seed through the command line, alike but for `prompt_memory.enabled`, and takes as long as they take;
runs that are there already go on or are read. A ratio below 1 is a saving.

The simulated policy. 256 problems of 8 skills, each with a difficulty b from a normal distribution of deviation 3.5, whose
mean goes from -0.5 to 2.5 from the easiest skill to the hardest; 400 held-out problems alike. A reply is right with the
chance 1 / (1 + exp(b - ability of the skill - what was memorised of the problem)). Harder problems get longer replies: 40
tokens times exp(b / 4) and some noise, between 4 and 160. A step trains on 16 groups of 8: a group with the share q of
right replies teaches 2 sqrt(q (1 - q)) times 0.03 to its skill, a quarter of it spread over all skills. In the setting
`repeats wear out` a problem's n-th lesson is worth 1 / (1 + n / 10), and every lesson adds 0.15 to what is memorised of it,
which helps nothing else; in `repeats are worth as much` neither. So the first setting punishes recurring problems and the
second does not; a model lies somewhere between. Tuned on seeds 100 to 103; the seeds reported count from 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from dapo.algorithms.dapo import DAPOConfig
from dapo.collect import CollectPlan, collect
from dapo.engines.fake import FakeEngine
from dapo.jsonlines import read_json_lines
from dapo.prompt_memory import PromptMemoryConfig
from dapo.prompts import Preference, PromptStream
from dapo.seeds import derive_seed
from dapo.types import Collected, Inherited, Message, Problem, Prompt, Rollout, Sampling, Score

SKILLS, GROUPS, GROUP_SIZE, STEPS, HELD_OUT = 8, 16, 8, 50, 400
LEARNING, TRANSFER = 0.03, 0.25
LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a repeated lesson is worth: `wear` lowers its worth, `memorised` goes to the problem alone."""

    name: str
    wear: float
    memorised: float


SETTINGS = (
    Setting(name="repeats wear out", wear=0.1, memorised=0.15),
    Setting(name="repeats are worth as much", wear=0.0, memorised=0.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: tokens generated and groups kept, the share of groups kept, and held-out accuracy at its end."""

    tokens: float
    kept: int
    generated: int
    accuracy: float

    @property
    def tokens_per_group(self) -> float:
        return self.tokens / self.kept


def right_chance(surplus: float) -> float:
    """The chance of a right reply, by how far ability exceeds difficulty."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, surplus))))


class Learner:
    """The made-up policy, and the task that it is asked."""

    def __init__(self, seed: int, problems: int, setting: Setting) -> None:
        self._seed = seed
        self._setting = setting
        self._difficulty = self._difficulties(problems, "train")
        self._held_out = self._difficulties(HELD_OUT, "held out")
        self._ability = [0.0] * SKILLS
        self._memorised = [0.0] * problems
        self._lessons = [0] * problems
        self.step = 0

    def _difficulties(self, count: int, which: str) -> list[float]:
        random = Random(derive_seed(self._seed, "difficulty", which))
        return [random.gauss(1.0 + 1.5 * (2 * (place % SKILLS) / (SKILLS - 1) - 1), 3.5) for place in range(count)]

    def train_problems(self) -> list[Problem]:
        asked = (Message(role="user", content="?"),)
        return [Problem(id=str(place), messages=asked, answer="yes") for place in range(len(self._difficulty))]

    def held_out_problems(self) -> list[Problem]:
        return []

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        is_right = rollout.text.startswith("y")
        return Score(correct=is_right, reward=1.0 if is_right else -1.0)

    def reply(self, prompt: Prompt, index: int) -> str:
        """The text of a reply, decided by seed, step, problem and the reply's number."""
        place = int(prompt.problem.id)
        random = Random(derive_seed(self._seed, "reply", self.step, place, index))
        surplus = self._ability[place % SKILLS] + self._memorised[place] - self._difficulty[place]
        length = 40 * math.exp(self._difficulty[place] / 4 + random.gauss(0.0, 0.4))
        first = "y" if random.random() < right_chance(surplus) else "n"
        return first * round(max(4.0, min(LONGEST, length)))

    def learn(self, collected: Collected) -> None:
        """Take the step's lessons."""
        lessons = [0.0] * SKILLS
        for group in collected.kept:
            place = int(group.prompt.problem.id)
            share = group.num_correct / len(group.rollouts)
            signal = 2 * math.sqrt(share * (1 - share))
            lessons[place % SKILLS] += signal / (1 + self._setting.wear * self._lessons[place])
            self._memorised[place] += self._setting.memorised * signal
            self._lessons[place] += 1
        everywhere = TRANSFER * sum(lessons) / SKILLS
        self._ability = [
            ability + LEARNING * ((1 - TRANSFER) * lesson + everywhere)
            for ability, lesson in zip(self._ability, lessons, strict=True)
        ]

    def accuracy(self) -> float:
        """The chance of a right reply, mean over the held-out problems."""
        chances = [right_chance(self._ability[place % SKILLS] - b) for place, b in enumerate(self._held_out)]
        return statistics.fmean(chances)


async def simulate(
    seed: int, problems: int, setting: Setting, config: PromptMemoryConfig, *, tokens: float | None = None
) -> Measured:
    """Make STEPS steps, or as many as generate so many tokens."""
    learner = Learner(seed, problems, setting)
    engine = FakeEngine(learner.reply)
    preference = Preference(config=config, group_size=GROUP_SIZE, groups_per_step=GROUPS) if config.enabled else None
    stream = PromptStream(
        learner.train_problems(),
        lambda asked: Prompt(problem=asked, text="?", token_ids=(1,)),
        seed=seed,
        preference=preference,
    )
    sampling = Sampling(max_tokens=LONGEST)
    plan = CollectPlan(groups=GROUPS, group_size=GROUP_SIZE, sampling=sampling, seed=seed, max_rounds=20)
    algorithm = DAPOConfig().build(LONGEST)
    inherited, made, kept, generated = Inherited(), 0.0, 0, 0
    while learner.step < STEPS if tokens is None else made < tokens:
        learner.step += 1
        collected = await collect(learner.step, plan, stream, engine, learner, algorithm, inherited=inherited)
        inherited = collected.left
        learner.learn(collected)
        made += collected.stats["sampling/tokens_generated"].value
        generated += int(collected.stats["sampling/groups_generated"].value)
        kept += len(collected.kept)
    return Measured(tokens=made, kept=kept, generated=generated, accuracy=learner.accuracy())


def simulated_rows(seeds: Sequence[int], problems: int) -> list[dict[str, Any]]:
    """One row a setting: means over the seeds, the ratio with its least and greatest."""
    off, on = PromptMemoryConfig(), PromptMemoryConfig(enabled=True)
    rows = []
    for setting in SETTINGS:
        plain = [asyncio.run(simulate(seed, problems, setting, off)) for seed in seeds]
        memory = [asyncio.run(simulate(seed, problems, setting, on)) for seed in seeds]
        as_long = [
            asyncio.run(simulate(seed, problems, setting, on, tokens=one.tokens))
            for seed, one in zip(seeds, plain, strict=True)
        ]
        rows.append(row_of(f"simulated, {setting.name}", plain, memory, accuracy_at_same_tokens=as_long))
    return rows


def row_of(
    name: str,
    plain: Sequence[Measured],
    memory: Sequence[Measured],
    *,
    accuracy_at_same_tokens: Sequence[Measured] = (),
) -> dict[str, Any]:
    """What two sets of runs come to, seed by seed."""
    ratios = [b.tokens_per_group / a.tokens_per_group for a, b in zip(plain, memory, strict=True)]
    row = {
        "row": "sampling_waste_vs_plain",
        "what": name,
        "seeds": len(plain),
        "ratio": statistics.fmean(ratios),
        "ratio_least": min(ratios),
        "ratio_greatest": max(ratios),
        "tokens_per_group_plain": statistics.fmean(one.tokens_per_group for one in plain),
        "tokens_per_group_memory": statistics.fmean(one.tokens_per_group for one in memory),
        "kept_share_plain": sum(one.kept for one in plain) / sum(one.generated for one in plain),
        "kept_share_memory": sum(one.kept for one in memory) / sum(one.generated for one in memory),
        "accuracy_plain": statistics.fmean(one.accuracy for one in plain),
        "accuracy_memory": statistics.fmean(one.accuracy for one in memory),
    }
    if accuracy_at_same_tokens:
        row["accuracy_memory_same_tokens"] = statistics.fmean(one.accuracy for one in accuracy_at_same_tokens)
    return row


def train(recipe: Path, folder: Path, overrides: Sequence[str]) -> Measured:
    """Make a run through the command line, or go on with the one that is there, and read its files."""
    command = [sys.executable, "-m", "dapo", "train", str(recipe), "--run", str(folder)]
    for override in overrides:
        command += ["-o", override]
    if (folder / "config.json").exists():
        command.append("--resume")
    subprocess.run(command, check=True, stdout=sys.stderr)
    steps = read_json_lines(folder / "metrics.jsonl")
    return Measured(
        tokens=sum(step["sampling/tokens_generated"] for step in steps),
        kept=int(sum(step["sampling/groups_kept"] for step in steps)),
        generated=int(sum(step["sampling/groups_generated"] for step in steps)),
        accuracy=read_json_lines(folder / "eval.jsonl")[-1]["avg"],
    )


def trained_rows(recipe: Path, runs: Path, seeds: Sequence[int], overrides: Sequence[str]) -> list[dict[str, Any]]:
    """One row: two runs a seed."""
    found: dict[str, list[Measured]] = {"plain": [], "memory": []}
    for seed in seeds:
        for name, measured in found.items():
            is_on = f"prompt_memory.enabled={'true' if name == 'memory' else 'false'}"
            measured.append(train(recipe, runs / f"{name}-{seed}", [*overrides, f"seed={seed}", is_on]))
    return [row_of(f"trained, {recipe.name}", found["plain"], found["memory"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object a row")
    modes = parser.add_subparsers(dest="mode", required=True)
    simulation = modes.add_parser("simulate", help="a made-up policy; seconds")
    simulation.add_argument("--seeds", type=int, default=5, help="how many seeds, from 1")
    simulation.add_argument("--problems", type=int, default=256)
    training = modes.add_parser("train", help="real runs; as long as they take")
    training.add_argument("--recipe", type=Path, default=Path(__file__).with_suffix(".toml"))
    training.add_argument("--runs", type=Path, default=Path("runs/waste"))
    training.add_argument("--seeds", type=int, nargs="+", default=[1])
    training.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    for mode in (simulation, training):
        mode.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object a row")
    asked = parser.parse_args()
    started = time.perf_counter()
    if asked.mode == "simulate":
        rows = simulated_rows(range(1, asked.seeds + 1), asked.problems)
    else:
        rows = trained_rows(asked.recipe, asked.runs, asked.seeds, asked.overrides)
    for row in rows:
        sys.stdout.write((json.dumps(row) if asked.json else text_of(row)) + "\n")
    if not asked.json:
        sys.stdout.write(f"{time.perf_counter() - started:.0f} s\n")


def text_of(row: dict[str, Any]) -> str:
    """A row for people."""
    same = row.get("accuracy_memory_same_tokens")
    return (
        f"{row['what']} ({row['seeds']} seeds)\n"
        f"  tokens a kept group   {row['tokens_per_group_plain']:.0f} without, {row['tokens_per_group_memory']:.0f} with: "
        f"ratio {row['ratio']:.3f} ({row['ratio_least']:.3f} to {row['ratio_greatest']:.3f})\n"
        f"  share of groups kept  {row['kept_share_plain']:.1%} without, {row['kept_share_memory']:.1%} with\n"
        f"  held-out accuracy     {row['accuracy_plain']:.1%} without, {row['accuracy_memory']:.1%} with"
        + (f", {same:.1%} with for the same tokens" if same is not None else "")
    )


if __name__ == "__main__":
    main()
