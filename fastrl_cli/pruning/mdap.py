"""MDAP, maximising differential advantage pruning (FastRL section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.config.pruning import MDAPConfig
from fastrl_cli.pruning.advantage_groups import advantage_groups
from fastrl_cli.pruning.groups import Group
from fastrl_cli.pruning.selection import Reason, Reasons, register
from fastrl_cli.pruning.similarity import look_alikes


@register(MDAPConfig)
def mdap(groups: Sequence[Group], config: MDAPConfig, step: int) -> Reasons:
    """Among the rollouts of equal advantage keeps those that differ. Each question is decided by itself."""
    # glibc gives the freed buffers of every question back to the system and faults them in again for the next, half of
    # the time spent here, until it has seen a larger block freed. Other allocators do not mind.
    np.empty(1 << 24, np.uint8)
    return [_select_group(group, config) for group in groups]


def _select_group(group: Group, config: MDAPConfig) -> list[Reason]:
    if config.degenerate == "drop" and group.is_degenerate:
        return [Reason.DROPPED] * len(group)
    reasons = [Reason.PRUNED] * len(group)
    parts = advantage_groups(group, config.group_by, config.adv_eps)
    if any(len(part) > 1 for part in parts):
        similar = look_alikes(group.token_ids, tau=config.tau, ngram=config.ngram, boundary=config.boundary)
    for part in parts:
        reasons[part[0]] = Reason.SEED
        if len(part) > 1:
            keep = _unlike_retained if config.compare == "retained" else _unlike_seed
            for index in keep(part, similar):
                reasons[index] = Reason.DISSIMILAR
    return reasons


def _unlike_retained(part: Sequence[int], similar: NDArray[np.bool_]) -> list[int]:
    """Greedy maximal independent set (the paper): in the order of `part`, keep what is like none kept so far. Returns
    all kept but the first."""
    blocked = similar[part[0]].copy()
    kept = []
    for index in part[1:]:
        if not blocked[index]:
            kept.append(index)
            blocked |= similar[index]
    return kept


def _unlike_seed(part: Sequence[int], similar: NDArray[np.bool_]) -> list[int]:
    """All that are not like the first (the authors' code)."""
    return [index for index in part[1:] if not similar[part[0], index]]
