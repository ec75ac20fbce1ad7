"""The real package, where it is installed. One test, because starting it takes seconds."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest

from dapo.errors import ConfigError
from dapo.tasks.config import ReasoningGymConfig
from dapo.types import Score
from tests.unit.tasks.replies import score


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="needs the package reasoning-gym")
def test_the_real_package() -> None:
    task = ReasoningGymConfig(name="countdown", size=4, held_out=2, score_seconds=0.5).build(1)
    problem = task.train_problems()[0]
    assert score(task, problem, problem.answer) == Score(correct=True, reward=1.0, extracted=problem.answer)
    assert score(task, problem, "9**9**9").error == "the scorer took more than 0.5 seconds"
    assert score(task, problem, problem.answer).correct
    sums = ReasoningGymConfig(name="chain_sum", options={"max_terms": 2}, size=5, held_out=5).build(1)
    assert all(score(sums, one, one.answer).correct for one in sums.train_problems())
    with pytest.raises(ConfigError, match="did you mean 'chain_sum'"):
        ReasoningGymConfig(name="chain_sums").check()
    assert "reasoning_gym" not in sys.modules
    assert os.environ.get("PYTHONHASHSEED") != "0"
