"""Which rollouts are kept for training, and how many are generated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fastrl_cli.config.base import Count, Section


class NoPruningConfig(Section):
    """Keep every rollout."""

    type: Literal["none"] = "none"


class FillConfig(Section):
    """Alignment fill: unselected rollouts, largest absolute advantage first, round-robin over the questions, until the
    total is a multiple of what the optimiser steps need."""

    start: Literal["rotate", "id"] = "rotate"
    """Question the round begins with: rotated by step, or always the first (the authors' code)."""


class AdvantageOnlyConfig(Section):
    """Keep one rollout for each distinct advantage (the paper's Table 5)."""

    type: Literal["advantage_only"] = "advantage_only"
    group_by: Literal["reward", "adv_round4", "adv_eps"] = "reward"
    adv_eps: float = Field(1e-4, gt=0)
    fill: FillConfig | None = FillConfig()
    degenerate: Literal["keep", "drop"] = "keep"


class MDAPConfig(Section):
    """Maximising differential advantage pruning (FastRL section 3.1)."""

    type: Literal["mdap"] = "mdap"
    tau: float = Field(0.8, ge=0, le=1)
    """Two rollouts of one advantage nearer than this Jaccard distance are look-alikes."""
    ngram: Count = 1
    compare: Literal["retained", "seed"] = "retained"
    """Compare with every rollout kept so far (paper) or with the first one only (authors' code)."""
    boundary: Literal["keep", "prune"] = "keep"
    """At a distance of exactly tau."""
    group_by: Literal["reward", "adv_round4", "adv_eps"] = "reward"
    """What makes two advantages equal: the reward, rounding to 4 decimals, or gaps of at least `adv_eps`."""
    adv_eps: float = Field(1e-4, gt=0)
    fill: FillConfig | None = FillConfig()
    degenerate: Literal["keep", "drop"] = "keep"
    """What a group without spread leaves: at least one rollout, or none."""


PruningConfig = Annotated[NoPruningConfig | AdvantageOnlyConfig | MDAPConfig, Field(discriminator="type")]


class FixedRolloutsConfig(Section):
    """The same number of rollouts for every question of every step."""

    type: Literal["fixed"] = "fixed"


class ARSConfig(Section):
    """Adaptive rollout sampling (FastRL section 3.2)."""

    type: Literal["ars"] = "ars"
    n_min: int = Field(2, ge=2, le=65536)
    max_stat: Literal["step_mean", "epoch"] = "step_mean"
    """Largest kept count of a window: mean of the steps' maxima (Algorithm 1), or the maximum (Equation 10)."""
    window_steps: Count = 8
    """Window where the data has no epochs."""


RolloutCountConfig = Annotated[FixedRolloutsConfig | ARSConfig, Field(discriminator="type")]
