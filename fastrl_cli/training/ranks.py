"""What the processes of a run tell each other, beside gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from fastrl_cli.data.sample import Sample
from fastrl_cli.rollout.rollout import Rollout

if TYPE_CHECKING:
    from accelerate import Accelerator

Item = TypeVar("Item")


def share(items: Sequence[Item], rank: int, ranks: int) -> list[Item]:
    """This rank's part of a list that every rank has: every `ranks`-th item."""
    return list(items[rank::ranks])


def gather(items: list[Item], accelerator: Accelerator) -> list[Item]:
    """The items of all ranks, rank by rank, on every rank."""
    if accelerator.num_processes == 1:
        return items
    from accelerate.utils import gather_object

    return list(gather_object(items))


def gather_rollouts(
    rollouts: Sequence[Rollout], samples: Mapping[str, Sample], accelerator: Accelerator
) -> list[Rollout]:
    """The graded rollouts of all ranks, rank by rank, on every rank. Samples with their pictures, which every rank has
    by their id, are not sent."""
    payload = [(r.draw, r.index, r.generation, r.text, r.seed, r.reward) for r in rollouts]
    return [Rollout(samples[parts[0].question_id], *parts) for parts in gather(payload, accelerator)]


def total(values: Sequence[float], accelerator: Accelerator) -> list[float]:
    """Element-wise sums over the ranks, in float64."""
    if accelerator.num_processes == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=accelerator.device)
    return list(accelerator.reduce(tensor, reduction="sum").tolist())
