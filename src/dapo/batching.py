"""ScoredGroups -> Batch -> Minibatches -> micro-batches, all pure. Letters: B rows, T reply tokens.

The driver decides here what every token weighs; how rows are then spread over micro-batches and ranks changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dapo.types import Batch, LabelledBatch, Minibatch, ScoredGroup


def pack(groups: Sequence[ScoredGroup]) -> Batch:
    """Lay the replies of some groups out as tensors, row by row in group order. Raises ValueError without a group."""
    rows = [(number, group, scored) for number, group in enumerate(groups) for scored in group.rollouts]
    if not rows:
        raise ValueError("a batch of no reply was asked for; pack at least one group")
    width = max(scored.rollout.length for _, _, scored in rows)
    tokens_BT = torch.zeros(len(rows), width, dtype=torch.long)
    mask_BT = torch.zeros(len(rows), width, dtype=torch.bool)
    sampled_BT = torch.zeros(len(rows), width)
    for row, (_, _, scored) in enumerate(rows):
        length = scored.rollout.length
        tokens_BT[row, :length] = torch.tensor(scored.rollout.token_ids, dtype=torch.long)
        mask_BT[row, :length] = torch.tensor(scored.rollout.mask, dtype=torch.bool)
        sampled_BT[row, :length] = torch.tensor(scored.rollout.logprobs)
    return Batch(
        prompt_ids=tuple(group.prompt.token_ids for _, group, _ in rows),
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        lengths_B=torch.tensor([scored.rollout.length for _, _, scored in rows]),
        sampled_logprobs_BT=sampled_BT,
        rewards_B=torch.tensor([scored.reward for _, _, scored in rows], dtype=torch.float32),
        group_B=torch.tensor([number for number, _, _ in rows]),
        truncated_B=torch.tensor([scored.rollout.is_truncated for _, _, scored in rows]),
        version_B=torch.tensor([scored.rollout.policy_version for _, _, scored in rows]),
    )


def minibatch_rows(labelled: LabelledBatch, count: int) -> list[list[int]]:
    """Say which rows of a batch make up each of at most `count` optimizer steps: whole groups, in group order.

    Groups are spread as evenly as they go. A part in which no token trains is left out: it would be a step of
    nothing but weight decay.
    """
    group_B = labelled.batch.group_B
    num_groups = int(group_B.max()) + 1
    parts = torch.arange(num_groups).tensor_split(min(count, num_groups))
    rows = [torch.isin(group_B, chosen).nonzero().squeeze(1) for chosen in parts]
    return [rows_B.tolist() for rows_B in rows if bool(labelled.trained_BT[rows_B].any())]


def minibatches(labelled: LabelledBatch, weigh: Callable[[Tensor, Tensor], Tensor], count: int) -> list[Minibatch]:
    """Cut a batch into optimizer steps, as `minibatch_rows` says, and weigh the tokens of each."""
    batch = labelled.batch
    parts: list[Minibatch] = []
    for rows in minibatch_rows(labelled, count):
        rows_B = torch.tensor(rows, dtype=torch.long)
        trained_BT = labelled.trained_BT[rows_B]
        parts.append(
            Minibatch(
                prompt_ids=tuple(batch.prompt_ids[row] for row in rows),
                tokens_BT=batch.tokens_BT[rows_B],
                lengths_B=batch.lengths_B[rows_B],
                version_B=batch.version_B[rows_B],
                sampled_logprobs_BT=batch.sampled_logprobs_BT[rows_B],
                trained_BT=trained_BT,
                weight_BT=weigh(trained_BT, batch.group_B[rows_B]),
                columns={name: column[rows_B] for name, column in labelled.columns.items()},
            )
        )
    return parts


def padded_micro_batches(prompt_ids: Sequence[Sequence[int]], lengths_B: Tensor, max_tokens: int) -> list[list[int]]:
    """Spread rows over micro-batches of at most `max_tokens` positions, padding included; return lists of row numbers.

    Rows of like length share a micro-batch, so that little is padding. A row longer than the budget stands alone:
    rows are never cut, since some losses look at whole replies.
    """
    lengths = [(len(prompt_ids[row]), int(lengths_B[row])) for row in range(len(prompt_ids))]
    order = sorted(range(len(lengths)), key=lambda row: (sum(lengths[row]), row), reverse=True)
    parts: list[list[int]] = []
    prompt_width = reply_width = 0
    for row in order:
        prompt_width, reply_width = max(prompt_width, lengths[row][0]), max(reply_width, lengths[row][1])
        if parts and (prompt_width + reply_width) * (len(parts[-1]) + 1) <= max_tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
            prompt_width, reply_width = lengths[row]
    return parts


def packed_micro_batches(prompt_ids: Sequence[Sequence[int]], lengths_B: Tensor, max_tokens: int) -> list[list[int]]:
    """Spread rows over micro-batches of at most `max_tokens` positions where neighbours share their prompt.

    Rows stay in order, so the replies of a group stand together. A prompt counts once for all of its neighbours. A row
    longer than the budget stands alone.
    """
    parts: list[list[int]] = []
    used = 0
    for row, prompt in enumerate(prompt_ids):
        length = int(lengths_B[row])
        shares = bool(parts) and prompt_ids[parts[-1][-1]] == prompt
        cost = length if shares else length + len(prompt)
        if parts and used + cost <= max_tokens:
            parts[-1].append(row)
            used += cost
        else:
            parts.append([row])
            used = length + len(prompt)
    return parts


def select_rows(minibatch: Minibatch, rows: Sequence[int]) -> Minibatch:
    """Return some rows of a mini-batch with the columns they need: T becomes the longest of the chosen replies."""
    index = torch.tensor(list(rows), dtype=torch.long)
    width = int(minibatch.lengths_B[index].max())

    def cut(column: Tensor) -> Tensor:
        return column[index, :width]

    return Minibatch(
        prompt_ids=tuple(minibatch.prompt_ids[row] for row in rows),
        tokens_BT=cut(minibatch.tokens_BT),
        lengths_B=minibatch.lengths_B[index],
        version_B=minibatch.version_B[index],
        sampled_logprobs_BT=cut(minibatch.sampled_logprobs_BT),
        trained_BT=cut(minibatch.trained_BT),
        weight_BT=cut(minibatch.weight_BT),
        columns={name: cut(column) for name, column in minibatch.columns.items()},
    )
