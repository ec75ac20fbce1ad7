from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.errors import DataError
from dapo.prompt_memory import PromptMemoryConfig
from dapo.prompts import Preference, PromptStream, check_prompt_lengths
from dapo.types import Problem, Prompt
from tests.fakes import problem, problems, render

LIMIT = 32


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in prompts]


def of_lengths(*lengths: int) -> list[Problem]:
    """Problems whose prompts have these lengths in tokens, named `t31` and so on."""
    return [problem(f"t{length}", "x" * length) for length in lengths]


def test_each_prompt_is_drawn_once_an_epoch_however_the_steps_cut_it() -> None:
    """9 prompts, 3 a step: no prompt twice within an epoch, and none left out."""
    stream = PromptStream(problems(9), render, seed=4)
    epochs = [[ids(stream.take(3)) for _ in range(3)] for _ in range(3)]
    drawn = [[name for step in epoch for name in step] for epoch in epochs]
    for names in drawn:
        assert sorted(names) == sorted(one.id for one in problems(9))
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else() -> None:
    in_one_go = ids(PromptStream(problems(10), render, seed=1).take(30))
    stream = PromptStream(problems(10), render, seed=1)
    piecemeal = [name for count in (1, 4, 7, 0, 10, 8) for name in ids(stream.take(count))]
    assert piecemeal == in_one_go
    assert ids(PromptStream(problems(10), render, seed=2).take(30)) != in_one_go


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**40), st.integers(1, 30))
def test_a_stream_goes_on_from_its_position_exactly(count: int, position: int, seed: int, more: int) -> None:
    whole = ids(PromptStream(problems(count), render, seed=seed).take(position + more))
    resumed = PromptStream(problems(count), render, seed=seed, position=position)
    assert resumed.epoch == position // count
    assert ids(resumed.take(more)) == whole[position:]
    assert resumed.position == position + more


def test_setting_the_position_back_draws_the_same_again() -> None:
    stream = PromptStream(problems(5), render, seed=0)
    stream.take(4)
    first = ids(stream.take(4))
    stream.position = 4
    assert ids(stream.take(4)) == first


def test_a_state_goes_on_exactly_and_knows_its_data() -> None:
    stream = PromptStream(of_lengths(31, 32, 33, 34), render, seed=0, max_prompt_tokens=LIMIT)
    stream.take(3)
    state = json.loads(json.dumps(stream.state()))
    resumed = PromptStream(of_lengths(31, 32, 33, 34), render, seed=0, max_prompt_tokens=LIMIT)
    resumed.restore(state)
    assert (resumed.position, resumed.num_dropped) == (stream.position, stream.num_dropped)
    assert ids(resumed.take(9)) == ids(stream.take(9)) and resumed.state() == stream.state()


@pytest.mark.parametrize(("others", "count"), [(problems(9), 9), ([problem(f"q{n}") for n in range(8)], 8)])
def test_the_state_of_other_data_is_refused(others: list[Problem], count: int) -> None:
    state = PromptStream(problems(8), render, seed=0).state()
    with pytest.raises(DataError, match=rf"8 of them there, {count} here, with other ids. Go on with the data"):
        PromptStream(others, render, seed=0).restore(state)


def test_without_a_preference_outcomes_change_nothing_and_there_is_nothing_to_tell() -> None:
    stream = PromptStream(problems(5), render, seed=0)
    untouched = PromptStream(problems(5), render, seed=0)
    for prompt in stream.take(3):
        stream.observe(prompt.problem.id, correct=8, size=8)
    untouched.take(3)
    assert ids(stream.take(9)) == ids(untouched.take(9))
    assert stream.stats() == {} and "memory" not in stream.state()


def test_a_memory_may_be_begun_and_given_up_in_the_middle_of_a_run() -> None:
    config = PromptMemoryConfig(enabled=True)
    preference = Preference(config=config, group_size=8, groups_per_step=2)
    plain = PromptStream(problems(40), render, seed=0)
    plain.take(10)
    begun = PromptStream(problems(40), render, seed=0, preference=preference)
    begun.restore(plain.state())
    assert ids(begun.take(6)) == ids(plain.take(6))
    given_up = PromptStream(problems(40), render, seed=0)
    given_up.restore(begun.state())
    assert ids(given_up.take(24)) == ids(plain.take(24))


def test_the_last_epoch_ends_with_what_is_left_and_then_nothing() -> None:
    stream = PromptStream(problems(5), render, seed=0, epochs=2)
    assert [len(stream.take(4)) for _ in range(4)] == [4, 4, 2, 0]
    assert stream.is_exhausted and stream.position == 10 and stream.epoch == 2


def test_a_step_may_reach_into_the_next_epoch() -> None:
    stream = PromptStream(problems(5), render, seed=0, epochs=2)
    names = ids(stream.take(8))
    assert len(set(names[:5])) == 5 and len(set(names[5:])) == 3
    assert not stream.is_exhausted


def test_without_a_limit_on_epochs_the_stream_does_not_end() -> None:
    stream = PromptStream(problems(2), render, seed=0)
    assert len(stream.take(101)) == 101 and not stream.is_exhausted


def test_prompts_over_the_limit_are_passed_over_and_counted() -> None:
    stream = PromptStream(of_lengths(31, 32, 33), render, seed=0, max_prompt_tokens=LIMIT, epochs=1)
    assert sorted(ids(stream.take(3))) == ["t31", "t32"]
    assert (stream.num_dropped, stream.position, stream.is_exhausted) == (1, 3, True)


def test_prompts_over_the_limit_are_refused_with_their_number_and_the_longest() -> None:
    check_prompt_lengths(of_lengths(31, 32), render, LIMIT, what="training")
    with pytest.raises(DataError) as refused:
        check_prompt_lengths(of_lengths(31, 32, 33, 40, 36), render, LIMIT, what="training")
    message = str(refused.value)
    assert message.startswith("3 of 5 training prompts are longer than batch.max_prompt_tokens = 32")
    assert "the longest, t40, has 40 tokens" in message
    assert "Raise the limit to 40" in message and 'batch.overlong_prompts = "drop"' in message
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("epochs", [1, None])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("position", [0, 1, 4])
def test_where_no_prompt_fits_it_is_an_error_and_no_endless_search(
    epochs: int | None, count: int, position: int
) -> None:
    """Also where the stream goes on from a checkpoint and the limit was lowered since."""
    stream = PromptStream(
        of_lengths(*range(33, 33 + count)), render, seed=0, max_prompt_tokens=LIMIT, epochs=epochs, position=position
    )
    if epochs is not None and position > 0:
        assert stream.take(1) == []  # the only epoch cannot be told to hold nothing: part of it was drawn before
        return
    with pytest.raises(DataError, match=rf"Every one of the {count} training prompts is longer .* = 32"):
        stream.take(1)


def test_one_prompt_that_fits_is_enough_wherever_it_comes_in_an_epoch() -> None:
    for seed in range(20):
        stream = PromptStream(of_lengths(32, *range(40, 46)), render, seed=seed, max_prompt_tokens=LIMIT)
        assert ids(stream.take(6)) == ["t32"] * 6
        assert stream.num_dropped == stream.position - 6


def test_a_task_without_problems_is_refused() -> None:
    with pytest.raises(DataError, match="no training problem"):
        PromptStream([], render, seed=0)


def test_half_a_surrogate_pair_in_an_id_is_no_hindrance() -> None:
    def mark(*names: str) -> object:
        made = [replace(problem("p"), id=name) for name in names]
        return PromptStream(made, render, seed=0).state()["data"]

    assert mark("a", "é", "中") == mark("a", "é", "中")
    assert mark("a\ud800") != mark("a\ud801") != mark("a")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: replace(one, answer="another"), "their ids are the same, and questions or answers have changed"),
        (lambda one: replace(one, messages=()), "their ids are the same, and questions or answers have changed"),
        (lambda one: replace(one, id="another"), "3 of them there, 3 here, with other ids"),
    ],
)
def test_a_place_in_other_problems_is_refused_and_the_difference_told(
    change: Callable[[Problem], Problem], words: str
) -> None:
    made = [problem(name) for name in "abc"]
    state = PromptStream(made, render, seed=0).state()
    PromptStream(list(made), render, seed=0).restore(state)
    with pytest.raises(DataError, match=words):
        PromptStream([change(made[0]), *made[1:]], render, seed=0).restore(state)
