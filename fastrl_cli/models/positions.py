"""Rotary positions of a prompt and of what follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from fastrl_cli.rollout.rollout import TokenIds


def position_axes(model: PreTrainedModel) -> int:
    """3 for Qwen's multi-axis rotary positions (time, height, width), 1 for plain ones."""
    return 3 if hasattr(model.model, "get_rope_index") else 1


def prompt_positions(model: PreTrainedModel, token_ids: TokenIds, grid_thw: Tensor | None) -> Tensor:
    """(axes, P) positions of a prompt's tokens, as the model itself counts them; the first token of a response stands
    at their maximum plus one on every axis. `grid_thw` is (images, 3), None without pictures."""
    if grid_thw is None:
        return torch.arange(len(token_ids)).expand(position_axes(model), -1)
    ids = torch.from_numpy(token_ids.astype("int64"))[None]
    kinds = (ids == model.config.image_token_id).int()
    positions: Tensor = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grid_thw)[0]
    return positions[:, 0]
