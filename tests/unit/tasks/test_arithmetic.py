from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dapo.errors import ConfigError
from dapo.ports import Task
from dapo.tasks.arithmetic import Space, fill_evenly, make_problem
from dapo.tasks.config import ArithmeticConfig
from dapo.types import Finish, Message, Problem, Score
from tests.unit.tasks.replies import score

FUNCTIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def operations(problems: Sequence[Problem]) -> dict[str, int]:
    return dict(Counter(problem.info["operation"] for problem in problems))


def asks(problem: Problem) -> tuple[str, tuple[int, ...]]:
    """What the problem asks: 3 + 5 and 5 + 3 are the same."""
    operands = (problem.info["left"], problem.info["right"])
    return problem.info["operation"], operands if problem.info["operation"] == "-" else tuple(sorted(operands))


def test_a_problem_as_it_is_asked() -> None:
    assert make_problem("*", (15, 4)) == Problem(
        id="mul-15-4",
        messages=(Message(role="user", content="What is 15 * 4? Answer with just the number."),),
        answer="60",
        info={"operation": "*", "left": 15, "right": 4},
    )
    assert make_problem("+", (15, 4)).id == "add-15-4"
    assert make_problem("-", (4, 9)).answer == "-5"
    assert make_problem("-", (9, 4)).id == "sub-9-4"


def test_a_system_message_comes_first() -> None:
    task = ArithmeticConfig(system="Be brief.", train=3, held_out=3).build(0)
    for problem in (*task.train_problems(), *task.held_out_problems()):
        assert problem.messages[0] == Message(role="system", content="Be brief.")
        assert problem.messages[1].role == "user"


def test_the_defaults_give_these_shares() -> None:
    task = ArithmeticConfig().build(1)
    assert isinstance(task, Task)
    assert operations(task.held_out_problems()) == {"+": 67, "-": 67, "*": 66}
    train = operations(task.train_problems())
    assert sum(train.values()) == 2000
    assert train["+"] - train["-"] in (0, 1)
    assert 141 <= train["*"] <= 207  # all 273 products, less 66 held-out ones and their twins


def test_equal_shares_where_each_operation_has_enough() -> None:
    task = ArithmeticConfig(train=301, held_out=50, operations=("*", "+")).build(1)
    assert operations(task.train_problems()) == {"*": 150, "+": 151}
    assert operations(task.held_out_problems()) == {"*": 25, "+": 25}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**40),
    st.integers(6, 30),
    st.integers(5, 12),
    st.integers(5, 12),
    st.booleans(),
    st.sets(st.sampled_from("+-*"), min_size=1),
)
def test_problems_are_right_unique_in_range_and_parted(
    seed: int, largest: int, left: int, right: int, negative: bool, names: set[str]
) -> None:
    config = ArithmeticConfig(
        operations=tuple(sorted(names)),  # type: ignore[arg-type]
        max_sum_operand=largest,
        max_left=left,
        max_right=right,
        allow_negative=negative,
        train=10,
        held_out=9,
    )
    task = config.build(seed)
    train, held_out = task.train_problems(), task.held_out_problems()
    assert len({problem.id for problem in (*train, *held_out)}) == 19
    assert not {asks(problem) for problem in train} & {asks(problem) for problem in held_out}
    assert len({asks(problem) for problem in held_out}) == 9
    for problem in (*train, *held_out):
        a, b, operation = problem.info["left"], problem.info["right"], problem.info["operation"]
        assert int(problem.answer) == FUNCTIONS[operation](a, b)
        assert 0 <= a <= (left if operation == "*" else largest)
        assert 0 <= b <= (right if operation == "*" else largest)
        assert negative or int(problem.answer) >= 0


def test_everything_that_exists_can_be_asked_for_and_no_more() -> None:
    # Products of 0..2: 9, of which 6 ask different things. Two held-out ones take themselves and their twins.
    config = ArithmeticConfig(operations=("*",), max_left=2, max_right=2, held_out=2, train=1)
    for seed in range(20):
        held_out = config.build(seed).held_out_problems()
        exist = 9 - sum(len({(p.info["left"], p.info["right"]), (p.info["right"], p.info["left"])}) for p in held_out)
        assert len(config.model_copy(update={"train": exist}).build(seed).train_problems()) == exist
        with pytest.raises(
            ConfigError, match=rf"train = {exist + 1} asks for more problems than the {exist} that exist"
        ):
            config.model_copy(update={"train": exist + 1}).build(seed)


def test_too_many_held_out_problems_are_refused_with_what_exists() -> None:
    config = ArithmeticConfig(operations=("+", "*"), max_left=2, max_right=2, held_out=12)
    with pytest.raises(ConfigError) as refused:
        config.check()
    assert str(refused.value) == (
        "held_out = 12 asks for 6 problems of '*', but only 6 exist (a + b and b + a count once) and training needs "
        "some of them; lower task.held_out or raise the largest operands"
    )


def test_too_many_training_problems_are_refused_with_the_counts() -> None:
    config = ArithmeticConfig(operations=("-",), max_sum_operand=3, held_out=1, train=10)
    with pytest.raises(ConfigError) as refused:
        config.check()
    assert str(refused.value) == (
        "train = 10 asks for more problems than the 9 that exist besides the 1 held-out ones (9 of '-'); "
        "lower task.train or raise the largest operands"
    )


def test_the_same_seed_gives_the_same_problems_and_another_gives_others() -> None:
    config = ArithmeticConfig(train=50, held_out=10)
    assert config.build(3) == config.build(3)
    assert config.build(3).train_problems() != config.build(4).train_problems()
    assert config.build(3).held_out_problems() != config.build(4).held_out_problems()


def test_a_data_seed_decides_alone() -> None:
    config = ArithmeticConfig(train=50, held_out=10, data_seed=3)
    assert config.build(1) == config.build(2) == ArithmeticConfig(train=50, held_out=10).build(3)


def test_the_size_of_the_training_set_does_not_change_the_held_out_one() -> None:
    small, large = ArithmeticConfig(train=5).build(3), ArithmeticConfig(train=500).build(3)
    assert small.held_out_problems() == large.held_out_problems()


def test_no_held_out_problems() -> None:
    assert ArithmeticConfig(held_out=0).build(0).held_out_problems() == ()


def test_operands_of_any_size_cost_no_listing() -> None:
    task = ArithmeticConfig(max_sum_operand=10**9, max_left=10**9, max_right=10**9, train=30, held_out=30).build(0)
    assert len(task.train_problems()) == 30
    assert max(int(problem.answer) for problem in task.train_problems()) > 10**15


def test_operations_are_named_once_and_are_known() -> None:
    with pytest.raises(ValidationError, match="names one twice"):
        ArithmeticConfig(operations=("+", "+"))
    with pytest.raises(ValidationError):
        ArithmeticConfig(operations=("/",))  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        ArithmeticConfig(operations=())


@given(st.integers(0, 1000), st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_fill_evenly_gives_all_it_can_as_evenly_as_it_can(total: int, capacities: list[int]) -> None:
    shares = fill_evenly(total, capacities)
    assert sum(shares) == min(total, sum(capacities))
    assert all(0 <= share <= capacity for share, capacity in zip(shares, capacities, strict=True))
    smallest_open = min((s for s, c in zip(shares, capacities, strict=True) if s < c), default=max(shares))
    assert max(shares) <= smallest_open + 1


def test_fill_evenly_gives_the_remainder_to_the_largest_and_then_the_first() -> None:
    assert fill_evenly(200, [1000, 1000, 1000]) == [67, 67, 66]
    assert fill_evenly(5, [1, 3, 2]) == [1, 2, 2]
    assert fill_evenly(200, [1000, 1000, 20]) == [90, 90, 20]
    assert fill_evenly(5, [0, 2]) == [0, 2]


def test_a_space_numbers_each_problem_once() -> None:
    triangle = Space(operation="-", max_left=3, max_right=3, allow_negative=False)
    assert [triangle[number] for number in range(len(triangle))] == [
        (0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3),
    ]  # fmt: skip
    products = Space(operation="*", max_left=2, max_right=1, allow_negative=False)
    assert [products[number] for number in range(len(products))] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert products.twins((0, 1)) == {(0, 1), (1, 0)}
    assert products.twins((2, 1)) == {(2, 1)}
    assert products.count_twin_sets() == 5
    assert len(Space(operation="-", max_left=3, max_right=3, allow_negative=True)) == 16


def test_scores() -> None:
    task = ArithmeticConfig(train=1, held_out=0).build(0)
    problem = make_problem("*", (15, 4))
    assert score(task, problem, "15 * 4 = **60**.") == Score(correct=True, reward=1.0, extracted="60")
    assert score(task, problem, "61") == Score(correct=False, reward=-1.0, extracted="61")
    assert score(task, problem, "") == Score(correct=False, reward=-1.0)
    assert score(task, problem, "60", Finish.LENGTH) == Score(correct=False, reward=-1.0)


@pytest.mark.parametrize("operation", ["+", "-", "*"])
def test_repeating_the_question_is_no_answer(operation: str) -> None:
    task = ArithmeticConfig(train=1, held_out=0).build(0)
    for right in range(10):
        problem = make_problem(operation, (0 if operation == "+" else 1, right))
        assert score(task, problem, problem.messages[0].content).correct is False
