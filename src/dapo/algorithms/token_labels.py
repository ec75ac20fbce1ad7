"""Labels that differ from token to token, and tokens that are chosen from a whole step. Letters: B rows, T reply tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from dapo.algorithms.value import ADVANTAGES, CHOSEN, OLD_LOGPROBS, REFERENCE_LOGPROBS, RETURNS, VALUES
from dapo.maths.advantages import at_last_token, generalised_advantages, group_means, rewards_to_go, whitened
from dapo.maths.covariance import largest, token_covariance, within_bounds
from dapo.maths.kl import ESTIMATORS
from dapo.types import Batch, Columns, LabelledBatch, Mean, Stat

Label = Callable[[Batch, Columns], LabelledBatch]


def label_by_critic(
    *, mask_truncated: bool, discount: float, decay: float, whiten: bool, kl_beta: float, kl_estimator: str
) -> Label:
    """PPO's: GAE over the critic's values. The reward stands on a reply's last token, the KL on each."""

    def label(batch: Batch, notes: Columns) -> LabelledBatch:
        trained_BT = trained_tokens(batch, mask_truncated)
        rewards_BT, stats = token_rewards(batch, batch.rewards_B, notes, trained_BT, kl_beta, kl_estimator)
        values_BT = torch.where(trained_BT, notes[VALUES], 0.0)
        advantages_BT, returns_BT = generalised_advantages(
            rewards_BT, values_BT, trained_BT, discount=discount, decay=decay
        )
        columns = {**notes, VALUES: values_BT, RETURNS: returns_BT}
        columns[ADVANTAGES] = whitened(advantages_BT, trained_BT) if whiten else advantages_BT
        stats["value/explained_variance"] = explained_variance(values_BT, returns_BT, trained_BT)
        return LabelledBatch(batch=batch, trained_BT=trained_BT, columns=columns, stats=stats)

    return label


def label_by_reward_to_go(*, mask_truncated: bool, group_baseline: bool, kl_beta: float, kl_estimator: str) -> Label:
    """REINFORCE++'s: the reward from each token on, whitened over all tokens of the step."""

    def label(batch: Batch, notes: Columns) -> LabelledBatch:
        trained_BT = trained_tokens(batch, mask_truncated)
        rewards_B = batch.rewards_B
        if group_baseline:
            rewards_B = rewards_B - group_means(rewards_B, batch.group_B, torch.isfinite(rewards_B))[0]
        rewards_BT, stats = token_rewards(batch, rewards_B, notes, trained_BT, kl_beta, kl_estimator)
        advantages_BT = whitened(rewards_to_go(rewards_BT, trained_BT), trained_BT)
        return LabelledBatch(
            batch=batch, trained_BT=trained_BT, columns={**notes, ADVANTAGES: advantages_BT}, stats=stats
        )

    return label


def choose_within_bounds(label: Label, *, low: float, high: float, share: float) -> Label:
    """Clip-Cov's choice of tokens, from the whole step, so that it does not depend on how the step is cut up."""

    def choose(batch: Batch, covariance_BT: Tensor, trained_BT: Tensor) -> Tensor:
        seed = int(batch.version_B.max())
        return within_bounds(covariance_BT, trained_BT, low=low, high=high, share=share, seed=seed)

    return _choosing(label, choose)


def choose_largest(label: Label, *, share: float) -> Label:
    """KL-Cov's choice of tokens, from the whole step."""

    def choose(batch: Batch, covariance_BT: Tensor, trained_BT: Tensor) -> Tensor:
        return largest(covariance_BT, trained_BT, share=share)

    return _choosing(label, choose)


def _choosing(label: Label, choose: Callable[[Batch, Tensor, Tensor], Tensor]) -> Label:
    def labelled_and_chosen(batch: Batch, notes: Columns) -> LabelledBatch:
        labelled = label(batch, notes)
        covariance_BT = token_covariance(notes[OLD_LOGPROBS], labelled.columns[ADVANTAGES], labelled.trained_BT)
        chosen_BT = choose(batch, covariance_BT, labelled.trained_BT).to(covariance_BT.dtype)
        return replace(labelled, columns={**labelled.columns, CHOSEN: chosen_BT})

    return labelled_and_chosen


def trained_tokens(batch: Batch, mask_truncated: bool) -> Tensor:
    """The tokens that the policy wrote, without those of truncated replies if these are filtered."""
    return batch.mask_BT & ~batch.truncated_B.unsqueeze(1) if mask_truncated else batch.mask_BT


def token_rewards(
    batch: Batch, rewards_B: Tensor, notes: Columns, trained_BT: Tensor, kl_beta: float, kl_estimator: str
) -> tuple[Tensor, dict[str, Stat]]:
    """A reply's reward on its last token, minus kl_beta times the KL on each. Rewards that are not finite count as 0."""
    finite_B = torch.where(torch.isfinite(rewards_B), rewards_B, 0.0)
    rewards_BT = at_last_token(finite_B, trained_BT)
    if kl_beta == 0:
        return rewards_BT, {}
    kl_BT = ESTIMATORS[kl_estimator](notes[OLD_LOGPROBS], notes[REFERENCE_LOGPROBS])
    kl_BT = torch.where(trained_BT, kl_BT, 0.0)
    stats: dict[str, Stat] = {"policy/kl": Mean(total=float(kl_BT.sum()), count=float(trained_BT.sum()))}
    return rewards_BT - kl_beta * kl_BT, stats


def explained_variance(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Mean:
    """1 - Var(returns - values) / Var(returns) over the tokens in the mask: 1 is a perfect critic, 0 one that knows nothing."""
    returns, values = returns_BT[mask_BT].double(), values_BT[mask_BT].double()
    spread = float(returns.var(correction=0)) if returns.numel() else 0.0
    if spread <= 1e-12:
        return Mean(total=0.0, count=0.0)
    return Mean(total=1.0 - float((returns - values).var(correction=0)) / spread, count=1.0)
