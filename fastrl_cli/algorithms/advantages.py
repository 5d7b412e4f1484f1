"""Advantages of one group (all rollouts of one draw of a question), and what decides them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrl_cli.config.algorithm import OverlongPenaltyConfig

FloatArray: TypeAlias = NDArray[np.float64]


def group_advantages(rewards: ArrayLike, eps: float) -> FloatArray:
    """Group-relative advantages `(R - mean) / (std + eps)` with the sample deviation (divisor n - 1).

    `rewards` (n,) are those of the whole group, before any pruning; the result is (n,) in float64. Equal rewards give
    exactly 0, and the order of the rollouts changes no bit of any of them.
    Source: GRPO (2402.03300, section 4.1.2).
    Raises ValueError for fewer than two rewards, and for one that is not finite.
    """
    values: FloatArray = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or values.size < 2:
        raise ValueError(
            f"a group needs at least 2 rollouts, got rewards of shape {values.shape}: "
            "an advantage compares the rollouts of one question"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"rewards must be finite, got {values.tolist()}: leave the rollout out of its group")
    ordered = np.sort(values)  # a sum in floating point depends on the order of its terms
    if ordered[0] == ordered[-1]:
        return np.zeros_like(values)
    advantages: FloatArray = (values - ordered.mean()) / (ordered.std(ddof=1) + eps)
    return advantages


def is_degenerate(accuracies: Sequence[float]) -> bool:
    """Whether a group has no spread of accuracy: all right or all wrong.

    It looks at the accuracy and not at the total reward: a group of wrong answers of which some are well formed
    has a spread of reward, yet nothing to learn about the question.
    Source: DAPO's dynamic sampling (2503.14476, section 3.2).
    """
    return min(accuracies) == max(accuracies)


def overlong_penalty(length: int, config: OverlongPenaltyConfig) -> float:
    """Soft length penalty in [-1, 0] of a response of `length` tokens, to be added to its reward.

    Zero up to `max_length - cache`, then linear, -1 from `max_length` on. Source: DAPO (2503.14476, section 3.4).
    """
    excess = length - (config.max_length - config.cache)
    return -min(max(excess / config.cache, 0.0), 1.0)
