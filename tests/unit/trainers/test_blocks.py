from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.trainers.blocks import Block, blocks_of
from dapo.trainers.packing import pack_flat

Groups = list[tuple[int, list[int]]]
"""Of each group the length of its prompt, and the lengths of its replies."""

some_groups: st.SearchStrategy[Groups] = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(1, 9), min_size=1, max_size=4)), min_size=1, max_size=7
)


def laid_out(groups: Groups) -> tuple[tuple[Block, ...], list[list[int]], list[list[int]]]:
    """The blocks of some groups; the places of each prompt and of each reply in the flat row, counted by hand."""
    prompts, replies, place = [], [], 0
    for prompt_length, lengths in groups:
        prompts.append(list(range(place, place + prompt_length)))
        place += prompt_length
        for length in lengths:
            replies.append(list(range(place, place + length)))
            place += length
    # Each group's prompt begins with its number, so that no two neighbours share one.
    rows = [((number,) * prompt, length) for number, (prompt, lengths) in enumerate(groups) for length in lengths]
    width = max(length for _, length in rows)
    packing = pack_flat(
        tuple(prompt for prompt, _ in rows),
        torch.zeros(len(rows), width, dtype=torch.long),
        torch.tensor([length for _, length in rows]),
    )
    assert packing.tokens_N.numel() == place
    return blocks_of(packing.groups), prompts, replies


def numbered(tokens: int) -> Tensor:
    """[N, 2, 3]: every entry is its place's own number with its head and column behind it."""
    return torch.arange(tokens).view(-1, 1, 1) * 100.0 + torch.tensor([[0.0, 1, 2], [10, 11, 12]])


def rows_of(padded_BAT: Tensor) -> list[list[int]]:
    """The places that stand in each row of a padded tensor of `numbered`, read from its first head and column."""
    return [[round(float(value)) // 100 for value in row[0, :, 0]] for row in padded_BAT]


def without_padding(rows: list[list[int]]) -> list[list[int]]:
    """Padding repeats the row's first place."""
    return [[row[0], *(place for place in row[1:] if place != row[0])] for row in rows]


@given(groups=some_groups)
@settings(max_examples=60, deadline=None)
def test_every_prompt_and_every_reply_stands_in_exactly_one_block(groups: Groups) -> None:
    blocks, prompts, replies = laid_out(groups)
    flat = numbered(sum(map(len, prompts)) + sum(map(len, replies)))

    found_prompts = [row for block in blocks for row in without_padding(rows_of(block.prompts(flat)))]
    found_replies = [row for block in blocks for row in without_padding(rows_of(block.replies(flat)))]

    assert sorted(found_prompts) == sorted(prompts)
    assert sorted(found_replies) == sorted(replies)


@given(groups=some_groups)
@settings(max_examples=60, deadline=None)
def test_a_block_holds_the_replies_of_each_of_its_prompts_in_order(groups: Groups) -> None:
    blocks, prompts, replies = laid_out(groups)
    of_prompt = {prompt[-1] + 1: len(lengths) for prompt, (_, lengths) in zip(prompts, groups, strict=True)}
    flat = numbered(sum(map(len, prompts)) + sum(map(len, replies)))
    for block in blocks:
        own_prompts = without_padding(rows_of(block.prompts(flat)))
        own_replies = without_padding(rows_of(block.replies(flat)))
        assert block.num_groups == len(own_prompts)
        size = len(own_replies) // block.num_groups
        for number, prompt in enumerate(own_prompts):
            assert of_prompt[prompt[-1] + 1] == size
            place = prompt[-1] + 1
            for reply in own_replies[number * size : (number + 1) * size]:
                assert reply[0] == place
                place = reply[-1] + 1
        # The bias says where a prompt is padded, and is there only if one is.
        lengths = [len(prompt) for prompt in own_prompts]
        if len(set(lengths)) == 1:
            assert block.bias_GP is None
        else:
            assert block.bias_GP is not None
            assert block.bias_GP.tolist() == [
                [0.0] * length + [-torch.inf] * (max(lengths) - length) for length in lengths
            ]


@given(groups=some_groups)
@settings(max_examples=40, deadline=None)
def test_what_is_put_back_is_what_was_taken_and_padding_is_not(groups: Groups) -> None:
    blocks, prompts, replies = laid_out(groups)
    flat = numbered(sum(map(len, prompts)) + sum(map(len, replies)))
    found = torch.full_like(flat, torch.nan)
    for block in blocks:
        for take, put, places in (
            (block.prompts, block.put_prompts, block.prompt),
            (block.replies, block.put_replies, block.reply),
        ):
            padded = take(flat)
            spoilt = padded.transpose(1, 2).flatten(0, 1).index_fill(0, places.padding, -5.0)
            put(found, spoilt.view(*places.places_BT.shape, 2, 3).transpose(1, 2))
    assert torch.equal(found, flat)


@given(groups=some_groups)
@settings(max_examples=40, deadline=None)
def test_clearing_sets_padding_and_nothing_else(groups: Groups) -> None:
    blocks, prompts, replies = laid_out(groups)
    flat = numbered(sum(map(len, prompts)) + sum(map(len, replies))) + 1.0
    flat_NA = flat[:, :, 0].contiguous()
    lengths = {row[0]: len(row) for row in [*prompts, *replies]}
    for block in blocks:
        for taken, cleared in (
            (block.prompts(flat_NA), block.without_prompt_padding),
            (block.replies(flat_NA), block.without_reply_padding),
        ):
            kept = taken.clone()
            for row, before in zip(cleared(taken), taken, strict=True):
                length = lengths[round(float(before[0, 0])) // 100]
                assert torch.equal(row[:, :length], before[:, :length])
                assert bool((row[:, length:] == torch.inf).all())
            assert torch.equal(taken, kept)


@given(groups=some_groups)
@settings(max_examples=40, deadline=None)
def test_replies_by_group_and_back(groups: Groups) -> None:
    blocks, prompts, replies = laid_out(groups)
    flat = numbered(sum(map(len, prompts)) + sum(map(len, replies)))
    for block in blocks:
        padded = block.replies(flat)
        size, width = padded.shape[0] // block.num_groups, padded.shape[2]
        together = block.by_group(padded)
        assert together.shape == (block.num_groups, 2, size * width, 3)
        for group in range(block.num_groups):
            for reply in range(size):
                part = together[group, :, reply * width : (reply + 1) * width]
                assert torch.equal(part, padded[group * size + reply])
        assert torch.equal(block.by_reply(together), padded)
        # A number a head and token, as log-normalisers are.
        assert torch.equal(block.by_reply(block.by_group(padded[..., 0])), padded[..., 0])


def shapes(groups: Groups) -> list[tuple[int, int, int]]:
    """Groups, replies of each and width of every block."""
    return [
        (block.num_groups, block.reply.places_BT.shape[0] // block.num_groups, block.reply.places_BT.shape[1])
        for block in laid_out(groups)[0]
    ]


def test_groups_share_a_block_while_little_is_padded() -> None:
    """Two groups of 4 and 5 tokens would have 10 places for 9: less than a quarter more. 2 and 5: 10 for 7, too many."""
    assert shapes([(3, [5, 1]), (1, [4, 4])]) == [(2, 2, 5)]
    assert shapes([(3, [5, 1]), (1, [2, 2])]) == [(1, 2, 2), (1, 2, 5)]
    assert shapes([(3, [5, 1]), (1, [5])]) == [(1, 1, 5), (1, 2, 5)]  # another number of replies
    # Against what all have alone: 4 + 5 + 6 = 15 places, and three times 6 are 18 <= 18.75.
    assert shapes([(1, [6]), (1, [4]), (1, [5])]) == [(3, 1, 6)]
    assert shapes([(1, [2]), (1, [3]), (1, [9])]) == [(2, 1, 3), (1, 1, 9)]
