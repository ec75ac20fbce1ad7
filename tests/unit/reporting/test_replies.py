from __future__ import annotations

from pathlib import Path

import pytest

from dapo.reporting.record import read_run
from dapo.reporting.replies import choose_group, choose_replies, group_html, shown_groups

from .run_folder import group, make_run, reply, write_groups

RIGHT = reply("60", correct=True, extracted="60")
WRONG = reply("45", correct=False, extracted="45")


def test_the_first_middle_and_last_step_are_shown(tmp_path: Path) -> None:
    shown = shown_groups(read_run(make_run(tmp_path / "run")))
    assert [(step, group["group"]) for step, group in shown] == [(1, "1-0001"), (8, "8-0001"), (15, "15-0001")]


@pytest.mark.parametrize(("steps", "shown"), [([], []), ([4], [4]), ([4, 5], [4, 5]), ([1, 2, 3, 4], [1, 2, 4])])
def test_few_steps_are_shown_once_each(tmp_path: Path, steps: list[int], shown: list[int]) -> None:
    for step in steps:
        write_groups(tmp_path, step, [group(step, 0, [RIGHT, WRONG])])
    assert [step for step, _ in shown_groups(read_run(tmp_path))] == shown


def test_a_step_without_groups_is_left_out(tmp_path: Path) -> None:
    write_groups(tmp_path, 1, [])
    assert shown_groups(read_run(tmp_path)) == []


def test_a_group_with_right_and_wrong_replies_is_preferred() -> None:
    dropped = group(1, 0, [RIGHT, WRONG], reason="surplus")
    alike = group(1, 1, [RIGHT, RIGHT])
    mixed = group(1, 2, [RIGHT, WRONG])
    assert choose_group([dropped, alike, mixed]) is mixed
    assert choose_group([dropped, alike]) is alike
    assert choose_group([dropped]) is dropped
    assert choose_group([]) is None


def test_no_more_groups_are_read_than_needed() -> None:
    groups = iter([group(1, 0, [RIGHT, WRONG]), group(1, 1, [])])
    choose_group(groups)
    assert next(groups)["group"] == "1-0001"


@pytest.mark.parametrize(
    ("pattern", "most", "chosen"),
    [("rrrrww", 4, "rrww"), ("wwwwwr", 4, "wwwr"), ("rrrr", 2, "rr"), ("wr", 8, "wr"), ("wrwrwr", 3, "wrw")],
)
def test_right_and_wrong_replies_are_shown_evenly_in_their_order(pattern: str, most: int, chosen: str) -> None:
    replies = [{"correct": letter == "r"} for letter in pattern]
    assert "".join("r" if shown["correct"] else "w" for shown in choose_replies(replies, most)) == chosen


def test_a_reply_is_shown_with_all_that_is_known_of_it() -> None:
    html = group_html(12, group(12, 7, [RIGHT, reply("so\nlong", correct=False, finish="length")]), 8)
    assert "<h3>Step 12</h3>" in html
    assert "Trained on. 1 of 2 replies right." in html
    assert "Right answer</span> <code>60</code>" in html
    assert '<span class="verdict">✓ right</span><span>answer read <b>60</b></span>' in html
    assert "<span>reward <b>+1.00</b></span><span>advantage <b>+0.83</b></span><span>finish <b>stop</b></span>" in html
    assert "<span>answer read <b>none</b></span>" in html
    assert "reward <b>-1.25 (correctness -1.00, overlong -0.25)</b>" in html
    assert "<pre>\nso\nlong</pre>" in html


def test_a_group_that_was_not_trained_on_says_why() -> None:
    dropped = {**WRONG, "advantage": None, "trained": False}
    html = group_html(1, group(1, 0, [dropped, dropped], reason="all_wrong"), 1)
    assert (
        "Not trained on: every reply was wrong, so there was nothing to compare. 0 of 2 replies right; 1 shown." in html
    )
    assert "advantage <b>none</b>" in html


def test_nothing_that_a_model_wrote_can_become_markup() -> None:
    evil = "</pre><script>alert(1)</script>\x00\x1b\ud800\u202e"
    hostile = {**reply(evil, correct=True, extracted=evil, finish=evil), "reward": {evil: 1.0, "b": 2.0}}
    html = group_html(1, {**group(1, 0, [hostile]), "prompt": evil, "gold": evil, "group": evil, "reason": evil}, 8)
    assert "<script" not in html
    assert html.count("</pre>") == 2
    assert html.count("&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;␀␛⟨U+D800⟩⟨U+202E⟩") == 8
    html.encode("utf-8")


def test_a_long_text_is_cut_and_its_length_is_stated() -> None:
    html = group_html(1, group(1, 0, [reply("a" * 50_000, correct=True)]), 8)
    assert "[… 46,000 of 50,000 characters left out …]" in html
    assert len(html) < 6000


def test_a_group_with_missing_parts_is_still_shown() -> None:
    html = group_html(1, {"replies": [{}, {"token_ids": 3, "reward": 5, "total": "x"}, "text"]}, 8)
    assert "Not trained on: unknown. 0 of 2 replies right." in html
    assert group_html(1, {}, 8).endswith('<ol class="replies"></ol></article>')
