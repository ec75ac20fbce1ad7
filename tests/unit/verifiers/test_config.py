"""The `verifier` table of a recipe."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from dapo.verifiers import VerifierConfig


class Holder(BaseModel):
    verifier: VerifierConfig = VerifierConfig()


def test_a_name_alone_is_a_config() -> None:
    assert Holder.model_validate({"verifier": "dapo"}).verifier == VerifierConfig(name="dapo")
    assert Holder.model_validate({"verifier": {"watch": "dapo"}}).verifier == VerifierConfig(name="math", watch="dapo")
    assert Holder().verifier == VerifierConfig(name="math", watch=None, seconds=5.0, memory_mb=1024, workers=2)


def test_a_verifier_cannot_watch_itself() -> None:
    with pytest.raises(ValidationError, match="would watch itself"):
        VerifierConfig(name="math", watch="math")


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"memory_mb": 100}, {"workers": 0}, {"name": "other"}, {"no": 1}])
def test_wrong_values_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        VerifierConfig.model_validate(wrong)


def test_it_builds_a_pool() -> None:
    with VerifierConfig(name="dapo", watch="math", workers=3).build() as pool:
        assert (pool.verifier, pool.watch, pool.num_workers) == ("dapo", "math", 3)
