"""The examples run, and the one file of DAPO computes what the real parts compute."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.algorithms.config import DAPOConfig
from dapo.algorithms.value import OLD_LOGPROBS
from dapo.maths.advantages import group_normalised
from dapo.maths.losses import clipped
from dapo.maths.overlong import soft_overlong_punishment
from dapo.maths.weights import token_mean
from dapo.models.config import ModelConfig
from dapo.trainers.config import LocalConfig
from dapo.types import Batch

ROOT = Path(__file__).resolve().parents[2]
NAIVE = ROOT / "examples" / "naive_dapo.py"

TINY_RECIPE = """
steps = 1
model.path = "{model}"
task = {{ type = "arithmetic", train = 8, held_out = 2 }}
algorithm = {{ type = "dapo", dynamic_sampling.enabled = false }}
batch = {{ groups_per_step = 2, group_size = 2, updates_per_step = 1, max_tokens = 6, max_prompt_tokens = 128 }}
evaluation = {{ max_tokens = 6 }}
report = {{ console = false }}
"""


@pytest.fixture
def naive() -> ModuleType:
    spec = importlib.util.spec_from_file_location("naive_dapo", NAIVE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


def naive_run(naive: ModuleType, model: Path, save: Path, *more: str) -> None:
    sizes = ["--steps", "2", "--groups", "2", "--group-size", "4", "--max-tokens", "8", "--learning-rate", "0.01"]
    naive.main(["--model", str(model), "--save", str(save), *sizes, *more])


def test_the_naive_example_prints_a_line_a_step_and_moves_the_parameters(
    naive: ModuleType,
    tiny: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = tiny()
    # A random model knows no arithmetic: whether a reply is right is decided by its first letter, and truncation aside.
    monkeypatch.setattr(naive, "is_right", lambda reply, answer: reply[:1] < "a")
    sample = naive.sample_group

    def never_truncated(*arguments: object) -> dict[str, torch.Tensor]:
        group: dict[str, torch.Tensor] = sample(*arguments)
        return {**group, "truncated": torch.zeros_like(group["truncated"])}

    monkeypatch.setattr(naive, "sample_group", never_truncated)
    naive_run(naive, model, tmp_path / "trained")
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("step ")]
    assert len(lines) == 2
    for number, line in enumerate(lines, start=1):
        pattern = rf"step {number}: accuracy \d+\.\d%, kept 2 of \d groups, length \d\.\d, loss [+-]\d\.\d{{4}}"
        assert re.fullmatch(pattern, line), line
    before, after = weights(model), weights(tmp_path / "trained")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in before)
    naive_run(naive, model, tmp_path / "again")
    again = weights(tmp_path / "again")
    assert all(torch.equal(after[name], again[name]) for name in after), "the same seed gives the same run"


def test_the_naive_example_says_where_there_is_nothing_to_learn_from(
    naive: ModuleType, tiny: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny()
    naive_run(naive, model, tmp_path / "trained", "--max-rounds", "1")
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("step ")]
    said = "all right or all wrong in each of 2 groups, nothing to learn from"
    assert lines == [f"step 1: {said}", f"step 2: {said}"]
    before, after = weights(model), weights(tmp_path / "trained")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_naive_loss_and_its_gradient_are_those_of_the_real_loss(naive: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    logprobs = (-3 * torch.rand(6, 9, generator=generator)).requires_grad_()
    old = logprobs.detach() + 0.5 * torch.randn(6, 9, generator=generator)  # far enough apart for both bounds to act
    mask = torch.arange(9) < torch.tensor([9, 4, 1, 7, 9, 2]).unsqueeze(1)
    group_B = torch.tensor([0, 0, 0, 1, 1, 1])
    rewards_B = torch.tensor([1.0, -1.0, -1.75, 1.0, 0.5, -1.0])
    advantages = torch.cat([naive.group_advantages(rewards_B[:3]), naive.group_advantages(rewards_B[3:])])
    torch.testing.assert_close(advantages, group_normalised(rewards_B, group_B), rtol=0, atol=1e-6)

    terms = clipped(logprobs, old, advantages.unsqueeze(1) * mask, clip_low=0.2, clip_high=0.28)
    held_back = (terms.clipped_low_BT.sum(), terms.clipped_high_BT.sum())
    assert min(held_back) > 0, "the batch must put both bounds to the test"
    real = (token_mean(mask, group_B) * terms.loss_BT).sum()
    (real_gradient,) = torch.autograd.grad(real, logprobs)

    num_tokens = int(mask.sum())
    parts = [
        naive.dapo_loss(logprobs[rows], old[rows], advantages[rows], mask[rows], num_tokens, 0.2, 0.28)
        for rows in (slice(0, 3), slice(3, 6))
    ]
    simple = parts[0] + parts[1]
    (simple_gradient,) = torch.autograd.grad(simple, logprobs)
    assert simple.item() == pytest.approx(real.item(), abs=1e-6)
    torch.testing.assert_close(simple_gradient, real_gradient, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("max_length", "cache"), [(40, 8), (5, 1), (20480, 4096)])
def test_the_naive_punishment_is_that_of_the_real_reward(naive: ModuleType, max_length: int, cache: int) -> None:
    for length in (0, 1, max_length - cache, max_length - cache + 1, max_length - 1, max_length, max_length + 1):
        real = soft_overlong_punishment(length, max_length, cache)
        assert naive.soft_overlong(length, max_length, cache) == pytest.approx(real, abs=1e-12)


def test_the_naive_group_has_the_log_probabilities_of_the_real_trainer(
    naive: ModuleType, tiny: Callable[..., Path]
) -> None:
    folder = tiny()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(3)
    group = naive.sample_group(model, tokenizer, "What is 7 * 8?", 5, 12)
    lengths_B = group["mask"].sum(dim=1)
    width = group["replies"].shape[1]
    prompt = group["rows"][0, :-width].tolist()
    assert prompt == tokenizer("<|begin|><|user|>What is 7 * 8?<|assistant|>", add_special_tokens=False).input_ids
    for tokens, mask, truncated in zip(group["replies"], group["mask"], group["truncated"], strict=True):
        kept = tokens[mask].tolist()
        ends = [token in model.generation_config.eos_token_id for token in kept]
        assert sum(ends) == (0 if truncated else 1) and (truncated or ends[-1])
    batch = Batch(
        prompt_ids=(tuple(prompt),) * 5,
        tokens_BT=group["replies"],
        mask_BT=group["mask"],
        lengths_B=lengths_B,
        sampled_logprobs_BT=torch.zeros(group["mask"].shape),
        rewards_B=torch.zeros(5),
        group_B=torch.zeros(5, dtype=torch.long),
        truncated_B=group["truncated"],
        version_B=torch.zeros(5, dtype=torch.long),
    )
    settings = ModelConfig(path=str(folder), device="cpu")
    trainer = LocalConfig(precision="float32").build(settings, DAPOConfig().build(max_tokens=12), temperature=1.0)
    real = trainer.annotate(batch, frozenset({OLD_LOGPROBS}))[OLD_LOGPROBS]
    with torch.no_grad():
        simple = naive.reply_logprobs(model, group)
    torch.testing.assert_close(simple[group["mask"]], real[group["mask"]], rtol=0, atol=1e-5)


def test_the_naive_rule_reads_the_last_number(naive: ModuleType) -> None:
    assert naive.is_right("7 * 8 is 56.", 56)
    assert naive.is_right("It is -3", -3)
    assert not naive.is_right("56 and not 57", 56)
    assert not naive.is_right("056", 56)
    assert not naive.is_right("", 0)


def test_the_files_that_the_naive_example_points_to_exist() -> None:
    text = NAIVE.read_text(encoding="utf-8")
    named = re.findall(r"src/dapo/[\w/]+\.py", text)
    assert len(named) >= 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imported == {"argparse", "random", "re", "torch", "transformers"}


def test_the_library_use_runs_and_prints_four_replies(
    tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipes").mkdir()
    recipe = TINY_RECIPE.format(model=tiny())
    (tmp_path / "recipes" / "quickstart.toml").write_text(recipe, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    used = runpy.run_path(str(ROOT / "examples" / "library_use.py"))
    assert used["config"].steps == 4 and used["config"].algorithm.clip_high == 0.3
    assert used["result"].outcome.steps == 4
    assert (tmp_path / "runs" / "library" / "report.html").is_file()
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(("stop ", "length "))]
    assert len(lines) == 4


def test_the_formulas_alone_give_the_numbers_that_follow_by_hand(capfd: pytest.CaptureFixture[str]) -> None:
    used = runpy.run_path(str(ROOT / "examples" / "own_loop.py"))
    # Advantages are +-1/sqrt(2), the ratio is e^0.1, no bound acts, 9 tokens train: 3 + 3 of them up, 1 + 2 down.
    ratio, advantage = torch.tensor(0.1).exp().item(), 2**-0.5
    assert used["loss"].item() == pytest.approx(-ratio * advantage * (6 - 3) / 9, abs=1e-5)
    expected = torch.tensor([-ratio * advantage / 9] * 3)
    torch.testing.assert_close(used["logprobs_BT"].grad[0], expected, rtol=0, atol=1e-5)
    assert capfd.readouterr().out.startswith("loss -0.2605")
