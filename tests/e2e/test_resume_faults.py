"""Damaged checkpoints, full disks, other recipes: what a run meets on its way, and how it goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dapo.storage.manifest import write_manifest
from tests.e2e.dying import SETTINGS, ForkServer, check_same, contents
from tests.e2e.workshop import RunFiles
from tests.unit.storage.saved import cut, flip

FOUR = (*SETTINGS, "steps=4", "checkpoint.keep=2")
"""The first four of the six steps, with two checkpoints."""


# Damage


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (
            lambda folder: flip(folder / "model.safetensors", 200_000),
            r"model\.safetensors has the SHA-256 \w{64}, and \w{64} was",
        ),
        (
            lambda folder: cut(folder / "trainer/optimizer.safetensors"),
            r"trainer/optimizer\.safetensors has [\d,]+ bytes, and ",
        ),
        (lambda folder: (folder / "manifest.json").unlink(), r"it has no manifest\.json, which is written last"),
    ],
    ids=["flipped", "cut", "half-written"],
)
def test_a_damaged_checkpoint_is_named_and_the_run_goes_on_from_the_one_before(
    server: ForkServer, straight: RunFiles, break_it: Callable[[Path], None], words: str, request: pytest.FixtureRequest
) -> None:
    name = re.sub(r"\W", "-", request.node.name)
    files = server.shop.run(name)
    server.train(name, FOUR, code=0)
    break_it(files.checkpoint(4))
    ended = server.train(name, SETTINGS, code=0)
    assert re.search(rf"The checkpoint {name}/checkpoints/step-000004 is damaged: {words}", ended.heard)
    assert "It is now damaged-step-000004, and the one before it is used." in ended.heard
    assert (files.folder / "checkpoints" / "damaged-step-000004").is_dir()
    shutil.rmtree(files.folder / "checkpoints" / "damaged-step-000004")
    check_same(files, straight)


def test_where_no_checkpoint_is_whole_the_run_is_refused_and_left_as_it_is(server: ForkServer) -> None:
    server.train("ruined", FOUR, code=0)
    files = server.shop.run("ruined")
    for step in (2, 4):
        flip(files.checkpoint(step) / "model.safetensors", 200_000)
    before = files.content()
    ended = server.train("ruined", SETTINGS, code=2)
    assert "No checkpoint in ruined/checkpoints is whole" in ended.said
    assert "step-000002: model.safetensors has the SHA-256" in ended.said
    assert files.content() == before


def test_a_checkpoint_that_is_whole_and_holds_something_else_is_refused_in_words(server: ForkServer) -> None:
    server.train("odd", FOUR, code=0)
    files = server.shop.run("odd")
    (files.checkpoint(4) / "trainer" / "trainer.json").write_text('{"updates": "many"}')
    (files.checkpoint(4) / "manifest.json").unlink()
    write_manifest(files.checkpoint(4), 4)
    before = files.content()
    ended = server.train("odd", SETTINGS, code=2)
    assert "The checkpoint odd/checkpoints/step-000004 is whole, and what it holds cannot be taken back" in ended.said
    assert files.content().keys() == before.keys()


def test_metrics_that_somebody_has_removed_are_named_and_the_run_goes_on(server: ForkServer) -> None:
    server.train("bare", FOUR, code=0)
    files = server.shop.run("bare")
    (files.folder / "metrics.jsonl").unlink()
    ended = server.train("bare", SETTINGS, code=0)
    assert "metrics.jsonl has no line for 4 steps that the run has made: 1 to 4. They stay lost." in ended.heard
    assert [line["step"] for line in files.metrics] == [5, 6]


# Full disks


def test_a_file_that_may_not_grow_so_large_ends_the_run_and_nothing_is_lost(
    server: ForkServer, straight: RunFiles
) -> None:
    """A limit on the size of files stands for a disk that fills up while the first checkpoint is written."""
    ended = server.train("limited", SETTINGS, code=1, file_limit=200_000)
    assert "The checkpoint limited/checkpoints/step-000002 could not be written: " in ended.said
    assert "File too large" in ended.said
    assert re.search(
        r"It takes 9\d\d,\d\d\d bytes \(9\d\d kB\), and [\d,]+ bytes \([\d.]+ GB\) are free at ", ended.said
    )
    files = server.shop.run("limited")
    assert files.checkpoints == []
    assert (files.folder / "report.html").is_file()
    server.train("limited", SETTINGS, code=0)
    check_same(files, straight)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (1000, "config.json could not be written"),
        (4000, "The tokenizer's files could not be written"),
        (5000, "evaluations/step-000000 could not be written"),
        (6000, "metrics.jsonl could not be written"),
    ],
)
def test_other_files_of_a_run_that_cannot_be_written_end_it_likewise(
    server: ForkServer, straight: RunFiles, limit: int, words: str
) -> None:
    name = f"limited-{limit}"
    once = tuple(override.replace("every=2", "every=6") for override in SETTINGS)
    ended = server.train(name, once, code=1, file_limit=limit)
    assert words in ended.said and "File too large" in ended.said and "--resume" in ended.said
    server.train(name, SETTINGS, code=0)
    check_same(server.shop.run(name), straight)


@pytest.fixture
def small_disk(server: ForkServer) -> Iterator[Path]:
    """A disk of 1.5 MB as a run folder: it has room for one checkpoint and not for a second."""
    place = server.shop.folder / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_seen_before_it_is_written_to_and_the_older_checkpoint_stays(
    server: ForkServer, straight: RunFiles, small_disk: Path
) -> None:
    ended = server.train("small/run", SETTINGS, code=1)
    assert "The checkpoint small/run/checkpoints/step-000004 could not be written: It takes " in ended.said
    needed, free = (int(found.replace(",", "")) for found in re.findall(r"(?:takes|and) ([\d,]+) bytes", ended.said))
    assert needed > 900_000 > free
    files = server.shop.run("small/run")
    assert files.checkpoints == ["step-000002"]
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    server.train("small/run", SETTINGS, code=0)
    check_same(files, straight)


# The best one


def test_the_best_checkpoint_stays_beside_the_newest(server: ForkServer, straight: RunFiles) -> None:
    """With `keep = 1` there are the last and the best; of equals the later is the best."""
    accuracy = {line["step"]: line["avg"] for line in straight.evaluations if line["step"] > 0}
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    assert os.readlink(straight.folder / "checkpoints" / "best") == f"step-{best:06d}"
    assert straight.checkpoints == [f"step-{step:06d}" for step in sorted({best, 6})]


def test_a_checkpoint_holds_nothing_that_could_run_code(straight: RunFiles) -> None:
    kinds = {path.suffix for path in straight.checkpoint(6).rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json", ".jsonl", ".jinja"}


# Other recipes


def test_what_a_resumed_run_may_change_is_taken_over(server: ForkServer, straight: RunFiles) -> None:
    server.train("changed", FOUR, code=0)
    files = server.shop.run("changed")
    others = ("evaluation.samples=3", "evaluation.every=3", "checkpoint.every=3", "checkpoint.keep=3")
    server.train("changed", (*SETTINGS, *others, "report.replies_in_report=1"), code=0)
    assert files.steady_metrics == straight.steady_metrics
    assert [(line["step"], line["samples"]) for line in files.evaluations] == [(0, 2), (2, 2), (4, 2), (6, 3)]
    assert files.checkpoints == ["step-000002", "step-000004", "step-000006"]
    assert files.config["evaluation"]["every"] == 3


def test_what_would_be_a_different_run_is_refused_with_the_difference(server: ForkServer, straight: RunFiles) -> None:
    before = straight.content()
    others = ("batch.group_size=8", "algorithm.clip_high=0.3", "trainer.learning_rate=1e-3", "seed=4", "steps=9")
    ended = server.train("straight", (*SETTINGS, *others), code=2)
    assert ended.said.splitlines()[1:5] == [
        "  - algorithm.clip_high: 0.28 there, 0.3 now",
        "  - batch.group_size: 4 there, 8 now",
        "  - seed: 3 there, 4 now",
        "  - trainer.learning_rate: 0.003 there, 0.001 now",
    ]
    assert (
        "Use the same settings (steps, evaluation, checkpoint, report may change), or begin another run" in ended.said
    )
    assert "--fork straight with a new folder as --run" in ended.said
    assert straight.content() == before


# Forks


def test_a_fork_with_the_same_settings_is_the_run_that_would_have_been(server: ForkServer, straight: RunFiles) -> None:
    server.train("trunk", (*SETTINGS, "steps=4"), code=0)
    trunk, fork = server.shop.run("trunk"), server.shop.run("fork")
    before = trunk.content()
    server.train("fork", SETTINGS, resume=False, fork_of="trunk", code=0)
    assert contents(fork.checkpoint(6)) == contents(straight.checkpoint(6))
    assert fork.steady_metrics == straight.steady_metrics[4:]
    assert [line["step"] for line in fork.evaluations] == [4, 6]  # it is measured where it begins, too
    assert fork.config["forked_from"] == {"folder": str(trunk.folder.resolve()), "step": 4, "difference": {}}
    assert {name: value for name, (_, value) in trunk.content().items()} == {
        name: value for name, (_, value) in before.items()
    }


def test_a_fork_with_another_algorithm_begins_from_the_weights_and_resumes_like_any_run(
    server: ForkServer, straight: RunFiles
) -> None:
    other = (*SETTINGS, "steps=9", "algorithm.clip_high=0.3", "batch.group_size=8", "seed=4")
    whole, killed = server.shop.run("fork-whole"), server.shop.run("fork-killed")
    server.train("fork-whole", other, resume=False, fork_of="straight", code=0)
    died = server.train("fork-killed", other, resume=False, fork_of="straight", torn_line=3)
    assert died.killed
    lines = (killed.folder / "metrics.jsonl").read_text().split("\n")
    assert len(lines) == 2 and json.loads(lines[0])["step"] == 7  # before its own first checkpoint
    server.train("fork-killed", other, code=0)
    for files in (whole, killed):
        assert [line["step"] for line in files.metrics] == [7, 8, 9]
        assert files.config["forked_from"]["difference"] == {
            "algorithm.clip_high": {"there": 0.28, "here": 0.3},
            "batch.group_size": {"there": 4, "here": 8},
            "seed": {"there": 3, "here": 4},
        }
        assert files.metrics[0]["optim/updates"] == straight.metrics[-1]["optim/updates"] + 2
    assert contents(killed.checkpoint(9)) == contents(whole.checkpoint(9))
    assert killed.steady_metrics == whole.steady_metrics
    first = load_file(whole.checkpoint(9) / "model.safetensors")
    assert any(
        not torch.equal(tensor, first[name])
        for name, tensor in load_file(straight.checkpoint(6) / "model.safetensors").items()
    )


@pytest.mark.parametrize(
    ("overrides", "source", "words"),
    [
        (["steps=6"], "straight", "nothing would be trained"),
        (["steps=9"], "nothing-there", "holds no run with a checkpoint"),
        (["steps=9", "model.path=wider"], "straight", "does not fit the model"),
        (["steps=9", 'algorithm={ type = "ppo" }'], "straight", "was made without a critic"),
    ],
    ids=["steps", "nothing", "model", "critic"],
)
def test_a_fork_that_cannot_be_is_refused_and_leaves_no_folder(
    server: ForkServer, straight: RunFiles, overrides: list[str], source: str, words: str
) -> None:
    wider = server.shop.folder / "wider"
    if not wider.exists():
        from tests.tiny import make_tiny

        make_tiny(wider, kind="qwen2", spread=0.1, positions=64)
    ended = server.train("never", (*SETTINGS, *overrides), resume=False, fork_of=source, code=2)
    assert words in ended.said
    assert not (server.shop.folder / "never").exists()


def test_fork_and_resume_are_not_asked_for_together(server: ForkServer, straight: RunFiles) -> None:
    ended = server.train("straight", SETTINGS, resume=True, fork_of="straight", code=2)
    assert "--resume and --fork were asked for together" in ended.said


def test_the_command_forks(server: ForkServer, straight: RunFiles) -> None:
    options = [word for override in (*SETTINGS, "steps=7") for word in ("-o", override)]
    ended = server.shop.dapo("train", "recipe.toml", "--run", "by-command", "--fork", "straight", "--json", *options)
    assert ended.json["steps"] == 7
    assert (ended.json["before"]["step"], ended.json["after"]["step"]) == (6, 7)
    config = json.loads((server.shop.folder / "by-command" / "config.json").read_text())
    assert config["forked_from"]["step"] == 6
