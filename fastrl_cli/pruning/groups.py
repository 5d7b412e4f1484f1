"""What a selector is given: the rollouts of one drawn question with their rewards and advantages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.data.sample import Draw
from fastrl_cli.errors import DataError

NEGLIGIBLE_ADVANTAGE = 1e-6
"""Advantages this small come from the rounding of mean and deviation. A group with spread has one near 1 or above."""


@dataclass(frozen=True, eq=False)
class Group:
    """The `n` rollouts of one draw, in the order of their index.

    Raises `DataError` where the lengths differ or a reward or an advantage is not finite.
    """

    draw: Draw
    token_ids: Sequence[NDArray[np.int32]]
    """n arrays (T_i,): the response's own tokens, the end token included, no padding."""
    rewards: NDArray[np.float64]
    """(n,)"""
    advantages: NDArray[np.float64]
    """(n,), computed from the whole group. Pruning never renormalises them."""
    keys: Sequence[Hashable] | None = None
    """What makes two rewards the same where the rewards themselves do not: `(accuracy, format)` under a length penalty,
    which would make every rollout its own group. Null: the rewards."""

    def __post_init__(self) -> None:
        lengths = {"token_ids": len(self.token_ids), "rewards": len(self.rewards), "advantages": len(self.advantages)}
        if self.keys is not None:
            lengths["keys"] = len(self.keys)
        if len(set(lengths.values())) > 1:
            raise DataError(f"{self._name}: each rollout needs one entry in every field, but there are {lengths}.")
        for field, values in (("reward", self.rewards), ("advantage", self.advantages)):
            wrong = np.flatnonzero(~np.isfinite(values))
            if len(wrong):
                raise DataError(
                    f"{self._name}: the {field} of rollout {wrong[0]} is {values[wrong[0]]}. "
                    "Leave rollouts without a finite one out of the group."
                )

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def reward_keys(self) -> Sequence[Hashable]:
        """Equal for rollouts whose rewards count as the same (n entries)."""
        return self.rewards.tolist() if self.keys is None else self.keys

    @property
    def is_degenerate(self) -> bool:
        """True where every advantage is zero: the group teaches nothing but the KL term."""
        return bool((np.abs(self.advantages) <= NEGLIGIBLE_ADVANTAGE).all())

    @property
    def by_magnitude(self) -> NDArray[np.intp]:
        """(n,) indices in order of |advantage| descending, ties by index: the order of MDAP and of the fill."""
        return np.argsort(-np.abs(self.advantages), kind="stable")

    @property
    def _name(self) -> str:
        return f"question {self.draw.question_id!r}, draw {self.draw.number}"
