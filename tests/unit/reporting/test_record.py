from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dapo.errors import DataError
from dapo.reporting.charts import Point
from dapo.reporting.record import describe, number, read_groups, read_run

from .run_folder import make_run, write_groups, write_lines


def test_a_run_is_read_in_order_of_its_steps(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path / "first"))
    assert record.name == "first"
    assert [line["step"] for line in record.steps] == list(range(1, 16))
    assert [line["step"] for line in record.evaluations] == [0, 5, 10, 15]
    assert [step for step, _ in record.rollout_files] == list(range(1, 16))
    assert record.total("sampling/groups_generated") == 15 * 24
    assert record.data_names == ("arithmetic",)


def test_an_empty_folder_is_a_run_without_steps(tmp_path: Path) -> None:
    record = read_run(tmp_path)
    assert (record.config, record.steps, record.evaluations, record.rollout_files) == ({}, (), (), ())
    assert record.total("time/step") == 0


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no run folder"):
        read_run(tmp_path / "nowhere")


def test_after_a_resume_the_later_line_of_a_step_counts(tmp_path: Path) -> None:
    steps = [{"step": step, "reward/mean": value} for step, value in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25))]
    write_lines(tmp_path / "metrics.jsonl", steps)
    write_lines(tmp_path / "eval.jsonl", [{"step": 2, "data": "a", "avg": value} for value in (0.5, 0.6)])
    record = read_run(tmp_path)
    assert [point.y for point in record.values("reward/mean")] == [0.1, 0.25, 0.3]
    assert record.accuracy("a") == (Point(x=2, y=0.6),)


def test_a_null_or_missing_number_is_a_gap(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [{"step": 1, "a": None}, {"step": 2}, {"step": 3, "a": 1}, {"step": None}])
    record = read_run(tmp_path)
    assert record.values("a") == (Point(x=1, y=None), Point(x=2, y=None), Point(x=3, y=1.0))
    assert record.has("a") and not record.has("b")


def test_each_held_out_set_has_its_own_curve(tmp_path: Path) -> None:
    lines = [{"step": step, "data": data, "avg": step / 10} for step in (0, 5) for data in ("b", "a")]
    write_lines(tmp_path / "eval.jsonl", lines)
    record = read_run(tmp_path)
    assert record.data_names == ("b", "a")
    assert [point.y for point in record.accuracy("a")] == [0.0, 0.5]


def test_groups_are_read_as_far_as_a_file_goes(tmp_path: Path) -> None:
    path = write_groups(tmp_path, 1, [{"group": str(number), "filler": "x" * 99} for number in range(2000)])
    assert len(list(read_groups(path))) == 2000
    path.write_bytes(path.read_bytes()[:-200])
    assert 0 < len(list(read_groups(path))) < 2000
    path.write_bytes(b"no gzip")
    assert list(read_groups(path)) == []
    path.write_bytes(gzip.compress(b'{"group": "1"}\n{"gro'))
    assert list(read_groups(path)) == [{"group": "1"}]


def test_other_files_among_the_rollouts_are_left_alone(tmp_path: Path) -> None:
    write_groups(tmp_path, 12, [])
    (tmp_path / "rollouts" / "step-000001.jsonl.gz.tmp").touch()
    assert [step for step, _ in read_run(tmp_path).rollout_files] == [12]


def test_a_broken_config_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json is not JSON"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("value", "result"),
    [(1, 1.0), (0.5, 0.5), (True, None), ("1", None), (None, None), (float("nan"), None), (10**400, None)],
)
def test_a_number_is_finite_or_none(value: object, result: float | None) -> None:
    assert number(value) == result


def test_a_part_of_a_config_is_named_by_its_text_or_by_its_own_name() -> None:
    assert describe({"algorithm": "dapo"}, "algorithm") == "dapo"
    assert describe({"algorithm": {"type": "dapo"}}, "algorithm") == "dapo"
    assert describe({"model": {"kind": "folder", "path": "m"}}, "model") == "m"
    assert describe({"config": {"model": {"path": "m"}}}, "model") == "m"
    assert describe({"model": {"kind": 3}}, "model") == ""
    assert describe({}, "model") == ""
