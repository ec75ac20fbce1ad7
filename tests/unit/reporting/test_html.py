from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dapo.errors import DataError
from dapo.reporting.html import report_html, write_report
from dapo.reporting.record import read_run

from .run_folder import evaluation, group, make_run, reply, step_metrics, write_groups, write_lines

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Collects what a browser would see: elements, addresses, chart titles and text; checks that elements nest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.charts: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "svg":
            self.charts.append((dict(attrs).get("aria-label") or "").partition(":")[0])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


def outline(html: str) -> Outline:
    seen = Outline()
    seen.feed(html)
    seen.close()
    assert seen.open == []
    return seen


FIGURES = [
    "Held-out accuracy", "Training accuracy", "Reward", "Response length", "Truncated replies", "Entropy",
    "Mean probability", "Clipped tokens", "Gradient norm", "Groups generated", "Time by stage",
]  # fmt: skip


def test_a_report_is_one_file_that_needs_nothing_else(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    path = write_report(folder)
    assert path == folder / "report.html"
    html = path.read_text(encoding="utf-8")
    seen = outline(html)
    assert seen.addresses == ["data:,"]
    assert not seen.tags & {"script", "img", "iframe", "object", "form", "base"}
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "") and "https://" not in html
    assert "url(" not in html and "@import" not in html
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in html
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "config.json", "eval.jsonl", "metrics.jsonl", "report.html", "rollouts",
    ]  # fmt: skip


def test_the_headline_says_what_was_reached_and_what_it_took(tmp_path: Path) -> None:
    text = outline(report_html(read_run(make_run(tmp_path / "first-try")))).text
    for part in (
        "first-try", "Algorithm dapo", "Model SmolLM2-135M-Instruct", "Held-out accuracy on arithmetic",
        "9.4% → 51.4%", "95% interval: 5.4 to 13.9% before, 47.4 to 55.9% after", "Steps15", "30 optimizer updates",
        "Time of training11 minand 50 s of evaluation", "29,100", "34% of them trained on", "33%",
        "120 of 360 generated",
    ):  # fmt: skip
        assert part in text, part


def test_the_figures_of_the_paper_are_drawn(tmp_path: Path) -> None:
    charts = outline(report_html(read_run(make_run(tmp_path / "run")))).charts
    assert [title for title in charts if title in FIGURES] == FIGURES
    assert set(charts) - set(FIGURES) == {"Engine against trainer", "Memory"}


def test_figures_that_only_some_runs_have_come_with_their_numbers(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [{"step": 1, "value/explained_variance": 0.3, "policy/kl": 0.01}])
    charts = outline(report_html(read_run(tmp_path))).charts
    assert set(charts) - set(FIGURES) == {"Explained variance of the critic", "Divergence from the reference"}


def test_an_empty_folder_has_a_report(tmp_path: Path) -> None:
    seen = outline(write_report(tmp_path).read_text(encoding="utf-8"))
    assert seen.charts == FIGURES
    assert seen.text.count("no data yet") == len(FIGURES) + 1
    assert "No replies yet." in seen.text


def test_a_half_written_last_line_does_not_count(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=4)
    for name in ("metrics.jsonl", "eval.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"step": 9, "rew')
    last = folder / "rollouts" / "step-000004.jsonl.gz"
    last.write_bytes(last.read_bytes()[:40])
    assert "Steps4" in outline(report_html(read_run(folder))).text


def test_a_file_broken_in_the_middle_is_an_error_and_leaves_the_last_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=2)
    before = write_report(folder).read_bytes()
    (folder / "metrics.jsonl").write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(DataError, match="line 1 of"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before


def test_one_evaluation_has_no_before(tmp_path: Path) -> None:
    write_lines(tmp_path / "eval.jsonl", [evaluation(0)])
    text = outline(report_html(read_run(tmp_path))).text
    assert "Held-out accuracy on arithmetic9.4%95% interval: 5.4 to 13.9%" in text
    assert "→" not in text


def test_without_evaluation_the_training_accuracy_leads(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [{"step": step, "reward/accuracy_all": step / 10} for step in (1, 2, 5)])
    text = outline(report_html(read_run(tmp_path))).text
    assert "Training accuracy, before the filter10.0% → 50.0%steps 1 to 5" in text


def test_the_evaluations_are_listed(tmp_path: Path) -> None:
    write_lines(tmp_path / "eval.jsonl", [{**evaluation(5), "pass_at": {"1": 0.2, "8": 0.5, "16": 0.75}}])
    html = report_html(read_run(tmp_path))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert cells == ["5", "arithmetic", "23.4%", "19.4 to 27.9%", "75.0% at 16", "26.4%", "1.0%", "10.4", "100", "4"]


def test_all_numbers_of_the_last_step_and_the_settings_are_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=2)
    write_lines(folder / "metrics.jsonl", [{**step_metrics(2), "own/number": 7, "optim/lr": None}])
    html = report_html(read_run(folder))
    assert "All numbers of step 2" in html
    assert '<code>own/number</code></td><td class="number">7</td><td></td>' in html
    assert '<code>optim/lr</code></td><td class="number">none</td><td>Learning rate of' in html
    assert "&quot;clip_high&quot;: 0.28" in html


def test_replies_are_shown_as_many_as_asked_for(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path / "run"))
    assert report_html(record, replies=2).count('<li class="reply') == 6
    assert report_html(record).count('<li class="reply') == 24
    assert "Replies from" not in report_html(record, replies=0)


def test_nothing_from_a_run_folder_can_become_markup(tmp_path: Path) -> None:
    evil = "</pre></title></style><script>alert(1)</script><img src=x onerror=alert(1)>\x00\ud800"
    folder = tmp_path / "<script>run"
    config = {"algorithm": evil, "model": {"path": evil}, "secret": evil}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_lines(folder / "metrics.jsonl", [{"step": 1, evil: 3}])
    write_lines(folder / "eval.jsonl", [{**evaluation(0), "data": evil, "pass_at": {evil: 1}, "maj": evil}])
    write_groups(folder, 1, [group(1, 0, [reply(evil, correct=True), reply("no", correct=False)])])
    path = write_report(folder)
    seen = outline(path.read_text(encoding="utf-8"))
    assert not seen.tags & {"script", "img"}
    assert seen.text.count("<script>alert(1)</script>") >= 6


def test_the_same_folder_gives_the_same_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    assert write_report(folder).read_bytes() == write_report(folder).read_bytes()
