"""Drawing tokens from logits, one uniform number a token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fastrl_cli.rollout.rollout import Sampling


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """(R, count) float32 in [0, 1). Row r comes from seed r alone, whatever else is drawn beside it."""
    rows = torch.empty(len(seeds), count)
    generator = torch.Generator()
    for row, seed in zip(rows, seeds, strict=True):
        row.uniform_(generator=generator.manual_seed(seed))
    return rows


def processed_logprobs(logits: Tensor, sampling: Sampling, suppressed: Tensor) -> Tensor:
    """(R, V) float32: log-softmax of `(logits + bias) / temperature` over the tokens that top-k, then top-p leave."""
    scaled = logits.float()
    if sampling.temperature > 0:
        scaled = scaled / sampling.temperature
    if len(suppressed):
        scaled = scaled.index_fill(-1, suppressed, float("-inf"))
    if sampling.temperature > 0:
        scaled = _nucleus(_top_k(scaled, sampling.top_k), sampling.top_p)
    return torch.log_softmax(scaled, dim=-1)


def draw_tokens(logits: Tensor, uniform: Tensor, sampling: Sampling, suppressed: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (R,) and their log-probabilities (R,) from logits (R, V) and one uniform number (R,) each: the token at
    which the cumulative distribution passes the uniform number, or the likeliest at temperature 0."""
    logprobs = processed_logprobs(logits, sampling, suppressed)
    if sampling.temperature > 0:
        # In float64 the uniform number, which has 24 bits, stays below the total, so no token without probability is
        # hit.
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        target = uniform.double()[:, None] * cumulative[:, -1:]
        # Only logits that are not finite leave the cumulative distribution without such a token.
        tokens = torch.searchsorted(cumulative, target, right=True).clamp_max(logits.shape[-1] - 1)
    else:
        tokens = logprobs.argmax(-1, keepdim=True)
    return tokens[:, 0], logprobs.gather(-1, tokens)[:, 0]


def _top_k(scaled: Tensor, k: int) -> Tensor:
    if k == 0 or k >= scaled.shape[-1]:
        return scaled
    smallest = scaled.topk(k, dim=-1).values[:, -1:]
    return scaled.masked_fill(scaled < smallest, float("-inf"))


def _nucleus(scaled: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens whose probability reaches `p`."""
    if p >= 1:
        return scaled
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    outside = probabilities.cumsum(-1) - probabilities >= p
    return ordered.masked_fill(outside, float("-inf")).gather(-1, order.argsort(-1))
