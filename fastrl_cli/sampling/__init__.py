"""How many rollouts are generated, of which questions, and with which seeds."""

from __future__ import annotations

from fastrl_cli.sampling.ars import ARS, FixedRollouts, RolloutCount, rollout_count
from fastrl_cli.sampling.dynamic import InformativeBatch, expected_dead_groups, has_spread, keep_informative
from fastrl_cli.sampling.questions import QuestionStream, RunLength, run_length, steps_per_epoch
from fastrl_cli.sampling.seeds import group_seed

__all__ = [
    "ARS",
    "FixedRollouts",
    "InformativeBatch",
    "QuestionStream",
    "RolloutCount",
    "RunLength",
    "expected_dead_groups",
    "group_seed",
    "has_spread",
    "keep_informative",
    "rollout_count",
    "run_length",
    "steps_per_epoch",
]
