"""Hub data sets through `datasets` itself, offline, from folders that are laid out like them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapo.data.config import SourceConfig
from dapo.data.problems import open_problems
from dapo.errors import DataError
from tests.unit.data.helpers import dapo_row, plain_set

CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: data/test-*
- config_name: small
  data_files: data/test-*
---
"""


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "made-up"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for number, (first, second) in enumerate([(1, 2), (3, 4)]):
        rows = [dapo_row(f"What is {n} + 0?", str(n), n) for n in (first, second)]
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"train-0000{number}-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist([dapo_row("What is 9 + 0?", "9", 9)]), folder / "data" / "test-0.parquet")
    return folder


def source(folder: Path, **settings: str) -> SourceConfig:
    return SourceConfig.model_validate(
        {"path": str(folder), "reader": "hub", "cache_folder": folder.parent / "cache", **settings}
    )


def test_the_training_split_is_all_its_files(hub_folder: Path) -> None:
    problems = open_problems(source(hub_folder))
    assert problems.loaded.layout == "dapo_math_17k"
    assert [(problem.id, problem.answer) for problem in problems] == [("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")]


def test_a_split_or_a_subset_is_chosen_by_name(hub_folder: Path) -> None:
    assert [problem.answer for problem in open_problems(source(hub_folder, split="test"))] == ["9"]
    assert [problem.answer for problem in open_problems(source(hub_folder, subset="small"))] == ["9"]


def test_a_split_or_subset_that_is_not_there_is_named(hub_folder: Path) -> None:
    with pytest.raises(DataError, match="no split 'dev'; it has train, test"):
        open_problems(source(hub_folder, split="dev"))
    with pytest.raises(DataError, match=r"(?s)subset large.*default.*small"):
        open_problems(source(hub_folder, subset="large"))


def test_integers_of_json_on_the_hub_keep_their_digits(tmp_path: Path) -> None:
    """Read by `datasets` itself, this column becomes floats: 105263157894736848 and 2e22."""
    folder = tmp_path / "ints"
    folder.mkdir()
    plain_set(folder / "train.jsonl", [("a?", 105263157894736842), ("b?", 19999999999999999999999)])
    assert [problem.answer for problem in open_problems(source(folder))] == [
        "105263157894736842",
        "19999999999999999999999",
    ]


def test_other_formats_are_read_by_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "train.csv").write_text("problem,answer\nWhat is 6 * 7?,42\nWhat is 6 * 8?,48\n")
    problems = open_problems(source(folder))
    assert [(problem.messages[0].content, problem.answer) for problem in problems] == [
        ("What is 6 * 7?", "42"),
        ("What is 6 * 8?", "48"),
    ]


def test_a_set_that_cannot_be_had_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"'nobody/nothing'.*cannot be had.*download its files"):
        open_problems(SourceConfig(path="nobody/nothing", cache_folder=tmp_path))
