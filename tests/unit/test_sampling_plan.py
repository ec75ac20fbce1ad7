from __future__ import annotations

from dapo.config import parse_config
from dapo.prompts import PromptStream
from dapo.sampling_plan import order_seed
from dapo.types import Problem, Prompt


def render(problem: Problem) -> Prompt:
    return Prompt(problem=problem, text="", token_ids=(1,))


def first_prompts(seed: int, data_seed: int | None) -> list[str]:
    task = {"type": "arithmetic", "train": 50} | ({} if data_seed is None else {"data_seed": data_seed})
    config = parse_config({"steps": 1, "seed": seed, "model": {"path": "a/b"}, "task": task}, what="a test")
    problems = config.task.build(config.seed).train_problems()
    return [p.problem.id for p in PromptStream(problems, render, seed=order_seed(config)).take(20)]


def test_two_runs_with_one_data_seed_see_the_same_prompts_in_the_same_order() -> None:
    assert first_prompts(1, 7) == first_prompts(2, 7)
    assert first_prompts(1, 7) != first_prompts(1, 8)
    assert first_prompts(1, None) != first_prompts(2, None)
