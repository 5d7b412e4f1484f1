"""What the processes of a run tell each other, beside gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

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


def total(values: Sequence[float], accelerator: Accelerator) -> list[float]:
    """Element-wise sums over the ranks, in float64."""
    if accelerator.num_processes == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=accelerator.device)
    return list(accelerator.reduce(tensor, reduction="sum").tolist())
