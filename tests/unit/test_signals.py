"""Interrupts in a process of their own: once for a clean end, twice for an end at once."""

from __future__ import annotations

import signal
import subprocess
import sys

CLEAN = """
import asyncio, time
from dapo.signals import stops_cleanly

async def work():
    stop = asyncio.Event()
    with stops_cleanly(stop, lambda text: print(text, flush=True)):
        print("ready", flush=True)
        if BLOCKS:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                time.sleep(0.01)
        await asyncio.wait_for(stop.wait(), 20)
        print("stopped", flush=True)

asyncio.run(work())
"""

AT_ONCE = """
import time
from dapo.signals import ends_at_once

with ends_at_once():
    print("ready", flush=True)
    try:
        time.sleep(20)
    except BaseException:
        print("swallowed", flush=True)
"""


def start(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_one_interrupt_stops_cleanly_whichever_it_is() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start(CLEAN.replace("BLOCKS", "False"))
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert out == f"{number.name} received: saving and stopping (once more to stop without saving)\nstopped\n"
        assert process.returncode == 0


def test_a_second_interrupt_ends_at_once_even_where_somebody_blocks_the_loop() -> None:
    process = start(CLEAN.replace("BLOCKS", "True"))
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline().startswith("SIGINT received")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in err


def test_while_loading_an_interrupt_cannot_be_swallowed() -> None:
    process = start(AT_ONCE)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err == "\ndapo: interrupted\n"


def test_a_terminal_that_says_twice_that_it_is_closed_stops_cleanly_all_the_same() -> None:
    process = start(CLEAN.replace("BLOCKS", "False").replace('print("stopped"', 'time.sleep(1); print("stopped"'))
    process.send_signal(signal.SIGHUP)
    assert process.stdout is not None and process.stdout.readline().startswith("SIGHUP received")
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "stopped\n")


def test_while_loading_a_closed_terminal_and_sigterm_end_at_once_with_a_word() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        process = start(AT_ONCE)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (130, "", "\ndapo: interrupted\n")


def test_what_nohup_has_asked_for_stays() -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = start(ignoring + CLEAN.replace("BLOCKS", "False"))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert out == "SIGTERM received: saving and stopping (once more to stop without saving)\nstopped\n"
    assert process.returncode == 0
