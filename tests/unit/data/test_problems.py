from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from dapo.data.config import CheckConfig, SourceConfig
from dapo.data.problems import ProblemSet, open_problems
from dapo.data.templates import TEMPLATES
from dapo.errors import DataError
from dapo.types import Message, Problem
from tests.unit.data.helpers import dapo_row, plain_set, write_lines


def open_pairs(folder: Path, pairs: list[tuple[object, object]], **settings: object) -> ProblemSet:
    path = plain_set(folder / "set.jsonl", pairs)
    return open_problems(SourceConfig.model_validate({"path": str(path), **settings}))


def test_a_row_becomes_a_problem(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"id": "p1", "prompt": "What is 6 * 7?", "answer": 42, "level": 2}])
    assert open_problems(SourceConfig(path=str(path)))[0] == Problem(
        id="p1",
        messages=(Message(role="user", content="What is 6 * 7?"),),
        answer="42",
        info={"id": "p1", "level": 2},
    )


def test_a_source_is_one_line(tmp_path: Path) -> None:
    assert SourceConfig.model_validate("some/set") == SourceConfig(path="some/set")
    assert CheckConfig.model_validate({"evaluation": ["a.jsonl"]}).evaluation == (SourceConfig(path="a.jsonl"),)


def test_an_epoch_is_over_unique_problems(tmp_path: Path) -> None:
    problems = open_pairs(
        tmp_path,
        [("What is $6 * 7$?", 42), ("What is 6*7?", "042"), ("What is 6 * 7?", 42), ("What is 6 * 8?", 48)] * 2,
    )
    assert [problem.answer for problem in problems] == ["42", "48"]
    assert problems.loaded.to_text() == "8 rows give 2 problems (plain); 6 copies left out"
    assert [problems.source_row(place) for place in range(2)] == [0, 3]


def test_copies_count_where_they_are_wanted_and_have_ids_of_their_own(tmp_path: Path) -> None:
    rows = [dapo_row("What is 6 * 7?", "42", 5)] * 3
    path = write_lines(tmp_path / "a.jsonl", rows)
    problems = open_problems(SourceConfig(path=str(path), unique=False))
    assert [problem.id for problem in problems] == ["5@0", "5@1", "5@2"]


def test_an_answer_is_never_picked_from_a_conflict(tmp_path: Path) -> None:
    pairs: list[tuple[object, object]] = [("What is 6 * 7?", 42), ("What is 6 * 8?", 48), ("What is $6*7$?", 43)]
    problems = open_pairs(tmp_path, pairs)
    assert [problem.answer for problem in problems] == ["48"]
    assert problems.loaded.conflicting == (0, 2)
    with pytest.raises(DataError, match=r"1 problems stand in it with different answers:\n  rows 0, 2\n"):
        open_pairs(tmp_path, pairs, conflicts="error")


def test_labels_that_are_equal_only_as_floats_conflict(tmp_path: Path) -> None:
    pairs: list[tuple[object, object]] = [("a?", 105263157894736842), ("a?", 105263157894736848), ("b?", 1)]
    assert open_pairs(tmp_path, pairs).loaded.conflicting == (0, 1)


def test_rows_that_cannot_be_used_are_refused_with_their_reasons(tmp_path: Path) -> None:
    pairs: list[tuple[object, object]] = [
        ("a?", 1),
        ("b?", None),
        ("", 3),
        ("c?", 2e22),
        (7, 4),
        ("d?", ["5"]),
        ("e?", 6.0),
    ]
    with pytest.raises(DataError) as error:
        open_pairs(tmp_path, pairs)
    assert str(error.value).splitlines()[1:6] == [
        "  row 1: it has no answer",
        "  row 2: its prompt is empty",
        "  row 3: the float 2e+22 may have lost digits",
        "  row 4: its prompt is neither text nor a list of messages",
        "  row 5: its answer is neither text nor a number: ['5']",
    ]
    assert "5 of 7 rows cannot be used" in str(error.value)
    problems = open_pairs(tmp_path, pairs, unusable="skip")
    assert [problem.answer for problem in problems] == ["1", "6"], "6.0 is 6 without doubt"
    assert problems.loaded.unusable == (1, 2, 3, 4, 5)


def test_a_set_with_nothing_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of its 1 rows is left to use"):
        open_pairs(tmp_path, [("a?", None)], unusable="skip")


def test_the_template_goes_around_the_last_message_alone(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "6 * 7?"}], "answer": 42}
    path = write_lines(tmp_path / "a.jsonl", [row])
    problem = open_problems(SourceConfig(path=str(path), template="dapo"))[0]
    assert problem.messages == (
        Message(role="system", content="Be short."),
        Message(role="user", content=TEMPLATES["dapo"].replace("{problem}", "6 * 7?")),
    )


def test_a_limit_takes_the_first_problems(tmp_path: Path) -> None:
    pairs: list[tuple[object, object]] = [(f"What is {n} + 1?", n + 1) for n in range(9)]
    assert [problem.answer for problem in open_pairs(tmp_path, pairs, limit=3)] == ["1", "2", "3"]
    assert [problem.answer for problem in open_pairs(tmp_path, pairs, limit=3, unique=False)] == ["1", "2", "3"]


def test_ids_that_repeat_get_their_row(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": f"What is {n}?", "answer": n} for n in range(3)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    assert [problem.id for problem in open_problems(SourceConfig(path=str(path)))] == ["1", "1@1", "1@2"]


def test_prompts_over_a_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    words = {31: "x " * 31, 32: "y " * 32, 33: "z " * 33}
    problems = open_pairs(tmp_path, [(text, size) for size, text in words.items()])
    within = problems.within(32, lambda problem: len(problem.messages[0].content.split()))
    assert [problem.answer for problem in within] == ["31", "32"]
    assert (within.loaded.problems, within.loaded.over_limit) == (2, 1)
    assert [within.source_row(place) for place in range(2)] == [0, 1]
    assert len(problems) == 3


def test_items_may_be_asked_for_in_any_order_any_number_of_times(tmp_path: Path) -> None:
    problems = open_pairs(tmp_path, [(f"What is {n} + 1?", n + 1) for n in range(50)])
    order = np.random.default_rng(7).permutation(50)
    assert [problems[int(place)].answer for place in order] == [str(place + 1) for place in order]
    assert problems[-1] == problems[49]
    assert [problem.answer for problem in problems[48:]] == ["49", "50"]
    with pytest.raises(IndexError):
        problems[50]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_copies(tmp_path: Path, ending: str) -> None:
    rows = [dapo_row(f"What is {n} + {n}? " + "Show every step of the way. " * 20, str(2 * n), n) for n in range(100)]
    peaks = []
    for times in (5, 25):
        path = tmp_path / f"x{times}.{ending}"
        if ending == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows) * times)
        else:
            pq.write_table(pa.concat_tables([pa.Table.from_pylist(rows)] * times), path)
        source = SourceConfig(path=str(path))
        open_problems(source)  # what is made once does not count
        tracemalloc.start()
        problems = open_problems(source)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (len(problems), problems.loaded.rows) == (100, 100 * times)
        assert problems[99].answer == "198"
    assert peaks[1] < 1.2 * peaks[0]


def test_a_template_without_a_place_for_the_problem_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"none of keep, bare, dapo, boxed and has no \{problem\} in it"):
        SourceConfig(path="a.jsonl", template="wrapped")
    with pytest.raises(ValidationError, match="path is empty"):
        SourceConfig(path=" ")
    with pytest.raises(ValidationError, match="keep and drop both name big_answer"):
        CheckConfig.model_validate({"keep": ["big_answer"], "drop": ["big_answer"]})


def test_configs_and_readers_are_imported_without_the_heavy_libraries() -> None:
    program = (
        "import sys; import dapo.data.config, dapo.data.problems, dapo.data.check, dapo.data.clean, dapo.data.hub; "
        "print(sorted({'torch', 'pyarrow', 'datasets', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
