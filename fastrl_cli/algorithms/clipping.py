"""The clipped policy-gradient objective."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def clipped_policy_loss(
    log_ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None
) -> tuple[Tensor, Tensor]:
    """Loss of each token (T,), and a bool mask (T,) of the tokens whose ratio gives no gradient because of a clip.

    With `ratio = exp(log_ratio)` and `clipped` the ratio bounded to [1 - clip_low, 1 + clip_high]:
    `max(-A ratio, -A clipped)`, and where A < 0 at most `-A dual_clip`.
    `log_ratio` (T,) must be bounded already (see `ratios`), `clip_low` < 1.
    Source: PPO; clip-higher from DAPO (2503.14476, section 3.1), dual clip from 1912.09729.
    """
    unclipped = -advantages * log_ratio.exp()
    # Clipping the logarithm leaves both terms equal to the last bit inside the range.
    clipped = -advantages * log_ratio.clamp(math.log1p(-clip_low), math.log1p(clip_high)).exp()
    loss = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    if dual_clip is not None:
        bound = -advantages * dual_clip
        is_bounded = (advantages < 0) & (loss > bound)
        loss = torch.where(is_bounded, bound, loss)
        is_clipped = is_clipped | is_bounded
    return loss, is_clipped
