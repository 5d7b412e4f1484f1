"""Alignment fill: adds pruned rollouts until the total divides into equal batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, zip_longest

from fastrl_cli.config.pruning import FillConfig
from fastrl_cli.data.sample import Draw
from fastrl_cli.pruning.groups import Group
from fastrl_cli.pruning.selection import Reason, Reasons


def fill_to_multiple(
    groups: Sequence[Group], reasons: Reasons, config: FillConfig, *, divisor: int, step: int
) -> Reasons:
    """`reasons` with the fewest pruned rollouts turned to `FILL` that make the kept total a multiple of `divisor`.

    Questions take turns in order of their draw, each giving its pruned rollout of largest |advantage| (ties by index).
    With too few pruned rollouts for the next multiple nothing is added.
    """
    filled = [list(group) for group in reasons]
    need = -sum(reason.keeps for group in reasons for reason in group) % divisor
    order = sorted(range(len(groups)), key=lambda q: _visiting_key(groups[q].draw))
    if order and config.start == "rotate":
        # Always beginning with the same questions would train them more often than the others.
        start = step % len(order)
        order = order[start:] + order[:start]
    candidates = [
        [(q, index) for index in groups[q].by_magnitude.tolist() if reasons[q][index] is Reason.PRUNED] for q in order
    ]
    if sum(map(len, candidates)) < need:
        return filled
    turns = (place for turn in zip_longest(*candidates) for place in turn if place is not None)
    for q, index in islice(turns, need):
        filled[q][index] = Reason.FILL
    return filled


def _visiting_key(draw: Draw) -> tuple[str, int, str, int]:
    """Orders ids `source:row` by the number of the row, not by its digits."""
    source, _, row = draw.question_id.rpartition(":")
    return source, len(row), row, draw.number
