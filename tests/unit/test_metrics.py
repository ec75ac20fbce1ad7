from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dapo.metrics import EVALUATION_FIELDS, METRICS, PREFIXES, markdown

DOCS = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

NAMES = """
reward/mean reward/std reward/accuracy_all reward/accuracy_kept reward/mean_kept reward/disagreement reward/errors
length/mean length/mean_kept length/max length/truncated
policy/entropy policy/prob_mean policy/ratio_mean policy/ratio_max policy/clip_low policy/clip_high policy/clip_dual
policy/kl policy/chosen advantage/mean_abs
sampling/groups_generated sampling/groups_carried_in sampling/groups_kept sampling/groups_top_up sampling/groups_all_right
sampling/groups_all_wrong sampling/groups_surplus sampling/groups_carried_out sampling/groups_stale sampling/groups_error
sampling/rounds sampling/replies_generated sampling/tokens_generated sampling/tokens_kept sampling/tokens_wasted
sampling/tokens_carried_in sampling/tokens_carried_out sampling/prompts_dropped sampling/prompts_drawn sampling/epoch
prompts/remembered prompts/retired prompts/fresh prompts/mean_mixed_chance
tokens/trained
optim/loss optim/grad_norm optim/lr optim/skipped optim/updates
time/step time/generate time/grade time/grade_all time/train time/sync time/save time/save_share time/save_background
memory/peak_gb
mismatch/kl mismatch/max_ratio value/loss value/clip value/explained_variance value/grad_norm
"""


def test_the_catalogue_has_exactly_the_fixed_names() -> None:
    assert list(METRICS) == NAMES.split()


def test_every_metric_has_a_prefix_that_is_explained_and_no_prefix_is_idle() -> None:
    assert {metric.prefix for metric in METRICS.values()} == set(PREFIXES)


def test_every_text_is_one_line_and_fits_a_table() -> None:
    for metric in METRICS.values():
        for text in (metric.meaning, metric.healthy, metric.unit):
            assert text.strip() == text and text, metric.name
            assert not set("|\n") & set(text), metric.name
            assert "  " not in text, metric.name


def test_a_metric_that_a_text_refers_to_exists() -> None:
    for metric in METRICS.values():
        quoted = f"{metric.meaning} {metric.healthy}".split("`")[1::2]
        assert all(name in METRICS for name in quoted if "/" in name), metric.name


def test_the_documentation_is_what_the_catalogue_prints() -> None:
    assert DOCS.read_text(encoding="utf-8") == markdown(), "run: python -m dapo.metrics > docs/metrics.md"


def test_the_module_prints_the_documentation_without_torch() -> None:
    code = "import runpy, sys; runpy.run_module('dapo.metrics', run_name='__main__'); assert 'torch' not in sys.modules"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, encoding="utf-8")
    assert printed.stdout == markdown()


def test_the_fields_of_an_evaluation_are_documented() -> None:
    expected = (
        "step data problems samples avg ci_low ci_high samples_low samples_high pass_at maj truncated length_mean "
        "errors"
    )
    assert list(EVALUATION_FIELDS) == [*expected.split(), "temperature", "top_p", "seconds"]
    assert all(f"| `{name}` |" in DOCS.read_text(encoding="utf-8") for name in EVALUATION_FIELDS)
