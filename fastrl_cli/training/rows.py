"""How kept rollouts are laid out for the forward pass: rows, micro-batches, ranks. Plain numbers, no tensors.

A row is a prompt followed by one or more of its rollouts (the shared-prefix layout; one rollout a row is the plain
one). The loss weighs every token by the optimiser step's own denominators, so no choice made here can change a
gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["auto", "shared_prefix", "rows"]


@dataclass(frozen=True)
class PromptRollouts:
    """The rollouts of one optimiser step that share a prompt: `rollouts` are their places in the step's list."""

    prompt_tokens: int
    rollouts: tuple[int, ...]
    lengths: tuple[int, ...]
    """Response tokens of each rollout."""


@dataclass(frozen=True)
class Row:
    """One row of a micro-batch: the group's place in the step's list, and which of its rollouts follow the prompt."""

    group: int
    rollouts: tuple[int, ...]
    tokens: int


MicroBatch: TypeAlias = tuple[Row, ...]


def input_tokens(prompt_tokens: int, lengths: Sequence[int]) -> int:
    """Tokens a row feeds to the model: a response's last token predicts nothing and stays out."""
    return prompt_tokens + sum(length - 1 for length in lengths)


def row_cost(tokens: int, hidden_size: int) -> float:
    """Relative cost of a row under a dense mask: about 24 d^2 FLOPs a token and layer for the projections and the MLP,
    and 4 d L for attention over L tokens."""
    return tokens * (1 + tokens / (6 * hidden_size))


def rollouts_per_row(group: PromptRollouts, layout: Layout, hidden_size: int, max_tokens: int) -> int:
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


def make_rows(groups: Sequence[PromptRollouts], layout: Layout, hidden_size: int, max_tokens: int) -> list[Row]:
    """All rows of an optimiser step, in the order of the groups."""
    rows = []
    for place, group in enumerate(groups):
        size = rollouts_per_row(group, layout, hidden_size, max_tokens)
        for start in range(0, len(group.rollouts), size):
            part = slice(start, start + size)
            tokens = input_tokens(group.prompt_tokens, group.lengths[part])
            rows.append(Row(place, group.rollouts[part], tokens))
    return rows


def share_rows(rows: Sequence[Row], ranks: int, hidden_size: int) -> list[list[Row]]:
    """Give each rank about the same work: rows from the longest to the shortest, each to the least loaded rank."""
    shares: list[list[Row]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for row in sorted(rows, key=lambda row: -row.tokens):
        rank = loads.index(min(loads))
        shares[rank].append(row)
        loads[rank] += row_cost(row.tokens, hidden_size)
    return shares


def micro_batches(rows: Sequence[Row], max_tokens: int) -> list[MicroBatch]:
    """Cut rows, longest first, into batches of at most `max_tokens` computed tokens, padding included."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -row.tokens):
        if batches and (len(batches[-1]) + 1) * batches[-1][0].tokens <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return [tuple(batch) for batch in batches]


def plan(
    groups: Sequence[PromptRollouts], layout: Layout, hidden_size: int, max_tokens: int, ranks: int
) -> list[list[MicroBatch]]:
    """The micro-batches of every rank for one optimiser step. Every rank gets the same number, at least one: the
    shorter lists end in empty micro-batches, which the policy runs as dummies of weight zero."""
    rows = make_rows(groups, layout, hidden_size, max_tokens)
    plans = [micro_batches(share, max_tokens) for share in share_rows(rows, ranks, hidden_size)]
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
