"""The gap between the engine that drew the tokens and the trainer that scores them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from fastrl_cli.algorithms.kl import k3
from fastrl_cli.algorithms.ratios import sequence_mean

Level: TypeAlias = Literal["token", "sequence"]


def importance_weights(logprobs: Tensor, engine_logprobs: Tensor, sequence: Tensor, level: Level, cap: float) -> Tensor:
    """Truncated importance weights `min(trainer / engine, cap)` at each token (T,), constants of the loss.

    `token`: each token's own ratio. `sequence`: `exp(mean log-ratio)` of its rollout, never of the sum, which would
    vanish or explode with the length. `logprobs` (T,) are the trainer's for the weights that the engine sampled with.
    Source: truncated importance sampling (Ionides 2008).
    """
    log_ratio = (logprobs - engine_logprobs).detach()
    if level == "sequence":
        log_ratio = sequence_mean(log_ratio, sequence)
    return log_ratio.clamp(max=math.log(cap)).exp()


@dataclass(frozen=True)
class GapStatistics:
    """How far the engine's and the trainer's log-probabilities of the sampled tokens are apart. Parts of a step
    (passes, ranks) are joined by `+`; without a token every mean is 0."""

    tokens: int
    sum_abs: float
    max_abs: float
    sum_k3: float
    sum_ratio: float

    def __add__(self, other: GapStatistics) -> GapStatistics:
        return GapStatistics(
            tokens=self.tokens + other.tokens,
            sum_abs=self.sum_abs + other.sum_abs,
            max_abs=max(self.max_abs, other.max_abs),
            sum_k3=self.sum_k3 + other.sum_k3,
            sum_ratio=self.sum_ratio + other.sum_ratio,
        )

    @property
    def mean_abs(self) -> float:
        """Mean absolute difference of the log-probabilities, in nats."""
        return self.sum_abs / max(self.tokens, 1)

    @property
    def kl(self) -> float:
        """The k3 estimate of KL(engine || trainer), in nats a token."""
        return self.sum_k3 / max(self.tokens, 1)

    @property
    def mean_ratio(self) -> float:
        """Mean of trainer / engine probability: near 1 where both speak of one distribution."""
        return self.sum_ratio / max(self.tokens, 1)


def gap_statistics(
    logprobs: Tensor, engine_logprobs: Tensor, log_ratio_clamp: float = 20.0, value_clamp: float = 10.0
) -> GapStatistics:
    """Gap over tokens (T,) that the engine sampled; `logprobs` are the trainer's. The clamps are those of `kl.k3`."""
    logprobs, engine_logprobs = logprobs.detach().cpu().double(), engine_logprobs.detach().cpu().double()
    difference = logprobs - engine_logprobs
    distance = difference.abs()
    return GapStatistics(
        tokens=distance.numel(),
        sum_abs=distance.sum().item(),
        max_abs=distance.max().item() if distance.numel() else 0.0,
        sum_k3=k3(engine_logprobs, logprobs, log_ratio_clamp, value_clamp).sum().item(),
        sum_ratio=difference.clamp(-log_ratio_clamp, log_ratio_clamp).exp().sum().item(),
    )
