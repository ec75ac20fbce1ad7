"""Uses a policy without training it: opens one from a run or a model, asks it, measures it.

| module    | what is in it                                                             |
|-----------|---------------------------------------------------------------------------|
| policy    | a model or a run's newest checkpoint, ready to answer                     |
| by_recipe | measured on the held-out problems of a recipe                             |
| on_file   | measured on a file of problems, into a folder that can be gone on with    |
| saved     | saved evaluations: graded again, compared                                 |
"""

from __future__ import annotations

from dapo.inference.by_recipe import config_for_evaluation, evaluate_policy
from dapo.inference.on_file import EvaluationPlan, EvaluationRequest, plan_evaluation, run_evaluation
from dapo.inference.policy import Policy, open_policy, sample_replies
from dapo.inference.saved import Measured, compare_evaluations, newest_evaluation, regrade

__all__ = [
    "EvaluationPlan",
    "EvaluationRequest",
    "Measured",
    "Policy",
    "compare_evaluations",
    "config_for_evaluation",
    "evaluate_policy",
    "newest_evaluation",
    "open_policy",
    "plan_evaluation",
    "regrade",
    "run_evaluation",
    "sample_replies",
]
