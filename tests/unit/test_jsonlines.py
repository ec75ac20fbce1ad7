from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.errors import DataError
from dapo.jsonlines import JsonLines, append_json_line, read_json_lines, to_json
from dapo.ports import Reporter


def test_a_step_is_one_line_that_can_be_read_before_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    reporter = JsonLines(path)
    reporter.write(1, {"reward/mean": -0.5, "optim/lr": 1e-6})
    assert path.read_text() == '{"step": 1, "reward/mean": -0.5, "optim/lr": 1e-06}\n'
    reporter.close()
    reporter.close()


def test_it_is_a_reporter(tmp_path: Path) -> None:
    reporter = JsonLines(tmp_path / "metrics.jsonl")
    assert isinstance(reporter, Reporter)
    reporter.close()


def test_floats_keep_all_their_digits(tmp_path: Path) -> None:
    value = 0.1 + 0.2
    append_json_line(tmp_path / "a.jsonl", {"value": value})
    assert read_json_lines(tmp_path / "a.jsonl") == [{"value": 0.30000000000000004}]


def test_numbers_that_are_not_finite_become_null_at_any_depth() -> None:
    value = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": (1.5, None, True, 2**70)}
    assert to_json(value) == '{"a": null, "b": [null, {"c": null}], "d": [1.5, null, true, 1180591620717411303424]}'


def test_a_lone_surrogate_survives(tmp_path: Path) -> None:
    append_json_line(tmp_path / "a.jsonl", {"text": "x\ud800\n中"})
    assert read_json_lines(tmp_path / "a.jsonl") == [{"text": "x\ud800\n中"}]


def test_appending_continues_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "eval.jsonl"
    append_json_line(path, {"step": 0})
    append_json_line(path, {"step": 5})
    assert path.read_bytes() == b'{"step": 0}\n{"step": 5}\n'


def test_a_missing_or_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert read_json_lines(tmp_path / "missing.jsonl") == []
    assert read_json_lines(tmp_path / "empty.jsonl") == []


def test_a_half_written_last_line_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n\n{"step": 2, "rew')
    assert read_json_lines(path) == [{"step": 1}]


def test_a_whole_last_line_without_line_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


def test_a_broken_line_elsewhere_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n{"step"\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"line 2 of .*a\.jsonl is not JSON"):
        read_json_lines(path)


def test_a_line_that_is_no_object_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("[1]\n")
    with pytest.raises(DataError, match=r"line 1 of .* is list, not an object"):
        read_json_lines(path)


@pytest.mark.parametrize("keep_bytes", [200_000, 12, 1])
def test_a_half_written_line_is_removed_before_the_next_is_written(tmp_path: Path, keep_bytes: int) -> None:
    path = tmp_path / "a.jsonl"
    half = ('{"step": 2, "text": "' + "x" * 300_000)[:keep_bytes]
    path.write_text('{"step": 1}\n' + half)
    reporter = JsonLines(path)
    reporter.write(2, {})
    reporter.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_whole_line_without_line_end_is_kept_when_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}')
    append_json_line(path, {"step": 2})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_everything_becomes_one_line_of_strict_json(value: object) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    text = to_json(value)
    assert "\n" not in text
    json.loads(text.encode("ascii"), parse_constant=refuse)


def test_a_line_of_brackets_without_end_is_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("[" * 200_000 + '\n{"a": 1}\n')
    with pytest.raises(DataError, match=r"line 1 of .* is not JSON \("):
        read_json_lines(path)
