"""What `dapo eval` prints, and the mixtures of options that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dapo.data.known_keys import KeyDifference
from dapo.inference import Measured
from tests.unit.cli.running import Shell

SUMMARY: dict[str, Any] = {
    "model": "one",
    "problems": 2,
    "samples": 4,
    "avg": 0.5,
    "ci_low": 0.25,
    "ci_high": 0.75,
    "samples_low": 0.375,
    "samples_high": 0.625,
    "pass_at": {"1": 0.5, "4": 1.0},
    "maj": 0.5,
    "truncated": 0.125,
    "length_mean": 20.0,
    "copies": 4,
    "errors": 1,
}
TABLE = [
    {"id": "first", "right": 3, "of": 4, "majority": ["7"], "gold": "7"},
    {"id": "second", "right": 1, "of": 4, "majority": ["8", "9"], "gold": "9"},
]
DIFFERENCE = KeyDifference(row=22, id="p22", problem="AIME 2024 I 8", answer="480", keys=("197",), certain=True)
FOUND = Measured(folder=Path("evaluations/x"), summary=SUMMARY, table=TABLE, key_differences=[DIFFERENCE])


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Requests that reach the evaluation, which is answered at once."""
    requests: list[tuple[Any, Any]] = []

    class Plan:
        key_differences = FOUND.key_differences

        def __init__(self, request: Any) -> None:
            self.request = request

    def plan(request: Any, out: Path | None) -> Plan:
        requests.append((request, out))
        return Plan(request)

    monkeypatch.setattr("dapo.inference.plan_evaluation", plan)
    monkeypatch.setattr("dapo.inference.run_evaluation", lambda plan, progress: FOUND)
    return requests


def test_it_prints_the_numbers_both_intervals_and_the_table(shell: Shell, planned: list[tuple[Any, Any]]) -> None:
    done = shell("eval", "one", "--data", "rows.jsonl")
    assert done.code == 0
    assert done.out.splitlines() == [
        "accuracy   50.0% (95% interval 25.0% to 75.0%; 2 problems x 4), avg@4",
        "           that interval is over problems: what other problems like these would give",
        "           37.5% to 62.5% over samples: these problems, asked again",
        "majority   50.0%",
        "pass@k     1: 50.0%  4: 100.0%",
        "truncated  12.5%, mean length 20.0 tokens",
        "copies     the file holds each problem 4 times; each counts once",
        "errors     1 replies could not be graded and count as wrong",
        "",
        "problem      right  majority answer           gold",
        "first       3 of 4  7                         7",
        "second      1 of 4  8 | 9                     9",
        "",
        "replies and numbers: evaluations/x",
    ]
    assert done.err == "dapo: rows.jsonl row 22 (p22): answer 480, and the known key of AIME 2024 I 8 is 197\n"


def test_as_json_it_holds_the_table_and_the_keys_that_differ(shell: Shell, planned: list[tuple[Any, Any]]) -> None:
    found = json.loads(shell("eval", "one", "--data", "rows.jsonl", "--json").out)
    assert found["folder"] == "evaluations/x" and found["avg"] == 0.5 and found["table"] == TABLE
    assert found["key_differences"][0]["row"] == 22 and found["key_differences"][0]["keys"] == ["197"]


def test_what_was_asked_is_passed_on(shell: Shell, planned: list[tuple[Any, Any]]) -> None:
    shell("eval", "one", "--data", "rows.jsonl")
    options = "--samples 32 --temperature 0.6 --top-p 0.95 --max-tokens 99 --verifier dapo --problems 5 --seed 3"
    shell("eval", "one", "--data", "rows.jsonl", *options.split(), "--template", "boxed", "--out", "mine")
    (plain, nowhere), (full, out) = planned
    assert (plain.samples, plain.problems, plain.seed, plain.verifier.name, nowhere) == (None, None, 0, "math", None)
    assert (plain.sampling.temperature, plain.sampling.top_p, plain.sampling.max_tokens) == (1.0, 0.7, 2048)
    assert (full.samples, full.problems, full.seed, full.verifier.name, out) == (32, 5, 3, "dapo", Path("mine"))
    assert (full.sampling.temperature, full.sampling.top_p, full.sampling.max_tokens) == (0.6, 0.95, 99)
    assert (full.data.path, full.data.template) == ("rows.jsonl", "boxed")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--data rows.jsonl", "Name a model or a run"),
        ("one --samples 4", "--samples cannot be used without --data"),
        ("one --verifier dapo", "--verifier cannot be used without --data"),
        ("one --data rows.jsonl -o steps=3", "--override cannot be used with --data"),
        ("one --data rows.jsonl --recipe mine.toml", "--recipe cannot be used with --data"),
        ("one --data rows.jsonl --template wrapped", "template = 'wrapped'"),
        ("--regrade here --samples 4", "--samples cannot be used with --regrade"),
        ("one --regrade here", "the model one cannot be used with --regrade"),
        ("--regrade here", "here holds no evaluation"),
        ("--compare a b --samples 4", "--samples cannot be used with --compare"),
        ("--compare a b --data rows.jsonl --out mine", "--out cannot be used with --compare"),
        ("--compare a b", "a is no evaluation folder"),
        ("one --data gone.jsonl", "gone.jsonl does not exist"),
        ("one --data gone.jsonl --samples 0", "--samples"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, words: str, told: str) -> None:
    Path("one").mkdir()
    Path("one/config.json").write_text("{}")
    done = shell("eval", *words.split())
    assert (done.code, done.out) == (2, "") and told in done.err and "Traceback" not in done.err
    assert not Path("evaluations").exists()
