"""The estimate of the divergence from the reference model."""

from __future__ import annotations

import torch
from torch import Tensor


def k3(logprobs: Tensor, reference_logprobs: Tensor, log_ratio_clamp: float, value_clamp: float) -> Tensor:
    """The k3 estimate `exp(d) - d - 1` of KL(policy || reference) at each token (T,), with `d = logp_ref - logp`.

    `d` is bounded to +-`log_ratio_clamp` before it is exponentiated and the estimate to +-`value_clamp`, so that it is
    finite for any two log-probabilities; where a bound acts the gradient is zero. Never negative.
    Source: GRPO (2402.03300, equation 4).
    """
    difference = (reference_logprobs - logprobs).clamp(-log_ratio_clamp, log_ratio_clamp)
    # expm1 keeps the digits that exp(d) - 1 loses near d = 0, where training spends its time.
    return (torch.expm1(difference) - difference).clamp(-value_clamp, value_clamp)
