from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dapo.engines.fake import FakeEngine
from dapo.errors import EngineError
from dapo.evaluation import Evaluation, ProblemResult, evaluate
from dapo.maths.statistics import mean_over_problems, wilson
from dapo.metrics import EVALUATION_FIELDS
from dapo.types import Problem, Prompt, Rollout, RolloutGroup, Sampling, Score
from tests.fakes import FakeTask, LateFirstEngine, engine_of, problem, problems, render, rollout

SAMPLING = Sampling(temperature=0.7, top_p=0.9, max_tokens=8)


def measure(
    engine: FakeEngine,
    asked: list[Problem],
    samples: int,
    *,
    task: Any = None,
    seed: int = 0,
    sampling: Sampling = SAMPLING,
    scoring_seconds: float = 300.0,
) -> Evaluation:
    return asyncio.run(
        evaluate(
            asked,
            render,
            engine,
            task or FakeTask(),
            sampling=sampling,
            samples=samples,
            seed=seed,
            scoring_seconds=scoring_seconds,
        )
    )


def summary(patterns: dict[str, str], samples: int) -> dict[str, Any]:
    return measure(engine_of(patterns), [problem(name) for name in patterns], samples).summary(7, "arithmetic")


def test_the_accuracy_is_the_mean_of_all_samples_and_not_the_first_one_s() -> None:
    line = summary({"p0": "-+++"}, 4)
    assert line["avg"] == 0.75
    assert line["pass_at"] == {"1": 0.75, "2": 1.0, "4": 1.0}


def test_a_line_says_how_many_problems_and_samples_it_is_of() -> None:
    line = summary({f"p{number}": "+" * 32 if number % 3 else "-" * 32 for number in range(30)}, 32)
    assert (line["problems"], line["samples"]) == (30, 32)
    assert line["avg"] == pytest.approx(20 / 30)
    assert set(line["pass_at"]) == {"1", "2", "4", "8", "16", "32"}
    assert (line["step"], line["data"]) == (7, "arithmetic")


def test_a_line_has_the_fields_that_are_documented() -> None:
    assert list(summary({"p0": "+"}, 1)) == list(EVALUATION_FIELDS)


def test_the_interval_is_over_problems() -> None:
    line = summary({"p0": "++--", "p1": "++++", "p2": "----", "p3": "+---"}, 4)
    interval = mean_over_problems([0.5, 1.0, 0.0, 0.25])
    assert (line["avg"], line["ci_low"], line["ci_high"]) == tuple(interval)
    all_right = summary({"p0": "++", "p1": "++"}, 2)
    assert (all_right["ci_low"], all_right["ci_high"]) == (wilson(2, 2).low, 1.0)


def test_pass_at_k_is_the_mean_over_problems() -> None:
    line = summary({"p0": "+---", "p1": "++++"}, 4)
    assert line["pass_at"] == {"1": 0.625, "2": 0.75, "4": 1.0}
    assert set(summary({"p0": "+--"}, 3)["pass_at"]) == {"1", "2", "3"}


def result(*votes: tuple[str | None, bool]) -> ProblemResult:
    scores = tuple(Score(correct=right, reward=0.0, extracted=answer) for answer, right in votes)
    group = RolloutGroup(prompt=render(problem("p0")), rollouts=tuple(rollout() for _ in votes))
    return ProblemResult(group=group, scores=scores)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([("4", True), ("4", True), ("5", False)], 1.0),
        ([("4", True), ("5", False), ("5", False)], 0.0),
        ([("4", True), ("5", False)], 0.5),  # a tie shares the credit
        ([("4", True), ("5", False), ("6", False)], 1 / 3),
        ([("4", True), (None, False), (None, False)], 1.0),  # no answer is no vote
        ([(None, False), (None, False)], 0.0),
    ],
)
def test_the_majority_is_of_the_answers_that_were_read(votes: list[tuple[str | None, bool]], expected: float) -> None:
    assert result(*votes).measured.majority_is_right == pytest.approx(expected)


def test_lengths_and_truncation_are_over_all_samples() -> None:
    texts = ["abc", "abcdefgh", "abcdefghi"]
    line = measure(FakeEngine(lambda prompt, index: texts[index]), problems(2), 3).summary(0, "x")
    assert line["truncated"] == pytest.approx(1 / 3)
    assert line["length_mean"] == pytest.approx(19 / 3)
    assert (line["temperature"], line["top_p"]) == (0.7, 0.9)


def test_nothing_is_filtered_and_nothing_is_punished() -> None:
    line = summary({"p0": "--", "p1": "++", "p2": "+-"}, 2)
    assert (line["problems"], line["avg"]) == (3, 0.5)


def test_results_stay_in_the_order_of_the_problems() -> None:
    asked = problems(6)
    engine = LateFirstEngine(lambda prompt, index: "yes" if prompt.problem.id in ("p1", "p4") else "no")
    found = measure(engine, asked, 1)
    assert engine.finished == [one.id for one in asked[::-1]]
    assert [one.group.prompt.problem.id for one in found.results] == [one.id for one in asked]
    assert [one.measured.accuracy for one in found.results] == [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]


class LateFirstTask(FakeTask):
    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        for _ in range(10 * (4 - len(self.seen))):
            await asyncio.sleep(0)
        return await super().score(problem, rollout)


def test_each_sample_keeps_its_own_score() -> None:
    found = measure(engine_of({"p0": "+--+"}), problems(1), 4, task=LateFirstTask())
    assert [score.correct for score in found.results[0].scores] == [True, False, False, True]


def test_a_problem_s_seed_does_not_depend_on_the_problems_beside_it() -> None:
    def seeds(asked: list[Problem], seed: int = 0) -> dict[str, int]:
        engine = engine_of(lambda name: "++")
        measure(engine, asked, 2, seed=seed)
        return {prompt.problem.id: given for prompt, _, _, given in engine.calls}

    all_of_them = seeds(problems(5))
    assert len(set(all_of_them.values())) == 5
    assert seeds(problems(5)[::-2]) == {name: all_of_them[name] for name in ("p4", "p2", "p0")}
    assert not set(seeds(problems(5), seed=1).values()) & set(all_of_them.values())


def test_the_engine_is_asked_once_a_problem_with_the_sampling_of_evaluation() -> None:
    engine = engine_of(lambda name: "+" * 5)
    measure(engine, problems(3), 5)
    assert [(prompt.problem.id, n, sampling) for prompt, n, sampling, _ in engine.calls] == [
        (name, 5, SAMPLING) for name in ("p0", "p1", "p2")
    ]


def test_an_evaluation_over_no_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        measure(engine_of(lambda name: "+"), [], 1)


class Dead(FakeEngine):
    async def sample(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> RolloutGroup:
        raise EngineError("out of memory")


def test_an_engine_that_fails_is_no_result() -> None:
    with pytest.raises(EngineError, match="out of memory"):
        measure(Dead(lambda prompt, index: ""), problems(2), 1)


class HangsOnWrong(FakeTask):
    """Scores right replies; for a wrong one nothing ever comes back."""

    async def score(self, problem: Problem, rollout: Rollout) -> Score:
        if rollout.text != "yes":
            await asyncio.Event().wait()
        return await super().score(problem, rollout)


def test_a_scorer_that_hangs_is_given_up_and_its_replies_are_wrong_with_an_error() -> None:
    patterns = {"p0": "+-", "p1": "++"}
    found = measure(
        engine_of(patterns), [problem(name) for name in patterns], 2, task=HangsOnWrong(), scoring_seconds=0.3
    )
    line = found.summary(1, "mine")
    assert (line["avg"], line["errors"]) == (0.75, 1)
    assert [score.error for score in found.results[0].scores] == [
        None,
        "the scorer gave no score back for 0.3 seconds and was given up",
    ]
    assert [score.reward for score in found.results[0].scores] == [1.0, -1.0]


def test_an_evaluation_without_faults_has_no_errors() -> None:
    assert summary({"p0": "+-"}, 2)["errors"] == 0
