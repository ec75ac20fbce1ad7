from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from dapo.errors import RequestError
from dapo.reporting.html import compare_picture, curve_picture

from .run_folder import evaluation, make_run, write_lines

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg.encode()).iter(f"{SVG}text")]


def test_the_curve_of_a_run_has_held_out_and_training_accuracy(tmp_path: Path) -> None:
    svg = curve_picture(make_run(tmp_path / "quick"))
    shown = texts(svg)
    assert "Accuracy of quick" in shown
    assert "held out: arithmetic 51.4%" in shown
    assert "training, before the filter 55.8%" in shown
    assert 'fill="#ffffff"' in svg and "var(" not in svg
    assert svg.count('opacity="0.65"') == 4  # one error bar an evaluation


def test_the_curve_of_an_empty_run_says_so(tmp_path: Path) -> None:
    assert "no data yet" in texts(curve_picture(tmp_path))


def test_runs_are_compared_under_their_labels_in_two_panels(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", steps=10), make_run(tmp_path / "b", steps=15)]
    shown = texts(compare_picture(runs, ["GRPO", "DAPO"]))
    assert "Held-out accuracy on arithmetic" in shown and "Training accuracy" in shown
    assert [text for text in shown if text.startswith(("GRPO", "DAPO"))] == [
        "GRPO 37.4%", "DAPO 51.4%", "GRPO 42.5%", "DAPO 55.8%",
    ]  # fmt: skip


def test_a_panel_without_data_is_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "a" / "eval.jsonl", [evaluation(0)])
    (tmp_path / "b").mkdir()
    shown = texts(compare_picture([tmp_path / "a", tmp_path / "b"], ["A", "B"]))
    assert "Held-out accuracy on arithmetic" in shown and "Training accuracy" not in shown
    only = texts(compare_picture([tmp_path / "b"], ["B"]))
    assert "Training accuracy" in only and "no data yet" in only


@pytest.mark.parametrize(("folders", "labels"), [([], []), (["a"], []), (["a"], ["A", "B"])])
def test_every_folder_needs_a_label(tmp_path: Path, folders: list[str], labels: list[str]) -> None:
    with pytest.raises(RequestError, match="give at least one folder and a label for each"):
        compare_picture([tmp_path / name for name in folders], labels)
