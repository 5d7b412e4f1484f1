"""Which rollouts of a question have the same advantage (FastRL section 3.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.pruning.groups import Group

GroupBy = Literal["reward", "adv_round4", "adv_eps"]


def advantage_groups(group: Group, by: GroupBy, eps: float) -> list[list[int]]:
    """The rollouts of a group in parts of equal advantage; in each part by |advantage| descending, ties by index.

    `reward`: equal reward keys. `adv_round4`: equal advantages after rounding to 4 decimals (the authors' code).
    `adv_eps`: neighbours in sorted order less than `eps` apart; unlike a comparison of pairs it is transitive and does
    not depend on the order of the rollouts.
    """
    labels: Iterable[Hashable]
    if by == "reward":
        labels = group.reward_keys
    elif by == "adv_round4":
        labels = np.round(group.advantages.astype(np.float64), 4).tolist()
    else:
        labels = _gap_clusters(group.advantages, eps).tolist()
    label_of = list(labels)
    parts: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index in group.by_magnitude.tolist():
        parts[label_of[index]].append(index)
    return list(parts.values())


def _gap_clusters(values: NDArray[np.float64], eps: float) -> NDArray[np.int64]:
    """(n,) number of each value's cluster: a new one starts where the next smaller value is at least `eps` away."""
    order = np.argsort(values, kind="stable")
    clusters = np.empty(len(values), np.int64)
    clusters[order] = np.cumsum(np.diff(values[order], prepend=values[order][:1]) >= eps)
    return clusters
