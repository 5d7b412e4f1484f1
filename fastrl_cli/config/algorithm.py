"""The loss: GRPO, DAPO and GSPO are three settings of these fields (Shao et al. 2402.03300, Yu et al. 2503.14476,
Zheng et al. 2507.18071, with the constants of the FastRL paper's scripts)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fastrl_cli.config.base import Count, Section


class KLConfig(Section):
    """Penalty on the distance to the reference model, added to the loss. A reference model is loaded only when the
    coefficient is not zero."""

    coefficient: float = Field(0.01, ge=0)
    estimator: Literal["k3"] = "k3"
    log_ratio_clamp: float = Field(20.0, gt=0, le=80)
    """Bound of the log-ratio before it is exponentiated."""
    value_clamp: float = Field(10.0, gt=0)
    """Bound of the estimate itself."""


class DynamicSamplingConfig(Section):
    """DAPO: groups whose rollouts are all right or all wrong are replaced by other questions."""

    max_rounds: Count = 10
    """Rounds of generation for one batch; then the step goes on with the groups it has."""


class OverlongPenaltyConfig(Section):
    """DAPO's soft length penalty: zero up to `max_length - cache` tokens, falling to -1 at `max_length`."""

    max_length: Count
    cache: Count


class ImportanceCorrectionConfig(Section):
    """Truncated importance weights for the gap between the engine's and the trainer's log-probabilities."""

    cap: float = Field(2.0, gt=0)
    level: Literal["token", "sequence"] = "token"


class AlgorithmConfig(Section):
    """Advantages, ratios, clipping, averaging, KL."""

    name: Literal["grpo", "dapo", "gspo"] = "grpo"
    advantage_eps: float = Field(1e-6, ge=0)
    """Added to the group's standard deviation (sample deviation, divisor n - 1)."""
    ratio: Literal["token", "sequence"] = "token"
    """`token`: each token's own probability ratio. `sequence`: GSPO's exp(mean log-ratio) with the token-wise
    gradient."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    clip_high: float = Field(0.3, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)
    """Bound of the loss at a negative advantage, in multiples of the advantage. Null: none."""
    log_ratio_clamp: float = Field(20.0, gt=0, le=80)
    aggregation: Literal["token_mean", "seq_mean"] = "token_mean"
    """`token_mean`: sum over all tokens of the optimiser step / their number. `seq_mean`: mean over its rollouts of
    each rollout's token mean."""
    old_logprobs: Literal["auto", "recompute"] = "auto"
    """Where the old log-probabilities come from when a batch has several updates. `auto`: from the engine where it
    computes as the trainer does (float32, no top-p or top-k), else from a pass before the first update. `recompute`:
    always from that pass."""
    denominator: Literal["kept", "full"] = "kept"
    """What the sums are divided by: the kept rollouts (FastRL), or those before pruning."""
    kl: KLConfig = KLConfig()
    dynamic_sampling: DynamicSamplingConfig | None = None
    overlong_penalty: OverlongPenaltyConfig | None = None
    importance_correction: ImportanceCorrectionConfig | None = None
