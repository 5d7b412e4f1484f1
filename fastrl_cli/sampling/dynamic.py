"""Which groups can teach anything: DAPO's dynamic sampling (Yu et al. 2503.14476), and how many groups to
expect that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Generic, TypeVar

from fastrl_cli.algorithms.advantages import is_degenerate

T = TypeVar("T")


def has_spread(accuracies: Sequence[float]) -> bool:
    """True where some rollouts are right and some wrong. The spread of accuracy decides and not that of the reward: a
    group that is all wrong and differs in format has one of reward."""
    return len(accuracies) > 0 and not is_degenerate(accuracies)


def expected_dead_groups(p: float, n: int) -> float:
    """Expected share of groups that are all right or all wrong, for accuracy `p` and `n` independent rollouts:
    p^n + (1-p)^n."""
    return p**n + (1 - p) ** n


def keep_informative(groups: Sequence[T], accuracies: Sequence[Sequence[float]], needed: int) -> list[T]:
    """The first groups with a spread of accuracy, in order, at most `needed`; there may be none."""
    return [group for group, values in zip(groups, accuracies, strict=True) if has_spread(values)][: max(needed, 0)]


class InformativeBatch(Generic[T]):
    """Collects groups with a spread of accuracy over rounds of generation:

        batch = InformativeBatch(needed, max_rounds)
        while count := batch.to_draw():
            groups = ...  # of `count` new questions
            batch.add(groups, accuracies)

    After `max_rounds` it stops with the groups it has, which may be none.
    """

    def __init__(self, needed: int, max_rounds: int) -> None:
        self._needed = needed
        self._max_rounds = max_rounds
        self.kept: list[T] = []
        self.set_aside: list[T] = []
        """Groups without spread, and those beyond `needed`."""
        self.rounds = 0
        self.drawn = 0
        self.informative = 0
        """Groups with spread, those beyond `needed` included."""

    def to_draw(self) -> int:
        """Questions to generate for in the next round: what is missing, over the share that had spread so far, at most
        the whole batch. 0 where the batch is full or the rounds are used up."""
        missing = self._needed - len(self.kept)
        if missing <= 0 or self.rounds >= self._max_rounds:
            return 0
        if self.informative == 0:
            return self._needed
        return min(ceil(missing * self.drawn / self.informative), self._needed)

    def add(self, groups: Sequence[T], accuracies: Sequence[Sequence[float]]) -> None:
        """The groups of one round, with the accuracy of each of their rollouts."""
        kept = keep_informative(groups, accuracies, self._needed - len(self.kept))
        self.kept += kept
        self.set_aside += [group for group in groups if group not in kept]
        self.rounds += 1
        self.drawn += len(groups)
        self.informative += sum(map(has_spread, accuracies))
