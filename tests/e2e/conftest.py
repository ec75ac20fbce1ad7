"""Runs that several tests look at; each is made once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.dying import SETTINGS, ForkServer
from tests.e2e.workshop import Ended, RunFiles, Workshop, furnish


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A run that has ended: what the command printed and the files."""

    shop: Workshop
    ended: Ended
    files: RunFiles
    name: str


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The folder in which the commands run. Each test writes into a run folder of its own name."""
    return furnish(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def learned(shop: Workshop) -> Trained:
    """The recipe as it stands, to its end. Tests read it and change nothing."""
    ended = shop.train("learned")
    return Trained(shop=shop, ended=ended, files=shop.run("learned"), name="learned")


@pytest.fixture(scope="session")
def six(shop: Workshop) -> RunFiles:
    """The first six steps of the recipe at once, without evaluations."""
    shop.train("six", "steps=6", "evaluation.enabled=false")
    return shop.run("six")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A process that runs trainings as its children, in a folder of its own."""
    server = ForkServer(furnish(tmp_path_factory.mktemp("dying")))
    yield server
    server.close()


@pytest.fixture(scope="session")
def straight(server: ForkServer) -> RunFiles:
    """A run of `dying.SETTINGS` that nothing happened to."""
    server.train("straight", SETTINGS, code=0)
    return server.shop.run("straight")
