"""The loss of one micro-batch: ratio, clipping, importance correction, averaging and KL put together."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fastrl_cli.algorithms.clipping import clipped_policy_loss
from fastrl_cli.algorithms.importance import importance_weights
from fastrl_cli.algorithms.kl import k3
from fastrl_cli.algorithms.ratios import sequence_log_ratio, token_log_ratio
from fastrl_cli.config.algorithm import AlgorithmConfig


@dataclass(frozen=True, eq=False, kw_only=True)
class LossInputs:
    """The tokens of a micro-batch, each tensor (T,): all response tokens of its rollouts, no padding. T may be 0.

    Raises ValueError where a tensor has another shape, which broadcasting would otherwise turn into a wrong loss.
    """

    logprobs: Tensor
    """Of the policy, with its graph."""
    advantages: Tensor
    """The rollout's advantage at each of its tokens."""
    sequence: Tensor
    """Integer: the token's rollout inside the micro-batch, from 0."""
    weights: Tensor
    """From `aggregation.token_weights`; zero for a dummy."""
    old_logprobs: Tensor | None = None
    """Of the policy before the batch's first update. None: this is that update, so they are `logprobs`, detached."""
    reference_logprobs: Tensor | None = None
    """Needed where the KL coefficient is not zero."""
    engine_logprobs: Tensor | None = None
    """Needed for the importance correction."""

    def __post_init__(self) -> None:
        shape = (self.logprobs.numel(),)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value.shape != shape:
                raise ValueError(f"{field.name} has shape {tuple(value.shape)}, expected {shape}: one value a token")


@dataclass(frozen=True)
class WeightedSum:
    """A metric that adds up over micro-batches, ranks and optimiser steps by `+`."""

    total: float
    """Sum of weight * value over the tokens."""
    weight: float
    """Sum of the weights."""

    def __add__(self, other: WeightedSum) -> WeightedSum:
        return WeightedSum(self.total + other.total, self.weight + other.weight)

    @property
    def mean(self) -> float:
        """The average over the tokens, taken as the loss takes it; 0 without a token."""
        return self.total / self.weight if self.weight else 0.0


@dataclass(frozen=True, eq=False)
class LossOutput:
    """`loss` is this micro-batch's addend of the optimiser step's loss, a scalar with its graph.

    `metrics` has the same keys for every micro-batch of a configuration: `policy_loss`, `clip_fraction`, `ratio`,
    `importance_weight` where the correction is on, and `kl` where the coefficient is not zero. The total of
    `policy_loss` plus the coefficient times that of `kl` is the loss.
    """

    loss: Tensor
    metrics: dict[str, WeightedSum]


def policy_loss(batch: LossInputs, config: AlgorithmConfig) -> LossOutput:
    """`sum_t weight_t * (importance_t * clipped_loss_t + coefficient * k3_t)` over the tokens of a micro-batch.

    Summed over the micro-batches and ranks of an optimiser step it is GRPO's, DAPO's or GSPO's loss as `config` says.
    Without a token, or with zero weights, it is 0 with a graph, so that every rank can go backward.
    Raises ValueError where the KL term or the importance correction lacks its log-probabilities.
    """
    old_logprobs = batch.logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
    if config.ratio == "token":
        log_ratio = token_log_ratio(batch.logprobs, old_logprobs, config.log_ratio_clamp)
    else:
        log_ratio = sequence_log_ratio(batch.logprobs, old_logprobs, batch.sequence, config.log_ratio_clamp)
    token_loss, is_clipped = clipped_policy_loss(
        log_ratio, batch.advantages, config.clip_low, config.clip_high, config.dual_clip
    )
    values = {"clip_fraction": is_clipped, "ratio": log_ratio.exp()}
    correction = config.importance_correction
    if correction is not None:
        if batch.engine_logprobs is None:
            raise ValueError("importance_correction needs the engine's log-probabilities, got none")
        importance = importance_weights(
            old_logprobs, batch.engine_logprobs, batch.sequence, correction.level, correction.cap
        )
        token_loss = token_loss * importance
        values["importance_weight"] = importance
    values["policy_loss"] = token_loss
    loss = (batch.weights * token_loss).sum()
    if config.kl.coefficient > 0:
        if batch.reference_logprobs is None:
            raise ValueError("kl.coefficient > 0 needs the reference model's log-probabilities, got none")
        divergence = k3(batch.logprobs, batch.reference_logprobs, config.kl.log_ratio_clamp, config.kl.value_clamp)
        loss = loss + config.kl.coefficient * (batch.weights * divergence).sum()
        values["kl"] = divergence
    return LossOutput(loss, _weighted_sums(values, batch.weights))


def _weighted_sums(values: dict[str, Tensor], weights: Tensor) -> dict[str, WeightedSum]:
    """Totals of `values` (T,) under `weights` (T,), fetched from the device at once."""
    weights = weights.detach()
    sums = torch.stack([(weights * value.detach()).sum() for value in values.values()] + [weights.sum()])
    *totals, weight = sums.tolist()
    return {name: WeightedSum(total, weight) for name, total in zip(values, totals, strict=True)}
