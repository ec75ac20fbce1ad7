from __future__ import annotations

import torch

from dapo.trainers.packing import pack_flat


def test_a_prompt_stands_once_before_its_replies() -> None:
    """Prompt (1, 2) with replies 11 12 and 21; prompt (3) with the reply 31 32 33."""
    packing = pack_flat(
        ((1, 2), (1, 2), (3,)),
        torch.tensor([[11, 12, 0], [21, 0, 0], [31, 32, 33]]),
        torch.tensor([2, 1, 3]),
    )
    assert packing.tokens_N.tolist() == [1, 2, 11, 12, 21, 3, 31, 32, 33]
    # A reply's positions go on from its prompt's, whatever stands between.
    assert packing.positions_N.tolist() == [0, 1, 2, 3, 2, 0, 1, 2, 3]
    # The prompt's last place predicts the first token of each of its replies.
    assert packing.predictor_M.tolist() == [1, 2, 1, 5, 6, 7]
    assert list(zip(packing.row_M.tolist(), packing.column_M.tolist(), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    first, second = packing.groups
    assert (first.start, first.prompt_length, first.end) == (0, 2, 5)
    assert (second.start, second.prompt_length, second.end) == (5, 1, 9)
    assert first.padded_RT.tolist() == [[2, 3], [4, 4]]
    assert first.valid_M.tolist() == [0, 1, 2]
    assert second.padded_RT.tolist() == [[6, 7, 8]]


def test_equal_prompts_share_only_where_they_are_neighbours() -> None:
    packing = pack_flat(((7,), (8,), (7,)), torch.tensor([[1], [2], [3]]), torch.tensor([1, 1, 1]))
    assert packing.tokens_N.tolist() == [7, 1, 8, 2, 7, 3]
    assert len(packing.groups) == 3
