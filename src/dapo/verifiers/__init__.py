"""Is the final answer of a response equal to the gold? Two verifiers, and a pool that holds them to limits.

    grade("… so the answer is \\\\boxed{540}.", "540").correct      # True, in this process

    with VerifierPool("math", watch="dapo") as pool:              # limits on time and memory, many replies
        grades = pool.grade_many([Reply(response=…, gold=…), …])

docs/verifier.md says what counts as an answer and how often each verifier errs.
"""

from __future__ import annotations

from dapo.verifiers.config import VerifierConfig
from dapo.verifiers.grades import Grade, Reply, VerifierName, disagreement_rate
from dapo.verifiers.grading import grade
from dapo.verifiers.pool import PoolCounts, VerifierPool

__all__ = [
    "Grade",
    "PoolCounts",
    "Reply",
    "VerifierConfig",
    "VerifierName",
    "VerifierPool",
    "disagreement_rate",
    "grade",
]
