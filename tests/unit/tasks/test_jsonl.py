from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dapo.errors import ConfigError, DataError, RewardError
from dapo.ports import Task
from dapo.tasks.config import JsonlConfig
from dapo.types import Finish, Message, Score
from tests.shared_data import shared_file
from tests.unit.tasks.replies import score


def write(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    """Write rows; a row that is text is a line as it is."""
    path = folder / name
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises(DataError) as refused:
        JsonlConfig(path=path, **settings).check()
    assert refused.value.exit_code == 2
    return str(refused.value)


def sums(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {number} + 1?", "answer": number + 1} for number in range(count)]


def test_rows_become_problems(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"prompt": "What is 7 * 8?", "answer": "56", "id": "first", "level": 2, "weight": 0.5, "tags": [1, "a"]},
        "",
        "   ",
        {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}], "answer": 2},
        {"prompt": "3?", "answer": " 3\n", "id": 12},
    )
    task = JsonlConfig(path=path, held_out=0).build(0)
    assert isinstance(task, Task)
    first, second, third = task.train_problems()
    assert (first.id, first.answer) == ("first", "56")
    assert first.messages == (Message(role="user", content="What is 7 * 8?"),)
    assert first.info == {"level": 2, "weight": 0.5, "tags": [1, "a"]}
    assert (second.id, second.answer) == ("row-4", "2")
    assert second.messages == (Message(role="system", content="Be brief."), Message(role="user", content="1 + 1?"))
    assert (third.id, third.answer) == ("12", "3")
    assert task.held_out_problems() == ()


def test_other_columns_and_a_system_message(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "2?", "final": "2", "key": "k"}, {"question": "3?", "final": "3", "id": "x"})
    config = JsonlConfig(
        path=path, prompt_column="question", answer_column="final", id_column="key", system="Think.", held_out=0
    )
    first, second = config.build(0).train_problems()
    assert first.id == "k"
    assert first.messages == (Message(role="system", content="Think."), Message(role="user", content="2?"))
    assert second.id == "row-2"
    assert second.info == {"id": "x"}


def test_a_byte_order_mark_crlf_and_line_separators_inside_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + '{"prompt": "a\u2028b\u0085c", "answer": 1}\r\n{"prompt": "d", "answer": 2}\r\n'.encode()
    )
    first, second = JsonlConfig(path=path, held_out=0).build(0).train_problems()
    assert first.messages[0].content == "a\u2028b\u0085c"
    assert (first.id, second.id) == ("row-1", "row-2")


@pytest.mark.parametrize("digits", ["105263157894736842", "19999999999999999999999", "1" + "0" * 5000, "-7"])
def test_integers_keep_every_digit(tmp_path: Path, digits: str) -> None:
    path = write(
        tmp_path,
        f'{{"prompt": "a", "answer": {digits}, "other": {digits}}}',
        f'{{"prompt": "b", "answer": "{digits}", "id": {digits}}}',
    )
    task = JsonlConfig(path=path, held_out=0).build(0)
    first, second = task.train_problems()
    assert first.answer == second.answer == second.id == digits
    assert first.info["other"] == (digits if len(digits) > 4000 else int(digits))
    assert score(task, first, f"It is {digits}.").correct
    assert not score(task, first, f"It is {digits[:-1]}{9 - int(digits[-1])}.").correct


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "a" "answer": 1}', "not JSON: Expecting ',' delimiter at character 16"),
        ("[" * 100_000, "nested too deeply"),
        ('["a", 1]', "not a JSON object but a list"),
        ('"text"', "not a JSON object but text"),
        ("7", "not a JSON object but the number 7"),
        ("null", "not a JSON object but null"),
        ('{"answer": 1}', "has no 'prompt'; its columns are 'answer'; name the right one with prompt_column"),
        ('{"prompts": "a", "answer": 1}', "has no 'prompt'; its columns are 'prompts', 'answer'; did you mean"),
        ("{}", "has no 'answer'; its columns are none"),
        ('{"prompt": "a"}', "has no 'answer'"),
        ('{"prompt": null, "answer": 1}', "its 'prompt' is null"),
        ('{"prompt": "a", "answer": null}', "its 'answer' is null"),
        ('{"prompt": "a", "answer": ""}', "its answer is empty"),
        ('{"prompt": "a", "answer": "  "}', "its answer is empty"),
        ('{"prompt": "a", "answer": 5.0}', "its answer 5.0 is a decimal number, which may have lost digits; write an"),
        ('{"prompt": "a", "answer": 1e22}', "its answer 1e22 is a decimal number"),
        ('{"prompt": "a", "answer": NaN}', "its answer NaN is a decimal number"),
        ('{"prompt": "a", "answer": true}', "its answer is true; it must be text or an integer"),
        ('{"prompt": "a", "answer": [1]}', "its answer is a list; it must be text or an integer"),
        (
            '{"prompt": "a", "answer": "5.0"}',
            "its answer '5.0' is no integer, which match = 'integer' needs; set match",
        ),
        ('{"prompt": "a", "answer": "x y"}', "its answer 'x y' is no integer"),
        ('{"prompt": "", "answer": 1}', "its prompt is empty"),
        ('{"prompt": 7, "answer": 1}', "its prompt is the number 7; it must be text or a list of messages"),
        ('{"prompt": {"role": "user"}, "answer": 1}', "its prompt is an object; it must be text or a list of messages"),
        ('{"prompt": [], "answer": 1}', "its messages must end with one of the role 'user'"),
        ('{"prompt": ["a"], "answer": 1}', "message 1 is text; it must be"),
        ('{"prompt": [{"role": "user"}], "answer": 1}', "message 1 has no text under 'content'"),
        ('{"prompt": [{"content": "a"}], "answer": 1}', "message 1 has no text under 'role'"),
        ('{"prompt": [{"role": "user", "content": 5}], "answer": 1}', "message 1 has no text under 'content'"),
        ('{"prompt": [{"role": "user", "content": " "}], "answer": 1}', "message 1 has empty content"),
        (
            '{"prompt": [{"role": "human", "content": "a"}], "answer": 1}',
            "message 1 has the unknown role 'human'; roles",
        ),
        (
            '{"prompt": [{"role": "user", "content": "a", "name": "x"}], "answer": 1}',
            "message 1 has 'name', which would",
        ),
        ('{"prompt": [{"role": "assistant", "content": "a"}], "answer": 1}', "must end with one of the role 'user'"),
        ('{"prompt": "a", "answer": 1, "id": 1.5}', "its 'id' is the number 1.5; an id is text or an integer"),
        ('{"prompt": "a", "answer": 1, "id": ""}', "its 'id' is empty text; an id is text or an integer"),
        ('{"prompt": "a", "answer": 1, "id": ["b"]}', "its 'id' is a list; an id is text or an integer"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    path = write(tmp_path, {"prompt": "fine", "answer": 1}, "", line)
    message = refusal(path)
    assert message.startswith(f"{path}: 1 of 2 rows cannot be used; correct or remove them:\n  line 3: ")
    assert words in message


def test_a_system_message_in_a_row_and_in_the_recipe(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "answer": 1}
    assert "it has a system message, and the recipe sets system too" in refusal(write(tmp_path, row), system="c")


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "a", "answer": 1}\n{"prompt": "\xe9", "answer": 1}\n')
    assert "line 2: not UTF-8 (byte 13 of the line); save the file as UTF-8" in refusal(path)


def test_five_bad_rows_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, *[{"prompt": "a"}] * 8, *sums(4))
    lines = refusal(path).splitlines()
    assert lines[0] == f"{path}: 8 of 12 rows cannot be used; correct or remove them:"
    assert [line.split(":")[0] for line in lines[1:6]] == [f"  line {number}" for number in range(1, 6)]
    assert lines[6:] == ["  and 3 more"]


def test_an_id_names_one_row(tmp_path: Path) -> None:
    path = write(tmp_path, *({"prompt": str(n), "answer": n, "id": name} for n, name in enumerate(["a", "b", "a"])))
    assert "line 3: its id 'a' is also that of line 1" in refusal(path)
    path = write(tmp_path, {"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 1, "id": "row-1"})
    assert "line 2: its id 'row-1' is also that of line 1" in refusal(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    assert refusal(missing) == f"{missing} does not exist (looked for {missing}); correct the path"
    assert "cannot be read: Is a directory" in refusal(tmp_path)
    empty = write(tmp_path, "", "  ")
    assert refusal(empty) == f"{empty} has no rows; it needs one JSON object a line, with a prompt and an answer"


def test_held_out_rows_are_drawn_by_the_seed(tmp_path: Path) -> None:
    path = write(tmp_path, *sums(30))
    config = JsonlConfig(path=path, held_out=6)
    task = config.build(1)
    train = [problem.id for problem in task.train_problems()]
    held_out = [problem.id for problem in task.held_out_problems()]
    assert sorted(train + held_out) == sorted(f"row-{number}" for number in range(1, 31))
    assert len(held_out) == 6
    assert held_out == sorted(held_out, key=lambda name: int(name[4:]))
    assert config.build(1) == task
    assert config.build(2).held_out_problems() != task.held_out_problems()
    fixed = JsonlConfig(path=path, held_out=6, data_seed=1)
    assert fixed.build(5).held_out_problems() == fixed.build(6).held_out_problems() == task.held_out_problems()


@pytest.mark.parametrize(("rows", "expected"), [(1, 0), (2, 1), (19, 1), (50, 5), (2500, 200)])
def test_a_tenth_is_held_out_by_default(tmp_path: Path, rows: int, expected: int) -> None:
    task = JsonlConfig(path=write(tmp_path, *sums(rows))).build(0)
    assert (len(task.train_problems()), len(task.held_out_problems())) == (rows - expected, expected)


def test_all_rows_held_out_leave_nothing_to_train_on(tmp_path: Path) -> None:
    assert "held_out = 3 takes all of the 3 rows" in refusal(write(tmp_path, *sums(3)), held_out=3)


def test_a_second_file_is_held_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, *sums(5))
    other = write(tmp_path, *sums(7)[4:], name="test.jsonl")
    config = JsonlConfig(path=path, held_out_path=other)
    config.check()
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        task = config.build(0)
    assert [problem.id for problem in task.held_out_problems()] == [
        "held-out-row-1",
        "held-out-row-2",
        "held-out-row-3",
    ]
    assert [problem.id for problem in task.train_problems()] == ["row-1", "row-2", "row-3", "row-4"]
    assert caplog.messages == [f"{path}: left out 1 training rows with the prompt of a held-out row"]
    assert "each of the 5 training rows" in refusal(path, held_out_path=path)
    assert "none.jsonl does not exist" in refusal(path, held_out_path=tmp_path / "none.jsonl")


def test_a_prompt_that_occurs_twice_is_not_on_both_sides(tmp_path: Path) -> None:
    path = write(tmp_path, *(sums(10) + sums(10)))
    task = JsonlConfig(path=path, held_out=5).build(0)
    train = {problem.messages for problem in task.train_problems()}
    assert not train & {problem.messages for problem in task.held_out_problems()}


def test_settings_that_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="both say how a reply is scored; keep one of them"):
        JsonlConfig(path=tmp_path, match="exact", reward="a:b")
    with pytest.raises(ValidationError, match="already holds the held-out rows; keep one of them"):
        JsonlConfig(path=tmp_path, held_out=3, held_out_path=tmp_path)


def test_scores(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a", "answer": "033"})
    task = JsonlConfig(path=path).build(0)
    problem = task.train_problems()[0]
    assert score(task, problem, "It is 33.") == Score(correct=True, reward=1.0, extracted="33")
    assert score(task, problem, "33", Finish.LENGTH) == Score(correct=False, reward=-1.0)
    task = JsonlConfig(path=path, match="exact").build(0)
    assert score(task, problem, " 033 ").correct
    assert not score(task, problem, "33").correct


def test_a_reward_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rewards_for_jsonl.py").write_text(
        "def near(problem, reply):\n    return problem.info['scale'] - abs(len(reply) - int(problem.answer))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = write(
        tmp_path, {"prompt": "a", "answer": 3, "scale": 2}, {"prompt": "b", "answer": "no integer", "scale": 1}
    )
    task = JsonlConfig(path=path, held_out=0, reward="rewards_for_jsonl:near").build(0)
    first, second = task.train_problems()
    assert score(task, first, "abcd") == Score(correct=True, reward=1.0)
    assert score(task, first, "a" * 8) == Score(correct=False, reward=-3.0)
    with pytest.raises(RewardError, match=r"rewards_for_jsonl:near raised ValueError for problem 'row-2'"):
        score(task, second, "a")
    with pytest.raises(ConfigError, match="did you mean 'near'"):
        JsonlConfig(path=path, reward="rewards_for_jsonl:neat").check()


def test_public_data_is_read_as_it_is() -> None:
    gsm8k = JsonlConfig(path=shared_file("data/gsm8k_test.jsonl"), prompt_column="question", answer_column="final")
    task = gsm8k.build(0)
    assert len(task.train_problems()) + len(task.held_out_problems()) == 1319
    assert all(score(task, problem, problem.answer).correct for problem in task.train_problems()[:50])
    with pytest.raises(DataError, match=r"1319 of 1319 rows cannot be used(.|\n)*is no integer"):
        JsonlConfig(path=shared_file("data/gsm8k_test.jsonl"), prompt_column="question").check()
    aime = JsonlConfig(path=shared_file("data/qwen_aime24_leading_zeros.jsonl"), prompt_column="problem", held_out=0)
    assert len(aime.build(0).train_problems()) == 30
