"""The rollouts of one step in their groups, from generation to selection."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from fastrl_cli.algorithms.advantages import group_advantages, overlong_penalty
from fastrl_cli.config.algorithm import OverlongPenaltyConfig
from fastrl_cli.data.sample import Draw
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.pruning import Group
from fastrl_cli.rewards import ScoredRollouts
from fastrl_cli.rollout.rollout import Reward, Rollout


@dataclass(frozen=True)
class DrawnQuestion:
    """One draw of a question, with its prompt."""

    draw: Draw
    prompt: Prompt


@dataclass(eq=False)
class RolloutGroup:
    """All rollouts of one draw of a question."""

    question: DrawnQuestion
    rollouts: list[Rollout] = field(default_factory=list)
    grading: Future[ScoredRollouts] | None = None
    """Their rewards, which may still be computed; None where there is nothing to grade."""

    @property
    def rewards(self) -> list[float]:
        """Total reward of each rollout."""
        return [scored(rollout).total for rollout in self.rollouts]

    @property
    def accuracies(self) -> list[float]:
        """Accuracy of each rollout."""
        return [scored(rollout).accuracy for rollout in self.rollouts]

    def set_advantages(self, eps: float) -> None:
        """Advantages over the whole group, before any pruning; selection never changes them."""
        for rollout, advantage in zip(self.rollouts, group_advantages(self.rewards, eps), strict=True):
            rollout.advantage = float(advantage)

    def add_overlong_penalty(self, config: OverlongPenaltyConfig) -> None:
        """Add the length penalty to each reward, as a part of its own."""
        for rollout in self.rollouts:
            reward, penalty = scored(rollout), overlong_penalty(rollout.length, config)
            parts = {**reward.parts, "overlong": penalty}
            rollout.reward = replace(reward, parts=parts, total=reward.total + penalty)

    def for_selection(self) -> Group:
        """What a selector sees. Rollouts of equal accuracy and form count as of equal reward, also where a length
        penalty makes the total continuous."""
        parts = [scored(rollout).parts for rollout in self.rollouts]
        return Group(
            draw=self.question.draw,
            token_ids=[rollout.generation.token_ids for rollout in self.rollouts],
            rewards=np.array(self.rewards),
            advantages=np.array([rollout.advantage for rollout in self.rollouts]),
            keys=[tuple(sorted((name, value) for name, value in part.items() if name != "overlong")) for part in parts],
        )


def scored(rollout: Rollout) -> Reward:
    """The rollout's reward, which every rollout has once the reward phase is over."""
    if rollout.reward is None:
        raise ValueError(f"rollout {rollout.index} of {rollout.sample.id} has no reward yet")
    return rollout.reward


def all_rollouts(groups: Sequence[RolloutGroup]) -> list[Rollout]:
    """The rollouts of all groups, in order."""
    return [rollout for group in groups for rollout in group.rollouts]
