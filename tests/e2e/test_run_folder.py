"""What a run leaves behind is what the documentation says, and can be read without this program."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.metrics import EVALUATION_FIELDS, METRICS
from tests.e2e.conftest import Trained
from tests.e2e.workshop import STEPS
from tests.tiny import ASSISTANT, BEGIN, END, TURN, USER

GROUP_KEYS = ["step", "group", "prompt_id", "prompt", "gold", "policy_version", "kept", "reason", "replies"]
REPLY_KEYS = [
    "text",
    "token_ids",
    "logprobs",
    "finish",
    "correct",
    "extracted",
    "reward",
    "total",
    "advantage",
    "trained",
]
REASONS = {"kept", "all_right", "all_wrong", "surplus", "carried", "stale", "error"}
OF_OTHER_CHOICES = {"policy/kl", "policy/clip_dual", "policy/chosen", "reward/disagreement"} | {
    name for name in METRICS if name.startswith(("value/", "prompts/"))
}


def test_the_folder_holds_what_it_should_and_nothing_else(learned: Trained) -> None:
    folder = learned.files.folder

    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints",
        "config.json",
        "eval.jsonl",
        "evaluations",
        "metrics.jsonl",
        "report.html",
        "rollouts",
    ]
    assert learned.files.checkpoints == ["step-000010", f"step-{STEPS:06d}"]
    assert sorted(path.name for path in (folder / "rollouts").iterdir()) == [
        f"step-{step:06d}.jsonl.gz" for step in range(1, STEPS + 1)
    ]


def test_the_config_is_resolved_and_names_versions(learned: Trained) -> None:
    config = learned.files.config

    assert config["batch"]["temperature"] == 1.0  # a default that the recipe does not name
    assert config["trainer"]["learning_rate"] == 3e-3
    assert config["algorithm"]["clip_high"] == 0.28
    assert {"python", "dapo-rl", "torch", "transformers"} <= config["versions"].keys()


def test_every_metric_of_a_run_is_in_the_catalogue_and_the_other_way_round(learned: Trained) -> None:
    for line in learned.files.metrics:
        names = set(line) - {"step"}
        assert names - METRICS.keys() == set()
        assert METRICS.keys() - names - OF_OTHER_CHOICES == set()
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in line.values())


def test_evaluations_hold_the_documented_fields(learned: Trained) -> None:
    for line in learned.files.evaluations:
        assert line.keys() == EVALUATION_FIELDS.keys()
        assert (line["problems"], line["samples"], line["data"]) == (16, 4, "jsonl")
        assert line["pass_at"].keys() == {"1", "2", "4"}
        assert line["pass_at"]["1"] == pytest.approx(line["avg"])
        assert 0 <= line["ci_low"] <= line["avg"] <= line["ci_high"] <= 1


def test_a_line_of_rollouts_is_a_generated_group(learned: Trained) -> None:
    tokenizer = AutoTokenizer.from_pretrained(learned.shop.folder / "model")
    ends = tokenizer.convert_tokens_to_ids([END, TURN])
    reasons = set()
    for step in (1, STEPS // 2, STEPS):
        groups = learned.files.rollouts(step)
        for number, group in enumerate(groups):
            assert list(group) == GROUP_KEYS
            assert group["step"] == step
            assert group["group"] == f"{step}-{number:04d}"
            assert re.fullmatch(r"row-\d+", group["prompt_id"])
            question = re.fullmatch(rf"{re.escape(BEGIN + USER)}(\d)\+(\d){re.escape(ASSISTANT)}", group["prompt"])
            assert question is not None
            assert group["gold"] == str(int(question[1]) + int(question[2]))
            assert group["reason"] in REASONS
            assert group["kept"] == (group["reason"] == "kept")
            assert len(group["replies"]) == 8
            reasons.add(group["reason"])
            right = sum(reply["correct"] for reply in group["replies"])
            assert {0: "all_wrong", 8: "all_right"}.get(right, group["reason"]) == group["reason"]
            for reply in group["replies"]:
                assert list(reply) == REPLY_KEYS
                assert len(reply["token_ids"]) == len(reply["logprobs"]) <= 6
                kept_tokens = reply["token_ids"][:-1] if reply["finish"] == "stop" else reply["token_ids"]
                assert reply["text"] == tokenizer.decode(kept_tokens)
                assert (reply["finish"] == "stop") == (reply["token_ids"][-1] in ends)
                assert reply["finish"] == "stop" or len(reply["token_ids"]) == 6
                assert reply["correct"] == reply["text"][:1].isdigit()
                assert reply["reward"].keys() == {"correctness", "overlong"}
                assert reply["reward"]["correctness"] == (1.0 if reply["correct"] else -1.0)
                assert reply["reward"]["overlong"] == (-1.0 if len(reply["token_ids"]) == 6 else 0.0)
                assert reply["total"] == sum(reply["reward"].values())
                assert reply["trained"] == group["kept"] == (reply["advantage"] is not None)
    assert {"kept", "all_wrong", "all_right"} <= reasons


def test_advantages_are_those_of_the_rewards(learned: Trained) -> None:
    for group in learned.files.rollouts(2):
        if not group["kept"]:
            continue
        totals = torch.tensor([reply["total"] for reply in group["replies"]], dtype=torch.float64)
        expected = (totals - totals.mean()) / (totals.std() + 1e-6)
        assert [reply["advantage"] for reply in group["replies"]] == pytest.approx(expected.tolist(), abs=1e-5)


def test_rollouts_and_metrics_count_the_same(learned: Trained) -> None:
    for line in learned.files.metrics:
        groups = learned.files.rollouts(line["step"])
        replies = [reply for group in groups for reply in group["replies"]]
        by_reason = {reason: sum(group["reason"] == reason for group in groups) for reason in REASONS}
        assert line["sampling/groups_generated"] == len(groups)
        for reason in ("kept", "all_right", "all_wrong", "surplus", "error"):
            assert line[f"sampling/groups_{reason}"] == by_reason[reason]
        assert line["sampling/groups_kept"] == 8
        assert line["sampling/tokens_generated"] == sum(len(reply["token_ids"]) for reply in replies)
        assert line["tokens/trained"] == sum(len(reply["token_ids"]) for reply in replies if reply["trained"])
        assert line["reward/mean"] == pytest.approx(sum(reply["total"] for reply in replies) / len(replies))
        assert line["reward/accuracy_all"] == pytest.approx(sum(reply["correct"] for reply in replies) / len(replies))
        kept = [reply["correct"] for group in groups if group["kept"] for reply in group["replies"]]
        assert line["reward/accuracy_kept"] == pytest.approx(sum(kept) / len(kept))
        cut = [reply["finish"] == "length" for reply in replies]
        assert line["length/truncated"] == pytest.approx(sum(cut) / len(cut))
        assert line["length/max"] == max(len(reply["token_ids"]) for reply in replies)


def test_prompts_of_one_epoch_are_all_different(learned: Trained) -> None:
    drawn: list[str] = []
    for step in range(1, STEPS + 1):
        drawn += [group["prompt_id"] for group in learned.files.rollouts(step)]

    assert len(drawn) > 2 * 48
    for start in range(0, len(drawn) - 47, 48):  # 64 problems, 16 of them held out
        assert len(set(drawn[start : start + 48])) == 48


def test_a_checkpoint_loads_in_transformers_with_its_tokenizer(learned: Trained) -> None:
    checkpoint = learned.files.checkpoint(STEPS)

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)

    first = AutoModelForCausalLM.from_pretrained(learned.shop.folder / "model")
    assert model.state_dict().keys() == first.state_dict().keys()
    assert not torch.equal(model.lm_head.weight, first.lm_head.weight)
    assert model.generation_config.eos_token_id == [2, 3]
    messages = [{"role": "user", "content": "3+4"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**ids, do_sample=False, max_new_tokens=1, pad_token_id=0)
    assert tokenizer.decode(output[0, -1]).isdigit()
    assert json.loads((checkpoint / "progress.json").read_text(encoding="utf-8"))["step"] == STEPS


def test_the_report_is_one_file_that_needs_no_network(learned: Trained) -> None:
    report = (learned.files.folder / "report.html").read_text(encoding="utf-8")

    assert report.startswith("<!")
    assert re.search(r"""(src|href)\s*=\s*["']?(https?:|//)""", report) is None
    assert "@import" not in report
