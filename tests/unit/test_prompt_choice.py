from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dapo.errors import DataError
from dapo.prompt_memory import PromptMemoryConfig
from dapo.prompts import Preference, PromptStream
from dapo.seeds import derive_seed
from dapo.types import Mean, Peak, Problem, Total
from tests.fakes import problem, problems, render

GROUP_SIZE = 8


def stream_of(
    count: int | Sequence[Problem],
    *,
    seed: int = 0,
    groups_per_step: int = 4,
    limit: int | None = None,
    epochs: int | None = None,
    **settings: float,
) -> PromptStream:
    config = PromptMemoryConfig(enabled=True, **settings)  # type: ignore[arg-type]
    preference = Preference(config=config, group_size=GROUP_SIZE, groups_per_step=groups_per_step)
    asked = problems(count) if isinstance(count, int) else count
    return PromptStream(asked, render, seed=seed, max_prompt_tokens=limit, epochs=epochs, preference=preference)


def run(stream: PromptStream, steps: int, draws: int, outcome: Callable[[str], int]) -> list[list[str]]:
    """Make steps of so many draws; `outcome` says how many of the 8 replies are right. Returns the ids of each step."""
    made = []
    for _ in range(steps):
        ids = [prompt.problem.id for prompt in stream.take(draws)]
        for name in ids:
            stream.observe(name, correct=outcome(name), size=GROUP_SIZE)
        made.append(ids)
    return made


def flat(made: list[list[str]]) -> list[str]:
    return [name for step in made for name in step]


def number(name: str) -> int:
    return int(name.removeprefix("p"))


def a_third_is_mixed(name: str) -> int:
    """p0, p3, ... are mixed; the others are solved or hopeless."""
    return (4, 8, 0)[number(name) % 3]


def test_the_first_epoch_is_the_ordinary_one_as_long_as_nothing_may_recur() -> None:
    """32 problems, 16 draws before one may come back: the first 16 draws are those of the ordinary order."""
    ordinary = [prompt.problem.id for prompt in PromptStream(problems(32), render, seed=5).take(16)]
    assert flat(run(stream_of(32, seed=5, most_per_epoch=2.0), 4, 4, a_third_is_mixed)) == ordinary


def test_what_is_worth_it_is_drawn_more_often() -> None:
    made = run(stream_of(60), 60, 8, a_third_is_mixed)
    later = Counter(a_third_is_mixed(name) for step in made[30:] for name in step)
    assert later[4] > 0.7 * 30 * 8, later
    assert all(any(name == f"p{index}" for step in made for name in step) for index in range(60)), "all are tried"


def test_problems_that_are_worth_it_are_drawn_alike_whether_a_quarter_or_a_half_is_right() -> None:
    made = run(stream_of(40), 100, 8, lambda name: 4 if number(name) % 2 else 2)
    halves = Counter(number(name) % 2 for step in made[20:] for name in step)
    assert 0.9 < halves[0] / halves[1] < 1.1


@settings(deadline=None, max_examples=20)
@example(10, 10, 112, 0)  # the place in the order stood in the middle of a pass
@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 2**40), st.integers(0, 8))
def test_no_prompt_is_drawn_twice_in_a_step_while_there_is_another(
    count: int, draws: int, seed: int, correct: int
) -> None:
    made = run(stream_of(count, seed=seed), 12, draws, lambda name: (correct + number(name)) % 9)
    for step in made:
        assert len(step) == draws and len(set(step)) == min(count, draws)


def test_a_prompt_does_not_recur_before_its_share_of_an_epoch_is_drawn() -> None:
    stream = stream_of(60, most_per_epoch=4.0)
    names = flat(run(stream, 100, 3, lambda name: 4))
    for place, name in enumerate(names):
        assert name not in names[max(0, place - 14) : place]


def test_solved_and_hopeless_problems_are_retired_and_come_back_for_a_check() -> None:
    stream = stream_of(60, half_life=4.0)
    made = run(stream, 150, 8, a_third_is_mixed)
    drawn_in = {index: [place for place, step in enumerate(made) if f"p{index}" in step] for index in range(60)}
    draws = {kind: [len(drawn_in[index]) for index in range(kind, 60, 3)] for kind in range(3)}
    for kind in (1, 2):
        assert min(draws[kind]) >= 4, "each is looked at again"
        assert max(draws[kind]) < 0.6 * min(draws[0])
    assert stream.stats()["prompts/retired"].value > 8


def test_where_all_are_solved_there_still_is_a_next_prompt_and_all_take_turns() -> None:
    """Nothing is learnt, so no time passes and all stay retired: what was drawn longest ago is drawn."""
    made = run(stream_of(20), 40, 5, lambda name: 8)
    counts = Counter(name for step in made for name in step)
    assert len(counts) == 20 and min(counts.values()) >= 5
    assert {name for step in made[-8:] for name in step} == {f"p{index}" for index in range(20)}


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**40))
def test_exploration_reaches_every_problem_that_is_not_retired(seed: int) -> None:
    """With all draws exploring it is the ordinary order, whatever the outcomes; so the floor is that of the ordinary order."""
    stream = stream_of(24, seed=seed, explore=1.0, retire_below=0.0, most_per_epoch=24.0)
    names = flat(run(stream, 12, 4, lambda name: derive_seed(seed, name) % 9))
    assert sorted(names[:24]) == sorted(names[24:]) == sorted(f"p{index}" for index in range(24))


def test_the_floor_of_exploration_holds_against_the_memory() -> None:
    """40 problems of which one is mixed: each of the hopeless is still drawn, about once in 40 / 0.2 draws."""
    stream = stream_of(40, explore=0.2, retire_below=0.0)
    counts = Counter(flat(run(stream, 200, 5, lambda name: 4 if name == "p0" else 0)))
    assert min(counts[f"p{index}"] for index in range(40)) >= 0.5 * 1000 * 0.2 / 40


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(0, 2**40), st.integers(0, 10), st.integers(1, 10), st.integers(1, 7))
def test_a_stream_that_is_restored_goes_on_exactly(count: int, seed: int, before: int, after: int, draws: int) -> None:
    def outcome(name: str) -> int:
        return derive_seed(seed, name) % 9

    stream = stream_of(count, seed=seed)
    run(stream, before, draws, outcome)
    saved = json.loads(json.dumps(stream.state()))
    resumed = stream_of(count, seed=seed)
    resumed.restore(saved)
    assert resumed.state() == stream.state() and resumed.position == stream.position and resumed.epoch == stream.epoch
    assert run(resumed, after, draws, outcome) == run(stream, after, draws, outcome)
    assert resumed.state() == stream.state() and resumed.stats() == stream.stats()


def test_a_step_that_is_not_made_is_drawn_again() -> None:
    stream = stream_of(30)
    run(stream, 10, 5, a_third_is_mixed)
    state = stream.state()
    first = [prompt.problem.id for prompt in stream.take(7)]
    stream.restore(state)
    assert [prompt.problem.id for prompt in stream.take(7)] == first


def test_draws_do_not_depend_on_how_a_step_asks_for_them() -> None:
    whole, piecemeal = stream_of(30), stream_of(30)
    for _ in range(10):
        names = [prompt.problem.id for prompt in whole.take(6)]
        assert [prompt.problem.id for count in (1, 3, 0, 2) for prompt in piecemeal.take(count)] == names
        for stream in (whole, piecemeal):
            for name in names:
                stream.observe(name, correct=a_third_is_mixed(name), size=GROUP_SIZE)


def test_outcomes_and_seed_decide() -> None:
    def made(seed: int, right: int) -> list[list[str]]:
        return run(stream_of(30, seed=seed), 12, 5, lambda name: right if number(name) < 15 else 4)

    assert made(1, 8) == made(1, 8)
    assert made(1, 8) != made(1, 4) != made(2, 4)


def test_epochs_limit_the_number_of_draws() -> None:
    stream = stream_of(10, epochs=3)
    assert [len(step) for step in run(stream, 6, 7, a_third_is_mixed)] == [7, 7, 7, 7, 2, 0]
    assert stream.is_exhausted and stream.position == 30 and stream.epoch == 3


def of_lengths(*lengths: int) -> list[Problem]:
    return [problem(f"p{length}", "x" * length) for length in lengths]


def test_prompts_over_the_limit_are_passed_over_once_each() -> None:
    stream = stream_of(of_lengths(*range(20, 44)), limit=31)
    made = run(stream, 30, 5, lambda name: 4)
    assert {number(name) for step in made for name in step} == set(range(20, 32))
    assert stream.num_dropped == 12 and stream.position == 150 + 12


def test_one_prompt_that_fits_is_enough() -> None:
    for seed in range(10):
        stream = stream_of(of_lengths(31, *range(40, 46)), seed=seed, limit=31)
        assert run(stream, 4, 3, lambda name: 4) == [["p31"] * 3] * 4


def test_where_no_prompt_fits_it_is_an_error_and_no_endless_search() -> None:
    with pytest.raises(DataError, match="Every one of the 3 training prompts is longer"):
        stream_of(of_lengths(40, 41, 42), limit=31).take(1)


def test_where_the_limit_was_lowered_since_it_is_an_error_too() -> None:
    before = stream_of(of_lengths(40, 41, 42), limit=50)
    run(before, 3, 2, lambda name: 4)
    after = stream_of(of_lengths(40, 41, 42), limit=31)
    after.restore(before.state())
    with pytest.raises(DataError, match="Every one of the 3 training prompts is longer"):
        after.take(1)


def test_a_large_set_is_not_gone_through_for_a_draw() -> None:
    class Counted(Sequence[Problem]):
        reads = 0

        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, index: int) -> Problem:  # type: ignore[override]
            self.reads += 1
            return problem(f"p{index}")

    asked = Counted()
    stream = stream_of(asked, most_per_epoch=100_000.0)
    run(stream, 20, 10, a_third_is_mixed)
    assert asked.reads == 200, "a problem is read when it is drawn, and at no other time"
    assert 30 < len(stream.state()["memory"]["problems"]) <= 200


def test_the_numbers_of_a_step() -> None:
    stream = stream_of(64)
    stream.take(6)
    first = stream.stats()
    assert first["prompts/remembered"] == Peak(value=6) and first["prompts/fresh"] == Total(value=6)
    chance = first["prompts/mean_mixed_chance"]
    assert isinstance(chance, Mean) and chance.count == 6 and chance.value == pytest.approx(1 - 2 / 9)
    assert first["prompts/retired"] == Peak(value=0)
    for row in stream.state()["memory"]["problems"]:
        stream.observe(row[0], correct=4, size=GROUP_SIZE)
    assert stream.stats()["prompts/fresh"] == Total(value=0), "the next step has drawn nothing yet"
    run(stream, 20, 6, lambda name: 8 if number(name) < 40 else 4)
    numbers = stream.stats()
    assert 0 < numbers["prompts/retired"].value < numbers["prompts/remembered"].value <= 64
