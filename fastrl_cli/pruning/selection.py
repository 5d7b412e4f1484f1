"""What a selector decides about each rollout, and how selectors are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.config.base import Section
from fastrl_cli.errors import UsageError
from fastrl_cli.pruning.groups import Group


class Reason(StrEnum):
    """Why a rollout stays or goes."""

    ALL = "all"
    """Kept: nothing is pruned."""
    SEED = "seed"
    """Kept: the first of its advantage."""
    DISSIMILAR = "dissimilar"
    """Kept: unlike those of its advantage that it is compared with."""
    FILL = "fill"
    """Kept: makes the total a multiple of the divisor."""
    PRUNED = "pruned"
    DROPPED = "dropped"
    """Gone with its group, whose advantages are all zero; never taken by the fill."""

    @property
    def keeps(self) -> bool:
        return self not in (Reason.PRUNED, Reason.DROPPED)


Reasons: TypeAlias = list[list[Reason]]
"""For each group, one reason for each of its rollouts."""

Selector: TypeAlias = Callable[[Sequence[Group], Any, int], Reasons]
"""`(groups, config, step) -> reasons`, before the fill. It sees the whole batch and may rank across questions."""

_SELECTORS: dict[type[Section], Selector] = {}


def register(config_class: type[Section]) -> Callable[[Selector], Selector]:
    """Makes the decorated function the selector of a config class."""

    def add(selector: Selector) -> Selector:
        _SELECTORS[config_class] = selector
        return selector

    return add


def selector_for(config: Section) -> Selector:
    """The selector of a config. Raises `UsageError` for a config class that none is registered for."""
    try:
        return _SELECTORS[type(config)]
    except KeyError:
        known = ", ".join(sorted(str(known.model_fields["type"].default) for known in _SELECTORS))
        raise UsageError(f"pruning: no selector takes a {type(config).__name__}. Selectors are: {known}.") from None


@dataclass(frozen=True, eq=False)
class Selection:
    """The rollouts that training keeps."""

    reasons: Reasons
    kept: list[NDArray[np.intp]]
    """For each group, the sorted indices of its kept rollouts."""
    phase1: NDArray[np.int64]
    """(groups,) number that the selector kept."""
    filled: NDArray[np.int64]
    """(groups,) number that the alignment fill added."""
    unaligned: bool
    """True where the total is not a multiple of the divisor, so that the last batch is ragged."""
    stats: dict[str, float]
    """Counts over the batch, for the metrics: `generated`, `kept`, `kept_fraction`, `tokens_generated`, `tokens_kept`,
    `kept_token_fraction`, `kept_per_question_mean`, `kept_per_question_max`, `degenerate_groups`, and for each `Reason`
    `reason_<reason>`."""

    @property
    def counts(self) -> list[int]:
        """Kept rollouts of each group, the fill included: what ARS observes."""
        return [len(indices) for indices in self.kept]


def make_selection(groups: Sequence[Group], before_fill: Reasons, reasons: Reasons, divisor: int) -> Selection:
    """Counts what the reasons say."""
    kept = [np.flatnonzero([reason.keeps for reason in group]) for group in reasons]
    totals = np.fromiter(map(len, kept), np.int64, len(kept))
    phase1 = np.fromiter((sum(reason.keeps for reason in group) for group in before_fill), np.int64, len(kept))
    return Selection(
        reasons=reasons,
        kept=kept,
        phase1=phase1,
        filled=totals - phase1,
        unaligned=bool(totals.sum() % divisor),
        stats=_stats(groups, kept, reasons),
    )


def _stats(groups: Sequence[Group], kept: Sequence[NDArray[np.intp]], reasons: Reasons) -> dict[str, float]:
    lengths = [np.fromiter(map(len, group.token_ids), np.int64, len(group)) for group in groups]
    generated, tokens = sum(map(len, groups)), int(sum(length.sum() for length in lengths))
    counts = [len(indices) for indices in kept]
    tokens_kept = int(sum(length[indices].sum() for length, indices in zip(lengths, kept, strict=True)))
    flat = [reason for group in reasons for reason in group]
    return {
        "generated": generated,
        "kept": sum(counts),
        "kept_fraction": sum(counts) / max(generated, 1),
        "tokens_generated": tokens,
        "tokens_kept": tokens_kept,
        "kept_token_fraction": tokens_kept / max(tokens, 1),
        "kept_per_question_mean": sum(counts) / max(len(counts), 1),
        "kept_per_question_max": max(counts, default=0),
        "degenerate_groups": sum(group.is_degenerate for group in groups),
        **{f"reason_{reason}": flat.count(reason) for reason in Reason},
    }
