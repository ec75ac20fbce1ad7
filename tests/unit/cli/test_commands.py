from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo import __version__
from dapo.config import derived_numbers, load_config, parse_config
from dapo.errors import EngineError, NoSignalError
from dapo.loop import Ending, Outcome
from dapo.run import Result
from dapo.storage.manifest import write_manifest
from dapo.types import Finish, Rollout
from tests.unit.cli.running import Shell


def test_help_names_every_command(shell: Shell) -> None:
    done = shell("--help")
    assert done.code == 0
    for command in ("train", "eval", "sample", "show"):
        assert command in done.out


@pytest.mark.parametrize("command", ["train", "eval", "sample", "show"])
def test_every_command_that_prints_a_result_prints_it_as_json(shell: Shell, command: str) -> None:
    done = shell(command, "--help")
    assert done.code == 0 and "--json" in done.out


def test_the_version(shell: Shell) -> None:
    done = shell("--version")
    assert (done.code, done.out) == (0, f"dapo {__version__}\n")


def test_without_a_command_the_help_is_shown_and_the_code_is_that_of_a_wrong_request(shell: Shell) -> None:
    done = shell()
    assert done.code == 2 and "train" in done.out + done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["show"], "Missing argument 'RECIPE'"),
        (["show", "a.toml", "--nonsense"], "No such option"),
        (["sample", "m", "q", "--top-p", "2"], "--top-p"),
        (["sample", "m", "q", "-n", "0"], "-n"),
    ],
)
def test_a_wrong_command_line_is_told_without_a_traceback_and_ends_with_code_2(
    shell: Shell, words: list[str], expected: str
) -> None:
    done = shell(*words)
    assert done.code == 2
    assert expected in done.err and "Traceback" not in done.err


# show


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["algorithm={ type = 'grpo' }", "seed=7"],
        ["task.operations=['+', '*']", 'task.system="Say \\"yes\\".\\nOr no."'],
        ["task={ type = 'custom', path = 'a:b', options = { x = [1, 2.5, 'y'], y = {} } }"],
        ["trainer.learning_rate=3e-7", "evaluation.problems=9"],
    ],
)
def test_what_show_prints_is_a_recipe_that_resolves_to_the_same(
    shell: Shell, recipe: Path, overrides: list[str]
) -> None:
    words = [word for override in overrides for word in ("-o", override)]
    done = shell("show", str(recipe), *words)
    assert done.code == 0
    assert parse_config(tomllib.loads(done.out), what="printed") == load_config(recipe, overrides)


def test_show_prints_what_follows_and_what_to_know(shell: Shell, recipe: Path) -> None:
    done = shell("show", str(recipe), "-o", "batch.updates_per_step=1")
    assert "#   replies a step: 32\n" in done.out and "#   updates in all: 4\n" in done.out
    assert "# Note: batch.updates_per_step = 1: " in done.out
    assert "# epochs is not set" in done.out


def test_show_as_json(shell: Shell, recipe: Path) -> None:
    done = shell("show", str(recipe), "--json", "-o", "batch.updates_per_step=1")
    content = json.loads(done.out)
    config = load_config(recipe, ["batch.updates_per_step=1"])
    assert content["config"] == config.model_dump(mode="json")
    assert content["derived"] == derived_numbers(config)
    assert len(content["remarks"]) == 1


# train


LINE = {"avg": 0.5, "ci_low": 0.4, "ci_high": 0.6, "problems": 20, "samples": 4}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Any, ...]]]:
    """Puts a result, or an error, in the place of training; returns the calls."""

    def put(ending: Ending = Ending.FINISHED, steps: int = 4, error: Exception | None = None) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def train_run(config: Any, path: Path, *, resume: bool = False, fork_of: Path | None = None) -> Result:
            calls.append((config, path, resume) if fork_of is None else (config, path, resume, fork_of))
            if error is not None:
                raise error
            policy = path / "checkpoints" / "step-000004" if steps else None
            return Result(
                outcome=Outcome(ending=ending, steps=steps),
                folder=path,
                policy=policy,
                report=path / "report.html",
                before=LINE,
                after=LINE | {"avg": 0.75} if steps else None,
                seconds=90.0,
            )

        monkeypatch.setattr("dapo.run.train_run", train_run)
        return calls

    return put


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending.FINISHED, "Training is finished: 4 steps, 1.5 minutes."),
        (Ending.SOLVED, "The task is solved"),
        (Ending.DATA_ENDED, "The training data has ended"),
        (Ending.STOPPED, "go on with --resume"),
    ],
)
def test_train_says_how_it_ended_and_what_came_of_it(
    shell: Shell, recipe: Path, trained: Callable[..., Any], ending: Ending, words: str
) -> None:
    trained(ending)
    done = shell("train", str(recipe))
    assert done.code == 0 and words in done.out
    assert "accuracy before  50.0% (95% interval 40.0% to 60.0%; 20 problems x 4)" in done.out
    assert "accuracy after   75.0%" in done.out
    assert "runs/mine/checkpoints/step-000004" in done.out and "runs/mine/report.html" in done.out


def test_train_without_a_step_says_that_nothing_was_saved(
    shell: Shell, recipe: Path, trained: Callable[..., Any]
) -> None:
    trained(Ending.SOLVED, steps=0)
    done = shell("train", str(recipe))
    assert "none was saved" in done.out and "dapo sample" not in done.out


def test_train_as_json(shell: Shell, recipe: Path, trained: Callable[..., Any]) -> None:
    trained()
    done = shell("train", str(recipe), "--json")
    assert json.loads(done.out) == {
        "ending": "finished",
        "steps": 4,
        "seconds": 90.0,
        "before": LINE,
        "after": LINE | {"avg": 0.75},
        "run": "runs/mine",
        "policy": "runs/mine/checkpoints/step-000004",
        "report": "runs/mine/report.html",
    }


def test_train_passes_on_what_was_asked(shell: Shell, recipe: Path, trained: Callable[..., Any]) -> None:
    calls = trained()
    shell("train", str(recipe), "-o", "seed=7", "--override", "batch.group_size=8", "--run", "here", "--resume")
    ((config, path, resume),) = calls
    assert (config.seed, config.batch.group_size, path, resume) == (7, 8, Path("here"), True)


@pytest.mark.parametrize(
    "error",
    [NoSignalError("None of 4 groups had both.", accuracy=0.0), EngineError("Generation failed: out of memory")],
)
def test_a_run_that_failed_ends_with_code_1_and_its_reason(
    shell: Shell, recipe: Path, trained: Callable[..., Any], error: Exception
) -> None:
    trained(error=error)
    done = shell("train", str(recipe))
    assert (done.code, done.err, done.out) == (1, f"dapo: {error}\n", "")


def test_an_interrupt_before_the_run_began_ends_with_code_130(
    shell: Shell, recipe: Path, trained: Callable[..., Any]
) -> None:
    trained(error=KeyboardInterrupt())  # type: ignore[arg-type]
    assert shell("train", str(recipe)).code == 130


def test_a_fault_of_the_program_itself_is_not_hidden(shell: Shell, recipe: Path, trained: Callable[..., Any]) -> None:
    trained(error=ZeroDivisionError("a fault"))
    with pytest.raises(ZeroDivisionError):
        shell("train", str(recipe))


# sample and eval


def test_sample_prints_replies_and_says_which_were_cut_off(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(text: str, finish: Finish) -> Rollout:
        return Rollout(token_ids=(1,), mask=(True,), logprobs=(0.0,), text=text, finish=finish, policy_version=0)

    class Opened:
        name = "some/model"

    asked: list[Any] = []

    def sample_replies(policy: Any, question: str, n: int, sampling: Any, seed: int) -> list[Rollout]:
        asked.append((question, n, sampling.temperature, sampling.top_p, sampling.max_tokens, seed))
        return [reply("56", Finish.STOP), reply("5", Finish.LENGTH)]

    monkeypatch.setattr("dapo.inference.open_policy", lambda model: Opened())
    monkeypatch.setattr("dapo.inference.sample_replies", sample_replies)
    done = shell("sample", "some/model", "7 * 8?", "-n", "2", "--temperature", "0.5", "--top-p", "0.9", "--seed", "3")
    assert (done.code, done.out) == (0, "56\n5 […cut off by --max-tokens]\n")
    assert asked == [("7 * 8?", 2, 0.5, 0.9, 256, 3)]
    content = json.loads(shell("sample", "some/model", "7 * 8?", "--json").out)
    assert content == {
        "model": "some/model",
        "question": "7 * 8?",
        "replies": [
            {"text": "56", "finish": "stop", "tokens": 1},
            {"text": "5", "finish": "length", "tokens": 1},
        ],
    }


MEASURED = LINE | {"maj": 0.6, "pass_at": {"1": 0.5, "4": 0.9}, "truncated": 0.1, "length_mean": 12.5}


def test_eval_takes_the_run_s_own_config_with_its_newest_policy(
    shell: Shell, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("runs/mine")
    newest = folder / "checkpoints" / "step-000020"
    newest.mkdir(parents=True)
    (newest / "progress.json").write_text("{}")
    write_manifest(newest, 20)
    content = load_config(recipe).model_dump(mode="json") | {"versions": {"torch": "2"}, "forked_from": {"step": 1}}
    (folder / "config.json").write_text(json.dumps(content))
    measured: list[Any] = []

    def evaluate_policy(config: Any) -> dict[str, Any]:
        measured.append(config)
        return MEASURED

    monkeypatch.setattr("dapo.inference.evaluate_policy", evaluate_policy)
    done = shell("eval", str(folder), "-o", "evaluation.samples=4")
    assert done.code == 0
    assert "accuracy   50.0% (95% interval 40.0% to 60.0%; 20 problems x 4)" in done.out
    assert "majority   60.0%" in done.out and "pass@k     1: 50.0%  4: 90.0%" in done.out
    assert (measured[0].model.path, measured[0].evaluation.samples) == (str(newest), 4)
    assert json.loads(shell("eval", str(folder), "--json").out) == MEASURED
    shell("eval", "other/model", "--recipe", str(recipe))
    assert measured[-1].model.path == "other/model"
    shell("eval", "--recipe", str(recipe))
    assert measured[-1].model.path == "package:no_such_package"


def test_eval_of_a_model_alone_asks_what_to_measure_it_on(shell: Shell, recipe: Path) -> None:
    for words in (["eval"], ["eval", "some/model"]):
        done = shell(*words)
        assert done.code == 2 and "--recipe" in done.err


def test_eval_of_a_run_whose_config_cannot_be_read_says_so(shell: Shell, recipe: Path) -> None:
    Path("runs/mine/checkpoints").mkdir(parents=True)
    for content in ("{", "[1]", '"text"'):
        Path("runs/mine/config.json").write_text(content)
        done = shell("eval", "runs/mine")
        assert done.code == 2 and "config.json" in done.err and "Traceback" not in done.err
