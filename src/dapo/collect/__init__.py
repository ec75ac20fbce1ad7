"""Dynamic sampling: draw prompts until a step has its groups, and account for every group that was generated.

plan      how much to collect, and how many prompts to have under way
attempts  one group: asked for, graded within a limit, judged
handover  groups between engine and judge, and the engine that waits for them
streaming a step's groups as they come: a finished one makes room for the next prompt
ledger    what became of every group, in numbers
step      one step: what earlier steps left, what was generated, who is trained on
shortage  what to say of a step that found too little
standing  all that goes from step to step, as JSON
"""

from __future__ import annotations

from dapo.collect.attempts import score_group
from dapo.collect.plan import CollectPlan, WhenShort, prompts_under_way
from dapo.collect.shortage import (
    MAX_STEPS_WITHOUT_UPDATE,
    SOLVED_ACCURACY,
    given_up,
    goes_on,
    looks_solved,
    no_signal,
    shortage,
    without_waiting,
)
from dapo.collect.standing import Standing
from dapo.collect.step import collect

__all__ = [
    "MAX_STEPS_WITHOUT_UPDATE",
    "SOLVED_ACCURACY",
    "CollectPlan",
    "Standing",
    "WhenShort",
    "collect",
    "given_up",
    "goes_on",
    "looks_solved",
    "no_signal",
    "prompts_under_way",
    "score_group",
    "shortage",
    "without_waiting",
]
