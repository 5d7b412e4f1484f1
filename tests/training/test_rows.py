"""The layout of rollouts in rows, micro-batches and ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.training.rows import (
    MAX_PADDING,
    PromptRollouts,
    input_tokens,
    make_blocks,
    micro_batches,
    plan,
    rollouts_per_block,
    split_updates,
    tokens_of,
)


@st.composite
def groups_of_rollouts(draw: st.DrawFn) -> list[PromptRollouts]:
    groups, next_place = [], 0
    for _ in range(draw(st.integers(0, 6))):
        lengths = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=9)))
        places = tuple(range(next_place, next_place + len(lengths)))
        next_place += len(lengths)
        groups.append(PromptRollouts(draw(st.integers(1, 60)), places, lengths))
    return groups


@given(groups_of_rollouts(), st.sampled_from(["auto", "shared_prefix", "rows"]), st.integers(8, 300), st.integers(1, 4))
def test_every_rollout_is_computed_once_and_every_rank_has_as_many_batches(groups, layout, budget, ranks):
    plans = plan(groups, layout, 64, budget, ranks)
    assert len(plans) == ranks
    assert len({len(batches) for batches in plans}) == 1
    assert len(plans[0]) >= 1
    blocks = [block for batches in plans for batch in batches for row in batch for block in row]
    expected = sorted(place for group in groups for place in group.rollouts)
    assert sorted(place for block in blocks for place in block.rollouts) == expected
    for block in blocks:
        assert set(block.rollouts) <= set(groups[block.group].rollouts)


@given(groups_of_rollouts(), st.sampled_from(["auto", "shared_prefix", "rows"]), st.integers(8, 300))
def test_micro_batches_keep_within_their_tokens_and_hardly_pad(groups, layout, budget):
    for batch in micro_batches(make_blocks(groups, layout, 64, budget), 64, budget):
        tokens = [tokens_of(row) for row in batch]
        computed = len(batch) * max(tokens)
        assert computed <= budget or sum(len(row) for row in batch) == 1
        assert computed - sum(tokens) <= MAX_PADDING * computed


def test_a_long_block_does_not_lengthen_the_rows_of_short_ones():
    groups = [PromptRollouts(2000, (0,), (20,)), *(PromptRollouts(100, (k,), (20,)) for k in range(1, 20))]
    batches = micro_batches(make_blocks(groups, "auto", 64, 10**6), 64, 10**6)
    assert [max(map(tokens_of, batch)) > 1000 for batch in batches] == [True, False]
    together = [PromptRollouts(100, (k,), (20,)) for k in range(20)]
    assert len(micro_batches(make_blocks(together, "auto", 64, 10**6), 64, 10**6)) == 1


def test_equal_blocks_stay_in_rows_of_their_own():
    groups = [PromptRollouts(300, tuple(range(8 * k, 8 * k + 8)), (64,) * 8) for k in range(8)]
    (batch,) = micro_batches(make_blocks(groups, "shared_prefix", 64, 10**6), 64, 10**6)
    assert [len(row) for row in batch] == [1] * 8


def test_row_9_a_rank_without_rollouts_still_has_a_micro_batch():
    one = [PromptRollouts(5, (0,), (3,))]
    assert [len(batches) for batches in plan(one, "auto", 64, 100, 3)] == [1, 1, 1]
    assert [len(batches) for batches in plan([], "auto", 64, 100, 2)] == [1, 1]


def test_uneven_work_is_balanced():
    groups = [PromptRollouts(10, tuple(range(16)), (20,) * 16), PromptRollouts(10, (16,), (20,))]
    plans = plan(groups, "rows", 64, 1000, 2)
    counts = [sum(len(row) for batch in batches for row in batch) for batches in plans]
    assert sorted(counts) == [8, 9]


def test_the_last_token_of_a_response_is_not_fed():
    assert input_tokens(10, [4, 1]) == 13


def test_layouts_choose_rollouts_per_block():
    long_prompt = PromptRollouts(300, tuple(range(8)), (20,) * 8)
    long_answers = PromptRollouts(10, tuple(range(8)), (2000,) * 8)
    assert rollouts_per_block(long_prompt, "rows", 64, 10**6) == 1
    assert rollouts_per_block(long_prompt, "shared_prefix", 64, 10**6) == 8
    assert rollouts_per_block(long_prompt, "auto", 64, 10**6) == 8
    assert rollouts_per_block(long_answers, "auto", 64, 10**6) == 1
    assert rollouts_per_block(long_prompt, "shared_prefix", 64, 400) == 5


@given(st.integers(0, 200), st.integers(1, 9))
def test_updates_split_the_batch_into_near_equal_parts(rollouts, updates):
    parts = split_updates(rollouts, updates, None)
    assert [place for part in parts for place in part] == list(range(rollouts))
    assert len(parts) == min(updates, rollouts)
    if parts:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(0, 200), st.integers(1, 64))
def test_the_authors_way_fixes_the_size_of_a_step(rollouts, size):
    parts = split_updates(rollouts, None, size)
    assert [place for part in parts for place in part] == list(range(rollouts))
    assert all(len(part) == size for part in parts[:-1])


def test_one_of_the_two_ways_is_needed():
    with pytest.raises(ValueError, match="updates or mini_batch"):
        split_updates(4, None, None)
