"""How kept rollouts are laid out for the forward pass: blocks, rows, micro-batches, ranks. Plain numbers, no tensors.

A block is a prompt followed by one or more of its rollouts (the shared-prefix layout; one rollout a block is the plain
one). A row of the batch holds one or more blocks that do not see each other, so that hardly a token is padding. The
loss weighs every token by the optimiser step's own denominators, so no choice made here can change a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["auto", "shared_prefix", "rows"]

MAX_PADDING = 0.05
"""Share of a micro-batch's computed tokens that may be padding."""
PASS_COST = 512
"""What one more pass costs, whatever is in it, in the units of `row_cost`."""


@dataclass(frozen=True)
class PromptRollouts:
    """The rollouts of one optimiser step that share a prompt: `rollouts` are their places in the step's list."""

    prompt_tokens: int
    rollouts: tuple[int, ...]
    lengths: tuple[int, ...]
    """Response tokens of each rollout."""


@dataclass(frozen=True)
class Block:
    """A prompt with rollouts behind it: the group's place in the step's list, and which of its rollouts."""

    group: int
    rollouts: tuple[int, ...]
    tokens: int


Row: TypeAlias = tuple[Block, ...]
MicroBatch: TypeAlias = tuple[Row, ...]


def input_tokens(prompt_tokens: int, lengths: Sequence[int]) -> int:
    """Tokens a block feeds to the model: a response's last token predicts nothing and stays out."""
    return prompt_tokens + sum(length - 1 for length in lengths)


def row_cost(tokens: int, hidden_size: int) -> float:
    """Relative cost of a row under a dense mask: about 24 d^2 FLOPs a token and layer for the projections and the MLP,
    and 4 d L for attention over L tokens."""
    return tokens * (1 + tokens / (6 * hidden_size))


def rollouts_per_block(group: PromptRollouts, layout: Layout, hidden_size: int, max_tokens: int) -> int:
    """How many rollouts follow one copy of the prompt: as many as fit (`shared_prefix`), one (`rows`), or the
    cheapest."""
    if layout == "rows":
        return 1
    best, best_cost = 1, float("inf")
    for size in range(1, len(group.rollouts) + 1):
        chunks = [group.lengths[i : i + size] for i in range(0, len(group.lengths), size)]
        tokens = [input_tokens(group.prompt_tokens, chunk) for chunk in chunks]
        if size > 1 and max(tokens) > max_tokens:
            break
        cost = sum(row_cost(count, hidden_size) for count in tokens)
        if layout == "shared_prefix" or cost < best_cost:
            best, best_cost = size, cost
    return best


def make_blocks(groups: Sequence[PromptRollouts], layout: Layout, hidden_size: int, max_tokens: int) -> list[Block]:
    """All blocks of an optimiser step, in the order of the groups."""
    blocks = []
    for place, group in enumerate(groups):
        size = rollouts_per_block(group, layout, hidden_size, max_tokens)
        for start in range(0, len(group.rollouts), size):
            part = slice(start, start + size)
            tokens = input_tokens(group.prompt_tokens, group.lengths[part])
            blocks.append(Block(place, group.rollouts[part], tokens))
    return blocks


def share_blocks(blocks: Sequence[Block], ranks: int, hidden_size: int) -> list[list[Block]]:
    """Give each rank about the same work: blocks from the longest to the shortest, each to the least loaded rank."""
    shares: list[list[Block]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for block in sorted(blocks, key=lambda block: -block.tokens):
        rank = loads.index(min(loads))
        shares[rank].append(block)
        loads[rank] += row_cost(block.tokens, hidden_size)
    return shares


def micro_batches(blocks: Sequence[Block], hidden_size: int, max_tokens: int) -> list[MicroBatch]:
    """Cut blocks, longest first, into micro-batches of at most `max_tokens` tokens, these where it is cheaper into ones
    of blocks of like length, and each into rows."""
    batches: list[list[Block]] = []
    tokens = 0
    for block in sorted(blocks, key=lambda block: -block.tokens):
        if batches and tokens + block.tokens <= max_tokens:
            batches[-1].append(block)
            tokens += block.tokens
        else:
            batches.append([block])
            tokens = block.tokens
    return [part for batch in batches for part in by_length(tuple(batch), hidden_size, max_tokens)]


def by_length(blocks: tuple[Block, ...], hidden_size: int, max_tokens: int) -> list[MicroBatch]:
    """One micro-batch of blocks that are sorted from the longest, or several where some are much longer than others: a
    row as long as the longest would make attention dear for all."""

    @cache
    def cheapest(start: int) -> tuple[float, list[MicroBatch]]:
        found = [one_or_more(start, len(blocks))]
        for share in (0.75, 0.5):
            shorter = (k for k in range(start, len(blocks)) if blocks[k].tokens < share * blocks[start].tokens)
            found += [one_or_more(start, stop) for stop in itertools.islice(shorter, 1)]
        return min(found, key=lambda choice: choice[0])

    def one_or_more(start: int, stop: int) -> tuple[float, list[MicroBatch]]:
        batch = arrange(blocks[start:stop], hidden_size, max_tokens)
        cost = PASS_COST + len(batch) * row_cost(max(map(tokens_of, batch)), hidden_size)
        if stop == len(blocks):
            return cost, [batch]
        rest, others = cheapest(stop)
        return cost + rest, [batch, *others]

    return cheapest(0)[1]


def arrange(blocks: Sequence[Block], hidden_size: int, max_tokens: int) -> MicroBatch:
    """The cheapest rows for blocks that are sorted from the longest: many short rows cost less attention, few long ones
    less padding. One row of all blocks has none, so there is always a choice within the limits."""
    total = sum(block.tokens for block in blocks)
    best: tuple[float, MicroBatch] | None = None
    for count in row_counts(len(blocks)):
        rows = narrowest(blocks, count)
        width = max(map(tokens_of, rows))
        computed = len(rows) * width
        if len(rows) > 1 and (computed > max_tokens or computed - total > MAX_PADDING * computed):
            continue
        cost = len(rows) * row_cost(width, hidden_size)
        if best is None or cost < best[0]:
            best = cost, tuple(map(tuple, rows))
    assert best is not None
    return best[1]


def row_counts(blocks: int) -> list[int]:
    """Numbers of rows to try: every small one, then about four to each doubling, and one for each block."""
    counts = {1, blocks}
    count = 1.0
    while count < blocks:
        counts.add(int(count))
        count = max(count + 1, 1.2 * count)
    return sorted(counts)


def narrowest(blocks: Sequence[Block], count: int) -> list[list[Block]]:
    """Blocks, sorted from the longest, in at most `count` rows of nearly the least width: first fit at a width that is
    searched by halving (MULTIFIT, Coffman et al. 1978)."""
    total, longest = sum(block.tokens for block in blocks), blocks[0].tokens
    mean = -(-total // count)
    low, high = max(longest, mean), max(longest, 2 * mean)  # first fit needs no more than the latter
    best = first_fit(blocks, high)
    while low < high:
        width = (low + high) // 2
        rows = first_fit(blocks, width)
        if len(rows) <= count:
            best, high = rows, width
        else:
            low = width + 1
    return best


def first_fit(blocks: Sequence[Block], width: int) -> list[list[Block]]:
    """Each block in the first row that has room for it."""
    rows: list[list[Block]] = []
    room: list[int] = []
    for block in blocks:
        place = next((place for place, left in enumerate(room) if left >= block.tokens), None)
        if place is None:
            rows.append([block])
            room.append(width - block.tokens)
        else:
            rows[place].append(block)
            room[place] -= block.tokens
    return rows


def tokens_of(row: Sequence[Block]) -> int:
    """Tokens of a row."""
    return sum(block.tokens for block in row)


def plan(
    groups: Sequence[PromptRollouts], layout: Layout, hidden_size: int, max_tokens: int, ranks: int
) -> list[list[MicroBatch]]:
    """The micro-batches of every rank for one optimiser step. Every rank gets the same number, at least one: the
    shorter lists end in empty micro-batches, which the policy runs as dummies of weight zero."""
    blocks = make_blocks(groups, layout, hidden_size, max_tokens)
    shares = share_blocks(blocks, ranks, hidden_size)
    plans = [micro_batches(share, hidden_size, max_tokens) for share in shares]
    count = max(1, *(len(batches) for batches in plans))
    return [batches + [()] * (count - len(batches)) for batches in plans]


def split_updates(rollouts: int, updates: int | None, mini_batch: int | None) -> list[range]:
    """Cut the kept rollouts of a batch into optimiser steps: `updates` near-equal parts (fewer where there are fewer
    rollouts), or parts of `mini_batch` rollouts, the last one ragged."""
    if rollouts == 0:
        return []
    if updates is not None:
        count = min(updates, rollouts)
        edges = [rollouts * part // count for part in range(count + 1)]
        return [range(start, stop) for start, stop in itertools.pairwise(edges)]
    if mini_batch is None:
        raise ValueError("either updates or mini_batch is needed")
    return [range(start, min(start + mini_batch, rollouts)) for start in range(0, rollouts, mini_batch)]
