"""TRL's GRPOTrainer with the DAPO loss makes whole steps. Runs in the peer's own environment; JSON in, JSON out.

Reads what `benchmarks.steps.trl_request` writes; the answer holds the seconds of every rollout step: generation, reward,
forward and backward passes and all optimizer updates of it. Where `lengths` is given, every reply is made to end at its
length: the end token cannot be drawn before, and nothing else can be drawn there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import get_soft_overlong_punishment


class EndAt(LogitsProcessor):
    """Forbids the end token before a row's length and everything else at it."""

    def __init__(self, prompt_width: int, lengths: list[int], end_token: int) -> None:
        self.total = torch.tensor(lengths) + prompt_width
        self.end_token = end_token

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Change the scores of the next token."""
        ends = self.total == input_ids.shape[1] + 1
        scores[:, self.end_token] = -torch.inf
        scores[ends] = -torch.inf
        scores[ends, self.end_token] = 0.0
        return scores


class Steps(TrainerCallback):
    """Seconds of every rollout step, and the end of training at a time limit or an accuracy."""

    def __init__(self, given: dict[str, Any], accuracies: list[float]) -> None:
        self.given = given
        self.accuracies = accuracies
        self.seconds: list[float] = []
        self.started = self.mark = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock once everything is loaded."""
        self.started = self.mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Note the end of a rollout step, which is `updates` optimizer steps."""
        if state.global_step % self.given["updates"]:
            return control
        now = time.perf_counter()
        self.seconds.append(now - self.mark)
        self.mark = now
        done = len(self.seconds)
        sys.stderr.write(f"trl: step {done} {self.seconds[-1]:.1f} s, accuracy {self.accuracies[-1]:.1%}\n")
        window = self.given["window"]
        reached = done >= window and sum(self.accuracies[-window:]) / window >= self.given["target"]
        if reached or now - self.started > self.given["cap_seconds"]:
            control.should_training_stop = True
        return control


def load_rule(path: str) -> Any:
    """The rule that reads the integer a reply ends on: one file of text functions, the same for both sides."""
    spec = importlib.util.spec_from_file_location("integer_rule", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_reward(given: dict[str, Any], end_token: int, accuracies: list[float]) -> Any:
    """+1 or -1 by the answer (a truncated reply is wrong), or a number from -1 to 1 that the text itself draws."""
    rule = load_rule(given["rule_file"])

    def reward(completions: list[Any], completion_ids: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [one[0]["content"] for one in completions]
        if given["reward"] == "lot":
            drawn = [zlib.crc32(text.encode()) % 2001 / 1000 - 1 for text in texts]
            accuracies.append(sum(one > 0 for one in drawn) / len(drawn))
            return drawn
        right = [
            ids[-1] == end_token and rule.final_integer(text) == rule.canonical_integer(gold)
            for text, ids, gold in zip(texts, completion_ids, answer, strict=True)
        ]
        accuracies.append(sum(right) / len(right))
        return [1.0 if one else -1.0 for one in right]

    return reward


def force_lengths(model: Any, lengths: list[int], end_token: int) -> None:
    """Let `model.generate` end row r at lengths[r]."""
    original = model.generate

    def generate(*, input_ids: torch.Tensor, **settings: Any) -> torch.Tensor:
        ending = EndAt(input_ids.shape[1], lengths, end_token)
        output = original(input_ids=input_ids, logits_processor=LogitsProcessorList([ending]), **settings)
        assert output.shape[1] == input_ids.shape[1] + max(lengths), (output.shape, max(lengths))
        return output

    model.generate = generate


def make_config(given: dict[str, Any], folder: str) -> GRPOConfig:
    """The DAPO settings of the recipe, and the settings that are tried for speed."""
    rows = given["groups"] * given["group_size"]
    per_update = rows // given["updates"]
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=given["autocast"],
        fp16=False,
        per_device_train_batch_size=given["micro"],
        gradient_accumulation_steps=per_update // given["micro"],
        generation_batch_size=rows,
        num_generations=given["group_size"],
        num_iterations=1,
        max_steps=given["steps"] * given["updates"],
        max_completion_length=given["max_tokens"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=given["learning_rate"],
        lr_scheduler_type="constant",
        weight_decay=0.1,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        gradient_checkpointing=given["checkpointing"],
        use_transformers_continuous_batching=given["continuous"],
        shuffle_dataset=given["shuffle"],
        seed=given["seed"],
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        logging_steps=10_000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Make the steps."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(given["model"])
    model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=getattr(torch, given["dtype"]))
    end_token = int(tokenizer.eos_token_id)
    lengths = [length for group in given["lengths"] or [] for length in group]
    if lengths:
        force_lengths(model, lengths, end_token)
    accuracies: list[float] = []
    rewards = [make_reward(given, end_token, accuracies)]
    if given["soft_overlong"]:
        limit = given["max_tokens"]
        rewards.append(get_soft_overlong_punishment(max_completion_len=limit, soft_punish_cache=max(1, limit // 5)))
    rows = [{"prompt": one["messages"], "answer": one["answer"]} for one in given["problems"]]
    steps = Steps(given, accuracies)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=rewards,
            args=make_config(given, folder),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[steps],
        )
        trainer.train()
    return {
        "seconds": steps.seconds,
        "accuracies": accuracies,
        "parameter_dtype": str(next(model.parameters()).dtype),
        "threads": torch.get_num_threads(),
        "versions": {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
    }


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
