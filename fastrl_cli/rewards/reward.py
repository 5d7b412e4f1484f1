"""From rollouts to rewards."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fastrl_cli.rewards.format import well_formed
from fastrl_cli.rewards.grader import Grade, Grader
from fastrl_cli.rollout.rollout import Reward, Rollout

if TYPE_CHECKING:
    from fastrl_cli.config.run import RewardConfig


class RewardFunction(Protocol):
    """Rewards rollouts. Each carries its own sample, so nothing has to be paired by position with other lists."""

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Reward | None]:
        """One reward for each rollout, in their order, with any named parts. None sets a rollout aside."""
        ...


@dataclass(frozen=True)
class RewardFailure:
    """A rollout without a reward."""

    rollout: Rollout
    reason: str

    def __str__(self) -> str:
        return f"rollout {self.rollout.index} of question {self.rollout.sample.id}: {self.reason}"


@dataclass(frozen=True)
class ScoredRollouts:
    """`rewards[i]` belongs to rollout i; None where it is set aside, with its reason among the `failures`."""

    rewards: list[Reward | None]
    failures: list[RewardFailure]


class AccuracyFormatReward:
    """accuracy (0 or 1) + format (0 or `format_weight`), as in EasyR1's math reward, with the grader of this package.

    `prefill` is the opening tag that the model's chat template has already written (`format.prefilled`)."""

    def __init__(self, config: RewardConfig, prefill: str) -> None:
        self.format_weight = config.format_weight
        self.prefill = prefill
        self.grader = Grader(config.workers, config.timeout_seconds)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Reward | None]:
        grades = self.grader.grade_many([(rollout.text, rollout.sample.answer) for rollout in rollouts], mode="strict")
        return [self._reward(rollout, grade) for rollout, grade in zip(rollouts, grades, strict=True)]

    def _reward(self, rollout: Rollout, grade: Grade) -> Reward:
        formatted = well_formed(rollout.text, self.prefill)
        parts = {"accuracy": float(grade.correct), "format": self.format_weight * formatted}
        details = {"rule": grade.rule, "extraction": grade.extraction, "error": grade.error}
        return Reward(
            parts=parts,
            total=sum(parts.values()),
            accuracy=float(grade.correct),
            details={name: value for name, value in details.items() if value is not None},
        )

    def close(self) -> None:
        """End the grading processes."""
        self.grader.close()


def score(rollouts: Sequence[Rollout], reward_function: RewardFunction) -> ScoredRollouts:
    """Reward the rollouts. Where the function fails on all of them at once it is asked for each alone, so that only
    those which fail are set aside. Pure: the rollouts are not changed."""
    try:
        rewards = _checked(rollouts, reward_function)
    except Exception:
        return _score_each(rollouts, reward_function)
    reasons = [(rollout, _flaw(reward)) for rollout, reward in zip(rollouts, rewards, strict=True)]
    failures = [RewardFailure(rollout, reason) for rollout, reason in reasons if reason is not None]
    return ScoredRollouts([None if _flaw(reward) else reward for reward in rewards], failures)


def _checked(rollouts: Sequence[Rollout], reward_function: RewardFunction) -> list[Reward | None]:
    rewards = list(reward_function(rollouts))
    if len(rewards) != len(rollouts):
        raise ValueError(f"the reward function returned {len(rewards)} rewards for {len(rollouts)} rollouts")
    return rewards


def _flaw(reward: Reward | None) -> str | None:
    if reward is None:
        return "the reward function set it aside"
    if not math.isfinite(reward.total):
        return f"its reward is {reward.total}"
    return None


def _score_each(rollouts: Sequence[Rollout], reward_function: RewardFunction) -> ScoredRollouts:
    rewards: list[Reward | None] = []
    failures: list[RewardFailure] = []
    for rollout in rollouts:
        try:
            reward = _checked([rollout], reward_function)[0]
            reason = _flaw(reward)
        except Exception as error:
            reward, reason = None, f"{type(error).__name__}: {error}"
        rewards.append(None if reason else reward)
        if reason:
            failures.append(RewardFailure(rollout, reason))
    return ScoredRollouts(rewards, failures)


def shuffle_rewards(rewards: Sequence[Reward | None], seed: int) -> list[Reward | None]:
    """The same rewards permuted among the rollouts that have one, for the control that must not learn."""
    places = [place for place, reward in enumerate(rewards) if reward is not None]
    moved = random.Random(seed).sample(places, len(places))
    shuffled = list(rewards)
    for place, origin in zip(places, moved, strict=True):
        shuffled[place] = rewards[origin]
    return shuffled
