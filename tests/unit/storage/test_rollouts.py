from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dapo.algorithms.config import DAPOConfig
from dapo.batching import pack
from dapo.storage.rollouts import rollout_lines, suspect_lines, write_rollouts
from dapo.types import (
    Collected,
    Finish,
    JudgedGroup,
    LabelledBatch,
    Reason,
    Rollout,
    Score,
    ScoredGroup,
    ScoredRollout,
)
from tests.fakes import problem, render, scored, scored_group

FILTERED = DAPOConfig.model_validate({"overlong_filtering": True}).build(8)


def collected_of(*groups: tuple[Reason, ScoredGroup]) -> Collected:
    judged = [
        JudgedGroup(name=f"4-{place:04d}", group=group, reason=reason) for place, (reason, group) in enumerate(groups)
    ]
    return Collected(groups=tuple(judged), stats={})


def labelled_of(collected: Collected) -> LabelledBatch:
    return FILTERED.label(pack(collected.kept), {})


def test_a_line_is_a_group_with_everything_that_was_known_of_it() -> None:
    right = ScoredRollout(
        rollout=Rollout(
            token_ids=(7, 8),
            mask=(True, True),
            logprobs=(-0.12345678, -2.0),
            text="It is 60",
            finish=Finish.STOP,
            policy_version=12,
        ),
        score=Score(correct=True, reward=1.0, extracted="60"),
        parts={"correctness": 1.0, "overlong": 0.0},
    )
    wrong = ScoredRollout(
        rollout=Rollout(
            token_ids=(9,), mask=(True,), logprobs=(-1.0,), text="", finish=Finish.LENGTH, policy_version=13
        ),
        score=Score(correct=False, reward=-1.0, error="the scorer timed out"),
        parts={"correctness": -1.0, "overlong": -0.5},
    )
    collected = collected_of(
        (Reason.KEPT, ScoredGroup(prompt=render(problem("q", "15 * 4?")), rollouts=(right, wrong)))
    )
    (line,) = rollout_lines(12, collected, labelled_of(collected))
    advantage = line["replies"][0].pop("advantage")
    assert advantage == pytest.approx(2.5 / 2 / (3.125**0.5 + 1e-6), abs=1e-6)
    assert line == {
        "step": 12,
        "group": "4-0000",
        "prompt_id": "q",
        "prompt": "15 * 4?",
        "gold": "yes",
        "policy_version": 12,
        "kept": True,
        "reason": "kept",
        "replies": [
            {
                "text": "It is 60",
                "token_ids": [7, 8],
                "logprobs": [-0.123457, -2.0],
                "finish": "stop",
                "correct": True,
                "extracted": "60",
                "reward": {"correctness": 1.0, "overlong": 0.0},
                "total": 1.0,
                "trained": True,
            },
            {
                "text": "",
                "token_ids": [9],
                "logprobs": [-1.0],
                "finish": "length",
                "correct": False,
                "extracted": None,
                "reward": {"correctness": -1.0, "overlong": -0.5},
                "total": -1.5,
                "advantage": None,
                "trained": False,
                "error": "the scorer timed out",
            },
        ],
    }


def test_advantages_stand_at_the_replies_that_they_are_of() -> None:
    """Groups that were dropped stand between those that were kept, and groups differ in size."""
    collected = collected_of(
        (Reason.ALL_RIGHT, scored_group(scored(1), scored(1), name="p0")),
        (Reason.KEPT, scored_group(scored(1), scored(-1), scored(-1), scored(-1), name="p1")),
        (Reason.ERROR, scored_group(name="p2")),
        (Reason.ALL_WRONG, scored_group(scored(-1), scored(-1), name="p3")),
        (Reason.KEPT, scored_group(scored(-1), scored(1), name="p4")),
        (Reason.SURPLUS, scored_group(scored(1), scored(-1), name="p5")),
    )
    lines = rollout_lines(4, collected, labelled_of(collected))
    assert [line["prompt_id"] for line in lines] == [f"p{number}" for number in range(6)]
    assert [line["reason"] for line in lines] == ["all_right", "kept", "error", "all_wrong", "kept", "surplus"]
    assert [line["kept"] for line in lines] == [False, True, False, False, True, False]
    found = [[reply["advantage"] for reply in line["replies"]] for line in lines]
    half = 2**-0.5
    assert found[1] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert found[4] == pytest.approx([-half, half], abs=1e-5)
    assert found[0] == found[3] == found[5] == [None, None] and found[2] == []
    trained = [reply["trained"] for line in lines for reply in line["replies"]]
    assert trained == [False] * 2 + [True] * 4 + [False] * 2 + [True] * 2 + [False] * 2
    assert lines[2]["policy_version"] is None


def test_an_advantage_of_zero_is_trained_and_not_null() -> None:
    group = scored_group(scored(1), scored(1))
    labelled = LabelledBatch(
        batch=pack([group]),
        trained_BT=torch.ones(2, 1, dtype=torch.bool),
        columns={"advantages": torch.zeros(2, 1)},
    )
    (line,) = rollout_lines(1, collected_of((Reason.KEPT, group)), labelled)
    assert [(reply["advantage"], reply["trained"]) for reply in line["replies"]] == [(0.0, True)] * 2


def test_a_step_that_was_not_trained_on_has_no_advantages() -> None:
    collected = collected_of((Reason.ALL_WRONG, scored_group(scored(-1), scored(-1))))
    (line,) = rollout_lines(1, collected, None)
    assert [reply["advantage"] for reply in line["replies"]] == [None, None]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def test_a_file_is_compressed_json_lines_and_the_same_bytes_for_the_same_groups(tmp_path: Path) -> None:
    lines = [{"step": 1, "text": "\ud800 ½"}, {"step": 1, "text": "a\nb"}]
    for name in ("a.gz", "b.gz"):
        write_rollouts(tmp_path / "rollouts" / name, lines)
    assert read(tmp_path / "rollouts" / "a.gz") == lines
    assert (tmp_path / "rollouts" / "a.gz").read_bytes() == (tmp_path / "rollouts" / "b.gz").read_bytes()


def test_a_log_probability_without_a_number_does_not_break_the_file(tmp_path: Path) -> None:
    reply = scored(1)
    odd = Rollout(
        token_ids=(1,), mask=(True,), logprobs=(float("-inf"),), text="x", finish=Finish.STOP, policy_version=0
    )
    group = scored_group(ScoredRollout(rollout=odd, score=reply.score, parts=reply.parts))
    write_rollouts(tmp_path / "a.gz", rollout_lines(1, collected_of((Reason.ALL_RIGHT, group)), None))
    assert read(tmp_path / "a.gz")[0]["replies"][0]["logprobs"] == [None]


def test_a_group_is_kept_if_it_is_trained_on_whatever_its_reason() -> None:
    """Carried groups come first in the batch, and every advantage stands beside its own reply."""
    groups = [
        (Reason.STALE, scored_group(scored(1.0), scored(-1.0), name="old")),
        (Reason.CARRIED, scored_group(scored(1.0), scored(-1.0), name="carried")),
        (Reason.SURPLUS, scored_group(scored(1.0), scored(-1.0), name="surplus")),
        (Reason.TOP_UP, scored_group(scored(-1.0), scored(-1.0), name="top")),
        (Reason.KEPT, scored_group(scored(-1.0), scored(1.0), name="kept")),
    ]
    collected = collected_of(*groups)
    lines = rollout_lines(4, collected, labelled_of(collected))
    assert [(line["reason"], line["kept"]) for line in lines] == [
        ("stale", False),
        ("carried", True),
        ("surplus", False),
        ("top_up", True),
        ("kept", True),
    ]
    up, down = pytest.approx(2**-0.5, abs=1e-5), pytest.approx(-(2**-0.5), abs=1e-5)
    found = [[reply["advantage"] for reply in line["replies"]] for line in lines]
    assert found == [[None, None], [up, down], [None, None], [0.0, 0.0], [down, up]]
    assert [line["kept"] for line in rollout_lines(4, collected, None)] == [False] * 5


def test_a_suspect_row_is_named_by_its_group_and_its_place_in_it() -> None:
    collected = collected_of(
        (Reason.CARRIED, scored_group(scored(1.0, version=3), scored(-1.0, version=3), name="a")),
        (Reason.ALL_WRONG, scored_group(scored(-1.0), scored(-1.0), name="b")),
        (Reason.KEPT, scored_group(scored(-1.0), scored(1.0, length=2), name="c")),
    )
    lines = suspect_lines(4, collected, labelled_of(collected), [0, 3])
    places = [(line["group"], line["reply"], line["prompt_id"], line["policy_version"]) for line in lines]
    assert places == [("4-0000", 0, "a", 3), ("4-0002", 1, "c", 0)]
    assert lines[1]["token_ids"] == [1, 2] and lines[1]["advantage"] == pytest.approx(2**-0.5, abs=1e-5)
    assert lines[1]["step"] == 4 and lines[1]["total"] == 1.0
