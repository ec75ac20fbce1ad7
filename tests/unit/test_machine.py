from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch

from dapo import machine
from dapo.machine import keep_freed_memory, peak_memory_gb, return_freed_memory


def test_keeping_freed_memory_changes_no_result_however_often_it_is_asked_for() -> None:
    def work() -> torch.Tensor:
        """Large tensors that are made and freed, as a training step does."""
        total = torch.zeros(300, 300)
        for seed in range(4):
            total += torch.randn(300, 300, generator=torch.Generator().manual_seed(seed)).square()
        return total

    before = work()
    for _ in range(3):
        assert keep_freed_memory() is None
        assert torch.equal(work(), before)
        assert return_freed_memory() is None
        assert torch.equal(work(), before)


class OtherLibrary:
    """A C library without glibc's own functions."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def unloadable(name: object) -> object:
    raise OSError("there is none")


@pytest.mark.parametrize("load", [lambda name: OtherLibrary(), unloadable], ids=["another library", "none"])
@pytest.mark.parametrize("ask", [keep_freed_memory, return_freed_memory])
def test_another_c_library_is_left_alone(
    ask: Callable[[], None], load: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", load)
    ask()


def test_the_settings_are_those_of_malloc_h_and_glibc_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """M_TRIM_THRESHOLD is -1, M_MMAP_THRESHOLD -3 and M_ARENA_MAX -8. glibc answers 1 where a value is in bounds, else 0."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        pytest.skip("the C library is not glibc")
    answers: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, name: int, value: int) -> None:
            answers.append((name, mallopt(name, value)))

    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: Library())
    keep_freed_memory()
    keep_freed_memory()
    assert answers == [(-1, 1), (-3, 1), (-8, 1)] * 2


def test_the_peak_is_in_gigabytes_and_never_falls() -> None:
    first = peak_memory_gb()
    held = torch.ones(5_000_000)
    second = peak_memory_gb()
    del held
    return_freed_memory()
    assert 0.01 < first <= second <= peak_memory_gb() < 1000
