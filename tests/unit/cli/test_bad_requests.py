"""What cannot be done is refused before a model is loaded, in words, with code 2, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.running import Shell


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test where a model's weights are asked for."""

    def refuse(*args: object, **settings: object) -> None:
        raise AssertionError("a model was loaded for a request that is wrong")

    monkeypatch.setattr("dapo.models.load.load_model", refuse)


def refused(shell: Shell, *words: str) -> str:
    """Train with these words, and return the refusal; nothing new may lie in the working directory."""
    before = sorted(Path().rglob("*"))
    done = shell("train", "mine.toml", *words)
    assert done.code == 2
    assert done.out == "" and done.err.startswith("dapo: ") and "Traceback" not in done.err
    assert sorted(Path().rglob("*")) == before
    return done.err


def overrides(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("-o", pair)]


@pytest.mark.usefixtures("recipe", "no_model")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["algorithm.clip_hihg=0.3"], ["algorithm.clip_hihg: no such field", "Did you mean 'clip_high'?"]),
        (["nonsense.x=1"], ["nonsense: no such field", "steps, seed, model"]),
        (["batch.temperature=-1"], ["batch.temperature = -1", "greater than or equal to 0.001"]),
        (
            ["algorithm.soft_overlong.cache=40"],
            ["soft_overlong.cache = 40", "leaves no length unpunished", "Use a cache"],
        ),
        (["batch.group_size=1"], ["batch.group_size = 1", "dynamic sampling would drop every one", "group_size >= 2"]),
        ([], ["model.path = 'package:no_such_package'", "which is not there", "Install it"]),
        (["model.path=./nowhere"], ["'nowhere' is not a folder", "Check the path"]),
        (["model.path=bad name"], ["neither a folder that exists, nor a Hub id", "Check the spelling"]),
        (["task={ type = 'jsonl', path = 'none.jsonl' }"], ["none.jsonl does not exist", "correct the path"]),
        (["task={ type = 'custom', path = 'no_such_module:Task' }"], ["no_such_module"]),
        (["task.train=1000000"], ["train = 1000000", "lower task.train"]),
    ],
)
def test_a_request_that_cannot_be(shell: Shell, changes: list[str], words: list[str]) -> None:
    message = refused(shell, *overrides(*changes))
    for word in words:
        assert word in message


@pytest.mark.usefixtures("recipe", "no_model")
def test_a_row_without_an_answer_is_named_by_file_and_line(shell: Shell) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "1 + 2?"}\n')
    message = refused(shell, *overrides("task={ type = 'jsonl', path = 'rows.jsonl' }"))
    assert "rows.jsonl" in message and "line 2" in message and "answer" in message


@pytest.mark.usefixtures("recipe", "no_model")
def test_a_folder_that_is_no_model_is_told_what_is_missing(shell: Shell) -> None:
    Path("folder").mkdir()
    message = refused(shell, *overrides("model.path=./folder"))
    assert "holds no config.json" in message and "checkpoints/step-" in message


@pytest.mark.usefixtures("recipe", "no_model")
def test_a_run_folder_that_is_taken_and_a_run_that_is_not_there(shell: Shell) -> None:
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("keep me")
    assert "is not empty" in refused(shell, "--run", "taken")
    assert Path("taken/notes.txt").read_text() == "keep me"
    assert "holds no run" in refused(shell, "--run", "new", "--resume")


@pytest.fixture
def tokenizer(tmp_path: Path, no_model: None) -> Callable[..., str]:
    """Writes a model folder with a tokenizer and no weights; returns the override that names it."""

    def write(*, template: str | None = "chat", eos: bool = True) -> str:
        from tests.tiny import make_tokenizer

        folder = tmp_path / "model"
        make_tokenizer(template=template, eos=eos).save_pretrained(str(folder))  # type: ignore[arg-type]
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        return f"model.path={folder}"

    return write


@pytest.mark.usefixtures("recipe")
def test_a_tokenizer_without_a_chat_template(shell: Shell, tokenizer: Callable[..., str]) -> None:
    message = refused(shell, *overrides(tokenizer(template=None)))
    assert "has no chat template" in message
    assert "instruction-tuned model" in message and "model.chat_template" in message


@pytest.mark.usefixtures("recipe")
def test_a_tokenizer_without_an_end_token(shell: Shell, tokenizer: Callable[..., str]) -> None:
    message = refused(shell, *overrides(tokenizer(eos=False)))
    assert "has no end token, so no reply could ever end" in message and "eos_token" in message


@pytest.mark.usefixtures("recipe")
def test_a_prompt_over_the_limit_is_measured_with_the_template(shell: Shell, tokenizer: Callable[..., str]) -> None:
    """31, 32 and 33 tokens with the template's own two, and a limit of 32."""
    rows = [{"prompt": "x" * (length - 3), "answer": 1, "id": f"t{length}"} for length in (31, 32, 33)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = "task={ type = 'jsonl', path = 'rows.jsonl', held_out = 0 }"
    changes = [tokenizer(), task, "batch.max_prompt_tokens=32", "evaluation.enabled=false"]
    message = refused(shell, *overrides(*changes))
    assert "1 of 3 training prompts are longer than batch.max_prompt_tokens = 32" in message
    assert "the longest, t33, has 33 tokens" in message and 'batch.overlong_prompts = "drop"' in message


@pytest.mark.usefixtures("recipe", "no_model")
@pytest.mark.parametrize(("fork", "run"), [("base", "base/sub"), ("base/sub", "base"), ("base", "base")])
def test_a_fork_into_the_run_that_it_is_forked_from(shell: Shell, fork: str, run: str) -> None:
    message = refused(shell, "--fork", fork, "--run", run)
    assert f"--fork {fork} was asked for with the run folder {run}, and one of them lies in the other" in message
