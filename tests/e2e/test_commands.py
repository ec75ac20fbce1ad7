"""Other commands on a run, and how a command says that it cannot do what was asked."""

from __future__ import annotations

import pytest

from dapo.metrics import EVALUATION_FIELDS
from tests.e2e.conftest import Trained
from tests.e2e.workshop import STEPS, Workshop


def test_eval_measures_a_run(learned: Trained) -> None:
    before = learned.files.content()

    line = learned.shop.dapo("eval", "learned", "--json").json

    assert line.keys() == EVALUATION_FIELDS.keys()
    assert (line["problems"], line["samples"], line["top_p"]) == (16, 4, 1.0)
    assert line["avg"] > 0.75
    assert learned.files.content() == before


def test_sample_talks_to_a_run(learned: Trained) -> None:
    command = ("sample", "learned", "3+4", "-n", "5", "--temperature", "1", "--max-tokens", "6", "--json")

    result = learned.shop.dapo(*command).json

    assert result["model"].endswith(f"learned/checkpoints/step-{STEPS:06d}")
    assert result["question"] == "3+4"
    assert [reply.keys() for reply in result["replies"]] == [{"text", "finish", "tokens"}] * 5
    assert sum(reply["text"][:1].isdigit() for reply in result["replies"]) >= 3
    assert all(1 <= reply["tokens"] <= 6 for reply in result["replies"])


def test_a_second_run_into_the_same_folder_is_refused_and_nothing_changes(learned: Trained) -> None:
    before = learned.files.content()

    ended = learned.shop.train("learned", code=2)

    assert ended.out == ""
    assert "is not empty" in ended.err
    assert "--resume" in ended.err
    assert "Traceback" not in ended.err
    assert learned.files.content() == before


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["batch.grup_size=4"], ["batch.grup_size", "Did you mean 'group_size'?"]),
        (["batch.top_p=0.9"], ["batch.top_p", "refused in training"]),
        (["steps=0"], ["steps = 0"]),
        (["algorithm.type=ppp"], ["algorithm.type", "'dapo'", "'grpo'"]),
        (["task.path=gone.jsonl"], ["gone.jsonl"]),
        (["task.reward=rewards:starts_with"], ["starts_with_a_digit"]),
        (["model.path=./gone"], ["gone", "is not a folder"]),
        (["batch.max_prompt_tokens=5"], ["batch.max_prompt_tokens = 5", "the longest", "6 tokens"]),
        (["batch.group_size"], ["-o 'batch.group_size' is not of the form key=value"]),
    ],
    ids=lambda value: value[0].split("=")[0] if isinstance(value, list) and "=" in value[0] else None,
)
def test_a_wrong_request_ends_with_code_2_in_words_and_leaves_no_run_folder(
    shop: Workshop, overrides: list[str], words: list[str]
) -> None:
    ended = shop.train("never", *overrides, code=2)

    assert ended.out == ""
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err
    assert not (shop.folder / "never").exists()


def test_a_reward_that_raises_ends_the_run_with_code_1_and_its_name(shop: Workshop) -> None:
    ended = shop.train("broken", "task.reward=rewards:breaks", "steps=1", code=1)

    assert "rewards:breaks raised ZeroDivisionError" in ended.err
    assert "the scorer divides by nothing" in ended.err
    assert "Traceback" not in ended.err
    files = shop.run("broken")
    assert files.config["task"]["reward"] == "rewards:breaks"
    assert (files.folder / "report.html").is_file()


def test_resume_of_nothing_is_refused(shop: Workshop) -> None:
    ended = shop.train("nothing", resume=True, code=2)

    assert "holds no run" in ended.err
    assert not (shop.folder / "nothing").exists()
