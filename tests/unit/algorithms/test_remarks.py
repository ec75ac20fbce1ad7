from __future__ import annotations

from dapo.algorithms.grpo import GRPOConfig
from dapo.algorithms.relatives import ClipCovConfig, KLCovConfig


def test_k1_in_the_loss_holds_nothing_and_is_remarked_on() -> None:
    (remark,) = GRPOConfig(kl_estimator="k1").remarks(1000)
    assert "does not hold the policy near the reference" in remark
    assert GRPOConfig(kl_estimator="k3").remarks(1000) == []
    assert GRPOConfig(kl_estimator="k1", kl_beta=0).remarks(1000) == []


def test_a_share_that_chooses_no_token_is_remarked_on() -> None:
    for config in (ClipCovConfig(share=2e-4), KLCovConfig(share=2e-4)):
        (remark,) = config.remarks(4_999)
        assert "none is ever chosen" in remark
        assert config.remarks(5_000) == []
