"""The pure parts of the benchmarks: what becomes of numbers. Nothing is timed here."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from benchmarks import generation, steps
from benchmarks.__main__ import LONG, ROWS, chosen_rows, write
from benchmarks.environments import ENVIRONMENTS, constraints, pinned
from benchmarks.options import Options
from benchmarks.processes import FailedRunError
from benchmarks.product.floor import Pass, Sizes, decoding_passes, training_passes
from benchmarks.report import AIMS, LOWER_IS_BETTER, markdown
from benchmarks.rows import FIELDS, Measured, first_window, merge_rows, significant, steady, to_row
from benchmarks.shares import count_parameters, share_of_rest, stage_seconds
from benchmarks.tuning import choose
from benchmarks.workload import Workload, long_lengths, spread_lengths

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {
    "processor": "a processor",
    "threads": 2,
    "memory_gb": 24.0,
    "system": "Linux",
    "load": 0.0,
    "versions": {"torch": "2.13.0"},
}


def measured(name: str = "step_quickstart_vs_trl", **changes: object) -> Measured:
    given = {
        "name": name,
        "meaning": "a whole step",
        "peer_name": "a peer",
        "unit": "seconds a step",
        "product": [10.0, 12.0, 11.0],
        "peer": [55.0, 44.0, 66.0],
        "ratio": "peer/product",
        "notes": ["a note"],
    }
    return Measured(**(given | changes))  # type: ignore[arg-type]


def row(
    name: str = "step_quickstart_vs_trl", date: str = "2026-01-01 10:00 UTC", **changes: object
) -> dict[str, object]:
    return to_row(measured(name, **changes), machine=MACHINE, date=date)


def test_a_row_holds_medians_their_ratio_and_the_spread() -> None:
    made = row()
    assert {name: made[name] for name in FIELDS} == {
        "name": "step_quickstart_vs_trl",
        "product": 11.0,
        "peer": 55.0,
        "ratio": 5.0,
        "unit": "seconds a step",
        "runs": 3,
    }
    assert made["spread"] == {"product": [10.0, 12.0], "peer": [44.0, 66.0]}


def test_rates_are_divided_the_other_way() -> None:
    assert row(product=[600.0], peer=[150.0], ratio="product/peer")["ratio"] == 4.0


def test_a_ratio_of_pairs_stands_as_it_is() -> None:
    made = row(product=[600.0], peer=[1000.0], ratio=0.59, runs=5)
    assert (made["ratio"], made["runs"]) == (0.59, 5)


def test_numbers_have_four_digits() -> None:
    assert [significant(value) for value in (51.23456, 0.0123456, 123456.0, 0.0)] == [51.23, 0.01235, 123500.0, 0.0]


def test_newer_rows_replace_older_ones_and_keep_the_order() -> None:
    before = [{"name": "b", "ratio": 1.0}, {"name": "gone", "ratio": 9.0}, {"name": "a", "ratio": 2.0}]
    merged = merge_rows(before, [{"name": "a", "ratio": 3.0}], ["a", "b"])
    assert merged == [{"name": "a", "ratio": 3.0}, {"name": "b", "ratio": 1.0}, {"name": "gone", "ratio": 9.0}]


def test_steps_that_warm_up_do_not_count() -> None:
    assert steady([9.0, 2.0, 3.0], 1) == [2.0, 3.0]
    with pytest.raises(ValueError, match="1 steps leave nothing"):
        steady([9.0], 1)


def test_the_first_window_at_the_target() -> None:
    assert first_window([0.1, 0.5, 0.7, 0.9], window=2, target=0.6) == 3
    assert first_window([0.1, 0.5], window=5, target=0.0) is None
    assert first_window([0.1, 0.2], window=2, target=0.5) is None


def test_rows_are_chosen_by_name_in_their_own_order() -> None:
    assert chosen_rows(["memory_vs_state", "step_long_vs_trl"], long=False) == ["step_long_vs_trl", "memory_vs_state"]
    assert set(ROWS) - set(chosen_rows([], long=False)) == LONG
    assert chosen_rows([], long=True) == list(ROWS)
    with pytest.raises(ValueError, match="there is no row quick"):
        chosen_rows(["quick"], long=False)


def test_every_row_with_an_aim_can_be_measured() -> None:
    assert set(AIMS) <= set(ROWS)
    assert set(LOWER_IS_BETTER) <= set(ROWS)


def test_results_are_merged_into_the_files(tmp_path: Path) -> None:
    write(tmp_path, [row("memory_vs_state", ratio="product/peer")])
    write(tmp_path, [row()])
    found = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in found] == ["step_quickstart_vs_trl", "memory_vs_state"]
    assert all(set(FIELDS) <= set(one) for one in found)
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == markdown(found)


def test_the_page_shows_medians_spread_ratio_and_bars() -> None:
    page = markdown([row()])
    line = "| `step_quickstart_vs_trl` | 11 (10 to 12) | 55 (44 to 66) | seconds a step | **5** | 4 | 5 | 3 |"
    assert line in page.splitlines()
    assert "- a note" in page.splitlines()
    assert "a processor, 2 threads, 24 GB; Linux." in page


def test_the_page_names_a_row_from_another_machine() -> None:
    other = {**row("step_long_vs_trl"), "machine": {**MACHINE, "processor": "another"}}
    page = markdown([row(date="2026-02-01 10:00 UTC"), other])
    assert page.count("- measured elsewhere: processor another") == 1


def test_the_page_shows_each_stage_against_its_floor() -> None:
    details = {"stages": {"old_logprobs": 2.0, "rest": 0.5, "step": 10.0}, "floors": {"old_logprobs": 1.0, "rest": 0.1}}
    lines = markdown([row("overhead_share", details=details)]).splitlines()
    assert "| old logprobs | 2.00 | 20.0% | 1.00 | 50% |" in lines
    assert "| step | 10.00 | 100.0% |  |  |" in lines


def test_the_fastest_settings_that_ran_are_chosen() -> None:
    tried = [
        {"settings": {"micro": 32}, "seconds": 50.0, "error": None},
        {"settings": {"micro": 16}, "seconds": 40.0, "error": None},
        {"settings": {"micro": 8}, "seconds": None, "error": "no memory"},
        {"settings": {"micro": 32, "other": "does not learn"}, "seconds": 10.0, "error": None},
    ]
    best, lines = choose(tried)
    assert best == {"micro": 16}
    assert lines == [
        "tried micro 32: 50.0 s",
        "tried micro 16: 40.0 s (chosen)",
        "tried micro 8: did not run",
        "tried micro 32: 10.0 s (not chosen: does not learn)",
    ]
    with pytest.raises(FailedRunError, match="no memory"):
        choose(tried[2:])


def test_reply_lengths_are_the_same_every_time() -> None:
    flat = [length for group in spread_lengths(16, 8) for length in group]
    assert (len(flat), min(flat), max(flat), sum(flat)) == (128, 16, 256, 17408)
    assert spread_lengths(16, 8) == spread_lengths(16, 8)
    long = [length for group in long_lengths(2, 8) for length in group]
    assert (len(long), min(long), max(long)) == (16, 64, 384)
    assert 180 <= sum(long) / 16 <= 220


def test_decoding_passes_count_the_replies_that_still_run() -> None:
    passes = decoding_passes(45, 1, [1, 3, 2])
    assert passes == [Pass(rows=45, head_rows=1), Pass(rows=2, head_rows=2), Pass(rows=1, head_rows=1)]


def test_training_passes_keep_to_the_budget() -> None:
    assert training_passes(100, 900, 4096) == [Pass(rows=1000, head_rows=900)]
    assert training_passes(100, 900, 500) == [Pass(rows=500, head_rows=450)] * 2


def test_products_of_a_layer() -> None:
    sizes = Sizes(layers=30, hidden=576, query=576, key_value=192, inner=1536, vocabulary=49152)
    apart, fused = sizes.shapes(fused=False), sizes.shapes(fused=True)
    assert fused == [(960, 576), (576, 576), (3072, 576), (576, 1536)]
    assert sum(out * width for out, width in apart) == sum(out * width for out, width in fused)


def test_the_rest_of_a_step_is_what_no_watch_explains() -> None:
    step = {"time/step": 10.0, "time/sync": 0.25, "time/grade": 0.5, "watched": {"generate": 6.0, "backward": 3.0}}
    assert share_of_rest(step) == pytest.approx(0.1)
    assert stage_seconds([step]) == {
        "generate": 6.0,
        "backward": 3.0,
        "rest": 1.0,
        "of it: weights to the engine": 0.25,
        "of it: grading": 0.5,
        "step": 10.0,
    }


def test_parameters_are_counted_from_the_header(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"shape": [2, 3]}, "b": {"shape": [5]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert count_parameters(path) == 11


def test_both_sides_are_asked_for_the_same_work() -> None:
    problems = [{"id": "a", "messages": [], "answer": "1", "token_ids": [1]}]
    work = Workload(model="folder", problems=problems, lengths=[[3, 5]])
    trl = steps.trl_request(work, updates=1, steps=2, settings={"micro": 2})
    mine = steps.product_request(work, updates=1, steps=2)
    for name in ("problems", "lengths", "updates", "steps"):
        assert trl[name] == mine[name]
    assert (trl["groups"], trl["group_size"], trl["max_tokens"], trl["micro"]) == (1, 2, 5, 2)
    assert generation._peer_request(work, {"batch": 2})["lengths"] == work.lengths


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_peers_are_pinned_without_addresses(name: str) -> None:
    lines = constraints(name).read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.!]+", line) for line in lines)
    assert pinned(name, "torch") == "2.13.0"


def test_peers_use_the_transformers_of_the_product() -> None:
    own = re.search(r"^transformers==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert own is not None
    assert pinned("trl", "transformers") == pinned("vllm", "transformers") == own[1]


def test_peers_import_nothing_of_the_product() -> None:
    for script in (ROOT / "benchmarks/peers").glob("*.py"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) (dapo|benchmarks)\b", text, re.MULTILINE), script


def test_quick_runs_are_kept_apart() -> None:
    assert (Options().suffix, Options(quick=True).suffix) == ("", "-quick")
