"""How the tokens' losses become one number, in a way that no split into micro-batches or ranks can change.

The loss of an optimiser step is the plain sum of `weight * loss` over all its tokens, whichever pass or process
computes them. The weights hold the denominators of the whole step, so each part only adds its own tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

Aggregation: TypeAlias = Literal["token_mean", "seq_mean"]


@dataclass(frozen=True)
class Denominators:
    """Tokens and rollouts of an optimiser step over all micro-batches and ranks. Not whole numbers where a step stands
    for its share of a batch from before pruning."""

    tokens: float
    rollouts: float

    @classmethod
    def count(cls, lengths: Iterable[int]) -> Self:
        """Those of rollouts with these response lengths."""
        lengths = list(lengths)
        return cls(tokens=sum(lengths), rollouts=len(lengths))


def step_denominators(
    step: Denominators, kept: Denominators, full: Denominators, denominator: Literal["kept", "full"]
) -> Denominators:
    """What an optimiser step divides by, from the counts of all ranks: of this step, of the kept rollouts of the batch,
    and of the batch before pruning.

    `kept`: the step's own counts. `full`: those of the unpruned batch, in proportion to the step's part of what is
    kept; dropping rollouts of zero advantage then changes nothing. Both are equal where nothing was
    pruned.
    """
    if denominator == "kept":
        return step
    return Denominators(
        tokens=step.tokens * full.tokens / kept.tokens, rollouts=step.rollouts * full.rollouts / kept.rollouts
    )


def token_weights(lengths: Tensor, aggregation: Aggregation, denominators: Denominators) -> Tensor:
    """Weight (T,) of each token of a micro-batch whose rollouts have `lengths` (S,), an integer tensor.

    `token_mean`: 1 / tokens of the step, so the loss is the mean over all tokens.
    `seq_mean`: 1 / (rollouts of the step * length of the token's rollout), so the loss is the mean over the rollouts of
    each one's token mean.
    Source: DAPO (2503.14476, section 3.3) and GSPO (2507.18071, equation 5).
    """
    if aggregation == "token_mean":
        per_rollout = torch.full(lengths.shape, 1 / denominators.tokens, device=lengths.device)
    else:
        per_rollout = 1 / (denominators.rollouts * lengths)
    return per_rollout.repeat_interleave(lengths)
