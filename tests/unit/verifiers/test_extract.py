"""What counts as the last stated answer."""

from __future__ import annotations

import time

import pytest

from dapo.verifiers.boxes import read_box
from dapo.verifiers.extract import Missing, Stated, find_answer
from dapo.verifiers.text import MAX_SEARCHED, to_plain, without_end_markers, without_reasoning


def stated(response: str, **options: bool) -> str | None:
    found = find_answer(response, **options)
    return found.text if isinstance(found, Stated) else None


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("Answer: 5", "5"),
        ("Answer: 4\nAnswer: 5", "5"),
        ("Answer: 5\n\nCheck: 2 + 3 = 5, and 9 is larger.", "5"),
        ("\\boxed{4} then \\boxed{5}", "5"),
        ("\\boxed{x = \\boxed{5}}", "x = \\boxed{5}"),
        ("\\boxed{4}, \\boxed{5}", "4, 5"),
        ("\\boxed{4} or \\boxed{5}", "4 \\text{ or } 5"),
        ("$-\\boxed{5}$", "-5"),
        ("- \\boxed{5}", "5"),
        ("3 - \\boxed{5}", "5"),
        ("#### 4\n#### 5", "5"),
        ("#### 2. Next\nstep\n\\boxed{5}", "5"),
        ("<answer> 5 </answer>", "5"),
        ("<answer>\\boxed{5}</answer>", "5"),
        ("The answer is not 4 but 5", "5"),
        ("### Final Answer\n\n5", "5"),
        ("Answer:\n$$\n5\n$$", "$$\n5\n$$"),
        ("Answer: $Answer\nAnswer: 5", "5"),
        ("\\boxed{5}\nAnswer: $Answer", "5"),
        ("\\boxed{5}\nAnswer: see above", "5"),
        ('Write it after "Answer:".\nSo it is 5', "So it is 5"),
        ("We check our answer: $2+3=5$ and $3+2=5$, so all is well and good.\n\\boxed{5}", "5"),
        ("\\boxed{5} We check our answer: $2+3=5$, so our sum is right as it stands here.", "5"),
    ],
)
def test_the_last_stated_answer_is_found(response: str, text: str) -> None:
    assert stated(response) == text


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ("", "the response is empty"),
        ("\\boxed{5} \\boxed{", "the last box is cut off"),
        ("\\boxed{5} \\boxed{}", "the last box is empty"),
        ("\\boxed{5}\nAnswer:", "the last answer line is empty"),
        ("\\boxed{5}\n####", "the last answer line is empty"),
        ("<answer></answer>", "the last answer tag is empty"),
        ("Could it be 5?", "the response ends on a question"),
        ("\\boxed{5} or maybe 6", "the last box is one of several offered answers"),
    ],
)
def test_no_answer_is_found_where_none_is_stated(response: str, why: str) -> None:
    assert find_answer(response) == Missing(why=why)


def test_a_truncated_response_needs_a_marker() -> None:
    assert stated("so we get 5") == "so we get 5"
    assert find_answer("so we get 5", truncated=True) == Missing(
        why="the response was cut off before it stated an answer"
    )
    assert stated("so \\boxed{5}. Now let us check", truncated=True) == "5"
    assert stated("<answer>5", truncated=True) is None
    assert stated("<answer>5") == "5"


def test_words_state_an_answer_only_where_the_gold_is_in_words() -> None:
    assert stated("The answer is Tom.", in_words=True) == "Tom."
    found = find_answer("The answer is Tom.")
    assert isinstance(found, Stated)
    assert found.kind == "free"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<think>b</think>c", "a\nc"),
        ("b</think>c", "c"),
        ("a<think>b", "a"),
        ("<think>a<think>b</think>c</think>d", "\nd"),
        ("no tags < here", "no tags < here"),
    ],
)
def test_reasoning_is_dropped(text: str, left: str) -> None:
    assert without_reasoning(text) == left


def test_text_behind_an_end_marker_is_dropped() -> None:
    assert without_end_markers("5<|im_end|>\n<|im_start|>user\n6") == "5"
    assert without_end_markers("<|im_end|>5") == "<|im_end|>5"
    assert without_end_markers("a <b c") == "a <b c"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("４２", "42"),
        ("−3", "-3"),
        ("4²", "4^{2}"),
        ("½", "\\frac{1}{2}"),
        ("𝟒𝟐", "42"),
        ("4\u200b2", "42"),
        ("①", "①"),
        ("45°", "45^\\circ "),
        ("42\x00", "42"),
        ("個", "個"),
    ],
)
def test_signs_of_other_scripts_are_written_in_ascii(text: str, plain: str) -> None:
    assert to_plain(text) == plain


def test_a_box_without_braces_holds_the_next_number() -> None:
    box = read_box("\\boxed 42 more", 0, 6)
    assert box is not None
    assert (box.content.strip(), box.closed) == ("42", True)
    assert read_box("\\boxed for you", 0, 6) is None


HOSTILE = ["Answer: x\n", "\\boxed{", "####", "<think>", "answer is ", "Answer: $Answer\n", "$", "<", "(", "}", "a\n"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_extraction_takes_linear_time(piece: str) -> None:
    text = piece * (MAX_SEARCHED // (4 * len(piece)))
    started = time.process_time()
    find_answer(text)
    assert time.process_time() - started < 3
