"""Grading and rewards. Importing this loads neither sympy nor math-verify: they live in worker processes."""

from __future__ import annotations

from fastrl_cli.rewards.format import prefilled, well_formed
from fastrl_cli.rewards.grader import Grade, Grader, gold_problem, gold_problems, grade, is_equal
from fastrl_cli.rewards.reward import (
    AccuracyFormatReward,
    RewardFailure,
    RewardFunction,
    ScoredRollouts,
    score,
    shuffle_rewards,
)

__all__ = [
    "AccuracyFormatReward",
    "Grade",
    "Grader",
    "RewardFailure",
    "RewardFunction",
    "ScoredRollouts",
    "gold_problem",
    "gold_problems",
    "grade",
    "is_equal",
    "prefilled",
    "score",
    "shuffle_rewards",
    "well_formed",
]
