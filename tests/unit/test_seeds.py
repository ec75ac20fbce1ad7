from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.prompts import PromptStream
from dapo.seeds import derive_seed
from dapo.tasks.config import ArithmeticConfig
from tests.fakes import problems, render


def test_a_stream_has_the_same_seed_on_every_machine() -> None:
    """A run resumed elsewhere goes on alike, so these numbers may never change."""
    assert derive_seed(0) == 4761921975702974394
    assert derive_seed(7, "rollout", 12, 3) == 7294856897975776390


@settings(deadline=None)
@given(st.integers(0, 2**64), st.lists(st.integers(0, 10**6) | st.text(max_size=5), max_size=4))
def test_a_seed_fits_torch_s_generators(seed: int, path: list[int | str]) -> None:
    assert 0 <= derive_seed(seed, *path) < 2**63


def test_streams_of_other_names_have_other_seeds() -> None:
    seeds = [
        derive_seed(seed, kind, step, place)
        for seed in range(3)
        for kind in ("rollout", "order")
        for step in range(12)
        for place in range(12)
    ]
    assert len(set(seeds)) == len(seeds)
    assert derive_seed(7, "rollout", 12, 3) != derive_seed(7, "rollout", 1, 23)


def asked(config: ArithmeticConfig, seed: int) -> tuple[list[str], list[str]]:
    task = config.build(seed)
    return [one.id for one in task.train_problems()], [one.id for one in task.held_out_problems()]


def test_the_data_seed_chooses_the_problems_and_the_run_s_seed_does_not() -> None:
    fixed = ArithmeticConfig(train=50, held_out=10, data_seed=5)
    assert asked(fixed, 1) == asked(fixed, 2)
    assert asked(fixed.model_copy(update={"data_seed": 6}), 1) != asked(fixed, 1)


def test_without_a_data_seed_the_run_s_seed_chooses_the_problems() -> None:
    free = ArithmeticConfig(train=50, held_out=10)
    assert asked(free, 1) == asked(free, 1) == asked(ArithmeticConfig(train=50, held_out=10, data_seed=1), 9)
    assert asked(free, 1) != asked(free, 2)


def test_the_run_s_seed_chooses_the_order_in_which_problems_are_drawn() -> None:
    def order(seed: int) -> list[str]:
        return [prompt.problem.id for prompt in PromptStream(problems(20), render, seed=seed).take(20)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
