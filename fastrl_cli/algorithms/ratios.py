"""Log-ratios between the policy and the one that the rollouts count as drawn from, by token and by sequence.

Everywhere in this package the tokens of a micro-batch lie in flat tensors (T,), all response tokens of its rollouts
one after the other without padding, and `sequence` (T,) holds each token's rollout as an integer from 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_mean(values: Tensor, sequence: Tensor) -> Tensor:
    """Mean of `values` (T,) over each rollout, at every token of that rollout (T,)."""
    lengths = torch.bincount(sequence)
    sums = values.new_zeros(len(lengths)).index_add(0, sequence, values)
    return (sums / lengths)[sequence]


def token_log_ratio(logprobs: Tensor, old_logprobs: Tensor, clamp: float) -> Tensor:
    """`logp - logp_old` of each token (T,), bounded to +-`clamp` so that its exponential is finite.

    Source: PPO's ratio. Outside the bound the gradient is zero.
    """
    return (logprobs - old_logprobs).clamp(-clamp, clamp)


def sequence_log_ratio(logprobs: Tensor, old_logprobs: Tensor, sequence: Tensor, clamp: float) -> Tensor:
    """GSPO's log-ratio of each token (T,): the value is the mean log-ratio of its rollout, the gradient its own.

    `stopgrad(mean_t(logp - logp_old)) + logp - stopgrad(logp)`, bounded to +-`clamp`. The exponential is the length
    normalised sequence ratio `(pi / pi_old)^(1 / length)`.
    Source: GSPO (2507.18071, section 4.1 for the ratio, 4.3 for the token-wise form).
    """
    mean = sequence_mean((logprobs - old_logprobs).detach(), sequence)
    # The difference is exactly zero, and is taken first: added to it, the mean loses no bits.
    return (mean + (logprobs - logprobs.detach())).clamp(-clamp, clamp)
