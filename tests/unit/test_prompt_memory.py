from __future__ import annotations

import json
from fractions import Fraction
from math import comb, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.errors import DataError
from dapo.prompt_memory import Beta, PromptMemory, fading, fitted_prior, mixed_chance, moments

FLAT = Beta(right=1.0, wrong=1.0)


def memory(group_size: int = 8, groups_per_step: int = 2, half_life: float = 2.0) -> PromptMemory:
    return PromptMemory(group_size=group_size, groups_per_step=groups_per_step, half_life=half_life)


@pytest.mark.parametrize("size", [2, 3, 8, 16, 64])
def test_under_a_uniform_pass_rate_a_group_is_mixed_unless_it_is_one_of_two_outcomes_of_many(size: int) -> None:
    """k right of G is then as likely for each k of 0 to G: two of G + 1 are not mixed."""
    assert mixed_chance(FLAT, size) == pytest.approx(1 - 2 / (size + 1), abs=1e-12)


def test_for_a_pair_the_chance_is_twice_the_mean_of_p_times_one_minus_p() -> None:
    """E[p (1 - p)] = a b / ((a + b) (a + b + 1))."""
    assert mixed_chance(Beta(right=3.0, wrong=2.0), 2) == pytest.approx(2 * 3 * 2 / (5 * 6), abs=1e-12)
    assert mixed_chance(Beta(right=3.0, wrong=2.0), 1) == pytest.approx(0.0, abs=1e-12)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 20))
def test_the_chance_is_that_of_the_beta_binomial_distribution(right: int, wrong: int, size: int) -> None:
    """Against exact fractions: E[p^G] is the product of (a + i) / (a + b + i) for i below G."""

    def all_alike(these: int, others: int) -> Fraction:
        return prod((Fraction(these + i, these + others + i) for i in range(size)), start=Fraction(1))

    exact = 1 - all_alike(right, wrong) - all_alike(wrong, right)
    assert mixed_chance(Beta(right=right, wrong=wrong), size) == pytest.approx(float(exact), abs=1e-10)


@settings(deadline=None)
@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.integers(1, 128))
def test_the_chance_is_a_probability_and_knows_no_difference_between_right_and_wrong(
    right: float, wrong: float, size: int
) -> None:
    chance = mixed_chance(Beta(right=right, wrong=wrong), size)
    assert 0 <= chance <= 1
    assert chance == pytest.approx(mixed_chance(Beta(right=wrong, wrong=right), size), abs=1e-9)


def test_evidence_halves_with_each_half_life() -> None:
    assert [fading(age, 4.0) for age in (0.0, 4.0, 8.0, 2.0)] == [1.0, 0.5, 0.25, pytest.approx(2**-0.5)]


def test_moments_are_without_bias() -> None:
    """Their means over k ~ Binomial(4, 1/4) are p and p^2 exactly."""
    weights = [comb(4, k) * 0.25**k * 0.75 ** (4 - k) for k in range(5)]
    assert sum(weight * moments(k, 4)[0] for k, weight in enumerate(weights)) == pytest.approx(1 / 4, abs=1e-12)
    assert sum(weight * moments(k, 4)[1] for k, weight in enumerate(weights)) == pytest.approx(1 / 16, abs=1e-12)
    assert moments(3, 4) == (0.75, 0.5)


@pytest.mark.parametrize(("correct", "size"), [(1, 1), (0, 0), (3, 2), (-1, 4)])
def test_a_group_that_says_nothing_of_p_and_its_square_is_refused(correct: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} replies with {correct} right"):
        moments(correct, size)


def test_before_anything_is_known_the_prior_is_uniform() -> None:
    prior = fitted_prior(0, 0.0, 0.0)
    assert (prior.right, prior.wrong) == (pytest.approx(1.0), pytest.approx(1.0))


def test_the_prior_of_many_problems_has_their_mean_and_variance() -> None:
    """A thousand problems with p = 0.2 or 0.6: mean 0.4, variance 0.04, so a + b = 0.24 / 0.04 - 1 = 5, as 2 and 3."""
    many = 10**6
    prior = fitted_prior(many, 0.4 * many, 0.2 * many)
    assert (prior.right, prior.wrong) == (pytest.approx(2.0, abs=1e-3), pytest.approx(3.0, abs=1e-3))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_the_prior_is_never_certain(count: int, mean: float, spread: float) -> None:
    prior = fitted_prior(count, mean * count, (mean * mean + spread * mean * (1 - mean)) * count)
    assert 0.2 * 0.99 <= prior.right + prior.wrong <= 20 * 1.01
    assert 0.0099 <= prior.right / (prior.right + prior.wrong) <= 0.9901


def test_outcomes_add_up_and_fade_with_the_steps_that_were_learnt_from() -> None:
    known = memory()
    for index in range(3):
        known.draw(f"p{index}", index, index)
    known.observe("p0", correct=8, size=8)
    known.observe("p1", correct=2, size=8)
    outcomes = known.get(1)
    assert outcomes is not None
    assert (outcomes.right, outcomes.wrong, outcomes.mean, outcomes.square) == (2.0, 6.0, 0.25, 2 / 56)
    assert known.now == 0.5, "one mixed group of two a step"
    known.observe("p2", correct=0, size=8)
    assert known.now == 0.5, "where nothing was learnt no time has passed"
    for _ in range(4):
        known.observe("p2", correct=4, size=8)
    assert known.now == 2.5
    known.observe("p1", correct=8, size=8)
    outcomes = known.get(1)
    assert outcomes is not None
    assert outcomes.right == pytest.approx(2 * 2**-1.25 + 8) and outcomes.wrong == pytest.approx(6 * 2**-1.25)


def test_the_posterior_is_the_prior_and_what_is_left_of_the_replies() -> None:
    known = memory()
    known.draw("p0", 0, 0)
    known.observe("p0", correct=8, size=8)
    prior = fitted_prior(1, 1.0, 1.0)
    assert known.prior == known.posterior(None) == prior
    assert known.posterior(known.get(0)) == Beta(right=prior.right + 8, wrong=prior.wrong)
    assert known.chance(known.get(0)) == mixed_chance(known.posterior(known.get(0)), 8) < known.chance(None)


def test_a_solved_problem_grows_uncertain_again_while_others_are_learnt() -> None:
    known = memory()
    known.draw("solved", 0, 0)
    known.draw("mixed", 1, 1)
    known.observe("solved", correct=8, size=8)
    chances = []
    for _ in range(9):
        known.observe("mixed", correct=4, size=8)
        chances.append(known.chance(known.get(0)))
    assert chances == sorted(chances) and chances[-1] > 1.5 * chances[0]


def test_an_outcome_of_a_problem_that_is_not_remembered_is_passed_over() -> None:
    known = memory()
    known.observe("never drawn", correct=1, size=8)
    assert len(known) == 0 and known.now == 0 and known.prior == fitted_prior(0, 0.0, 0.0)


def test_what_has_faded_can_be_forgotten_and_leaves_the_prior_too() -> None:
    known = memory()
    for index in range(3):
        known.draw(f"p{index}", index, index)
    known.observe("p0", correct=8, size=8)
    first = known.get(0)
    assert first is not None and not known.has_faded(first)
    for _ in range(17):
        known.observe("p1", correct=4, size=8)  # 8.5 steps, 4.25 half-lives: 8 replies are less than half a one
    assert known.has_faded(first)
    known.forget(first)
    assert known.get(0) is None and [known[place].id for place in range(len(known))] == ["p2", "p1"]
    assert known.prior == fitted_prior(1, 0.5, 12 / 56)
    known.observe("p0", correct=8, size=8)
    assert len(known) == 2


def test_another_problem_in_the_same_place_is_refused() -> None:
    known = memory()
    known.draw("p0", 0, 0)
    with pytest.raises(DataError, match=r"number 0 was p0 .* and is q0 now"):
        known.draw("q0", 0, 1)


steps = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 8)), max_size=40)


@settings(deadline=None, max_examples=50)
@given(steps, steps)
def test_a_memory_that_is_saved_as_json_goes_on_exactly(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    known = memory()

    def go_on(one: PromptMemory, events: list[tuple[int, int]]) -> None:
        for number, (index, correct) in enumerate(events):
            one.draw(f"p{index}", index, number)
            one.observe(f"p{index}", correct=correct, size=8)
            picked = one[number % len(one)]
            if one.has_faded(picked):
                one.forget(picked)

    go_on(known, before)
    again = memory()
    again.restore(json.loads(json.dumps(known.state())))
    assert again.state() == known.state() and again.prior == known.prior and again.now == known.now
    go_on(known, after)
    go_on(again, after)
    assert again.state() == known.state()
    assert [known.chance(known[place]) for place in range(len(known))] == [
        again.chance(again[place]) for place in range(len(again))
    ]
