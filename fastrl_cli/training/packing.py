"""From rows to tensors. Masks come from lengths alone; no token value decides what is padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastrl_cli.models.processing import ImageFeatures
from fastrl_cli.rollout.rollout import TokenIds
from fastrl_cli.training.rows import MicroBatch, tokens_of


@dataclass(frozen=True)
class PackedPrompt:
    """What packing needs of a prompt."""

    token_ids: TokenIds
    positions: Tensor
    """(3, P) for multi-axis rotary positions, (1, P) for plain ones."""
    features: ImageFeatures | None


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch of B rows of at most L input tokens, with T predicted tokens in all."""

    input_ids: Tensor
    """(B, L)."""
    positions: Tensor
    """(3, B, L) or (B, L)."""
    mask: Tensor
    """(B, 1, L, L), true where attention is allowed."""
    predictors: Tensor
    """(T,), place in the flattened (B*L) hidden states that predicts each response token."""
    targets: Tensor
    """(T,), the response tokens."""
    rollouts: tuple[int, ...]
    """The rollouts in the order of their tokens; `lengths` says how many each has."""
    lengths: tuple[int, ...]
    pixel_values: Tensor | None
    grid_thw: Tensor | None
    padding_tokens: int

    def to(self, device: torch.device) -> PackedBatch:
        """The same batch with its tensors on `device`."""
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    @property
    def sequence(self) -> Tensor:
        """(T,), each token's place in `rollouts`."""
        lengths = torch.tensor(self.lengths, dtype=torch.long, device=self.targets.device)
        return torch.repeat_interleave(torch.arange(len(self.lengths), device=lengths.device), lengths)


def row_mask(blocks: Tensor, segments: Tensor) -> Tensor:
    """(B, 1, L, L) attention mask from the block (B, L) that each token belongs to, -1 for padding, and its segment
    (B, L) there: 0 the prompt, k the k-th response. A token sees its block's prompt and its own segment, up to itself;
    padding sees itself, so that no row of the softmax is empty."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    same_block = blocks[:, :, None] == blocks[:, None, :]
    seen = (segments[:, None, :] == 0) | (segments[:, None, :] == segments[:, :, None])
    allowed = causal & same_block & seen & (blocks >= 0)[:, None, :]
    allowed |= torch.eye(length, dtype=torch.bool, device=segments.device)
    return allowed[:, None]


def response_positions(prompt_positions: Tensor, length: int) -> Tensor:
    """(axes, length) positions of a response: on every axis they go on after the prompt's largest."""
    start = int(prompt_positions.max()) + 1
    return torch.arange(start, start + length).expand(prompt_positions.shape[0], length)


def pack(
    batch: MicroBatch,
    prompt_of: Callable[[int], PackedPrompt],
    responses: Sequence[TokenIds],
    pad_token: int,
    axes: int,
) -> PackedBatch:
    """Tensors of one micro-batch. `prompt_of(block.group)` is asked only here, so that pictures stay encoded until
    their micro-batch comes; `responses` is indexed by the blocks' rollouts. An empty micro-batch becomes one row of one
    token that predicts nothing."""
    count, width = max(1, len(batch)), max(map(tokens_of, batch), default=1)
    ids = np.full((count, width), pad_token, dtype=np.int64)
    blocks = np.full((count, width), -1, dtype=np.int64)
    segments = np.zeros((count, width), dtype=np.int64)
    positions = torch.zeros(axes, count, width, dtype=torch.long)
    predictors: list[np.ndarray] = []
    rollouts: list[int] = []
    features: list[ImageFeatures] = []
    for place, row in enumerate(batch):
        cursor = 0
        for number, block in enumerate(row):
            prompt = prompt_of(block.group)
            stop = cursor + len(prompt.token_ids)
            ids[place, cursor:stop] = prompt.token_ids
            positions[:, place, cursor:stop] = prompt.positions
            blocks[place, cursor : cursor + block.tokens] = number
            last_of_prompt, cursor = np.array([stop - 1]), stop
            for segment, rollout in enumerate(block.rollouts, start=1):
                fed = responses[rollout][:-1]
                stop = cursor + len(fed)
                ids[place, cursor:stop] = fed
                segments[place, cursor:stop] = segment
                positions[:, place, cursor:stop] = response_positions(prompt.positions, len(fed))
                predictors.append(place * width + np.concatenate([last_of_prompt, np.arange(cursor, stop)]))
                rollouts.append(rollout)
                cursor = stop
            if prompt.features is not None:
                features.append(prompt.features)
    targets = np.concatenate([responses[rollout] for rollout in rollouts]) if rollouts else np.zeros(0)
    return PackedBatch(
        input_ids=torch.from_numpy(ids),
        positions=positions if axes > 1 else positions[0],
        mask=row_mask(torch.from_numpy(blocks), torch.from_numpy(segments)),
        predictors=torch.from_numpy(np.concatenate(predictors) if predictors else np.zeros(0, dtype=np.int64)),
        targets=torch.from_numpy(targets.astype(np.int64)),
        rollouts=tuple(rollouts),
        lengths=tuple(len(responses[rollout]) for rollout in rollouts),
        pixel_values=torch.cat([image.pixel_values for image in features]) if features else None,
        grid_thw=torch.cat([image.grid_thw for image in features]) if features else None,
        padding_tokens=count * width - sum(map(tokens_of, batch)),
    )
