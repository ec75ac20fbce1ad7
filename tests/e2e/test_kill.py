"""A run that is killed at any moment, however often, is in the end the run that would have been, bit by bit."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from tests.e2e.dying import SETTINGS, ForkServer, check_same
from tests.e2e.workshop import RunFiles

CARRYING = (*SETTINGS, "algorithm.dynamic_sampling.max_staleness=4", "batch.overlap=true")
"""Groups are carried from step to step, and those of the next step are in flight while one trains."""


@pytest.fixture(scope="module")
def moments(server: ForkServer) -> int:
    """How many calls change the disk in a run from its beginning to its end."""
    moments = server.train("twin", SETTINGS, code=0).moments
    assert moments is not None and moments > 150
    return moments


@pytest.fixture(scope="module")
def carrying(server: ForkServer) -> RunFiles:
    server.train("carrying", CARRYING, code=0)
    return server.shop.run("carrying")


def test_two_runs_are_the_same(server: ForkServer, straight: RunFiles, moments: int) -> None:
    """Otherwise nothing below means anything."""
    check_same(server.shop.run("twin"), straight)


def test_killed_four_times_in_one_run_and_twice_in_the_middle_of_a_line(
    server: ForkServer, straight: RunFiles, moments: int
) -> None:
    assert server.train("killed", SETTINGS, torn_line=2).killed  # the metrics of the first step
    assert server.train("killed", SETTINGS, kill_at=moments // 2).killed
    assert server.train("killed", SETTINGS, kill_at=moments // 4).killed
    assert server.train("killed", SETTINGS, torn_line=3).killed
    server.train("killed", SETTINGS, code=0)
    check_same(server.shop.run("killed"), straight)


def test_killed_between_a_checkpoint_and_the_evaluation_of_its_step(server: ForkServer, straight: RunFiles) -> None:
    """The evaluation that is missing is made up for."""
    shop = server.shop
    server.train("missed", (*SETTINGS, "steps=4"), code=0)
    files = shop.run("missed")
    lines = files.folder / "eval.jsonl"
    lines.write_bytes(b"".join(lines.read_bytes().splitlines(keepends=True)[:-1]))
    shutil.rmtree(files.folder / "evaluations" / "step-000004")
    server.train("missed", SETTINGS, code=0)
    check_same(files, straight)


def test_carried_groups_and_groups_in_flight_come_back(server: ForkServer, carrying: RunFiles) -> None:
    assert server.train("killed-carrying", CARRYING, torn_line=8).killed  # the metrics of the fifth step
    files = server.shop.run("killed-carrying")
    newest = files.folder / "checkpoints" / files.checkpoints[-1]
    progress = json.loads((newest / "progress.json").read_text())
    assert (newest / "pending.jsonl").read_text() or progress["state"]["ahead"]["left"]["groups"]
    assert progress["state"]["ahead"]["groups"]
    server.train("killed-carrying", CARRYING, code=0)
    check_same(files, carrying)
    reasons = {line["reason"] for step in range(1, 7) for line in carrying.rollouts(step)}
    assert "carried" in reasons  # or the test shows nothing


def test_carried_groups_come_back_where_none_is_in_flight(server: ForkServer) -> None:
    settings = (*SETTINGS, "algorithm.dynamic_sampling.max_staleness=4", "algorithm.dynamic_sampling.oversample=8")
    server.train("waiting", settings, code=0)
    assert server.train("killed-waiting", settings, torn_line=8).killed
    files = server.shop.run("killed-waiting")
    assert (files.folder / "checkpoints" / files.checkpoints[-1] / "pending.jsonl").read_text()
    server.train("killed-waiting", settings, code=0)
    check_same(files, server.shop.run("waiting"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "settings"), [("straight", SETTINGS), ("carrying", CARRYING)])
def test_killed_at_random_moments(
    server: ForkServer, name: str, settings: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """At least 25 kills, about eight in each run, at moments that the clock chooses."""
    whole: RunFiles = request.getfixturevalue(name)
    duration = server.train(f"timed-{name}", settings, code=0).seconds
    rng = random.Random(name)
    kills = runs = 0
    while kills < 25:
        runs += 1
        run = f"random-{name}-{runs}"
        in_this = 0
        while server.train(run, settings, kill_after=rng.uniform(0.02, 0.9) * duration).killed:
            in_this += 1
            if in_this == 8:
                server.train(run, settings, code=0)
                break
        kills += in_this
        check_same(server.shop.run(run), whole)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_kind_of_moment(server: ForkServer, straight: RunFiles, moments: int) -> None:
    """At every fifth call that changes the disk, and in every line that is appended.

    Such calls are renames, syncs, links, removals, folders made, tensors and lines written.
    """
    deaths = [{"kill_at": point} for point in range(1, moments, 5)] + [{"torn_line": line} for line in range(1, 11)]
    for number, death in enumerate(deaths):
        run = f"death-{number}"
        assert server.train(run, SETTINGS, **death).killed, death
        server.train(run, SETTINGS, code=0)
        check_same(server.shop.run(run), straight)
        shutil.rmtree(server.shop.folder / run)
