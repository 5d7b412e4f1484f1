"""The pass over prompts before their responses are decoded: each prompt and its pictures once, whatever the number of
responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from fastrl_cli.models.positions import position_axes, prompt_positions
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.decoding import attention_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from fastrl_cli.models.processing import Processing

PREFILL_TOKENS = 8192
"""Upper bound of the tokens, padding included, in one pass. A single longer prompt still goes."""

LayerStates = tuple[Tensor, Tensor]
"""Keys and values (B, H, P, D) of one layer."""


@dataclass(frozen=True)
class Prefilled:
    """B prompts after their pass, padded on the left to P tokens."""

    layers: list[LayerStates]
    logits: Tensor
    """(B, V), of the first token of a response."""
    lengths: Tensor
    """(B,), tokens of each prompt."""
    start: Tensor
    """(B,), rotary position of the first token of a response."""

    @property
    def width(self) -> int:
        return int(self.layers[0][0].shape[2])

    @property
    def bias(self) -> Tensor | None:
        """(B, 1, 1, P), minus infinity on the padding; None where there is none."""
        if bool((self.lengths == self.width).all()):
            return None
        padding = left_padding(self.lengths, self.width)
        return torch.zeros(padding.shape, device=padding.device).masked_fill(padding, float("-inf"))[:, None, None]


def left_padding(lengths: Tensor, width: int) -> Tensor:
    """(B, width), true on the padding in front of each row's tokens."""
    return torch.arange(width, device=lengths.device) < width - lengths[:, None]


def prefill(model: PreTrainedModel, processing: Processing, prompts: Sequence[Prompt]) -> Prefilled:
    """The pass over `prompts`, which come in ascending length, in parts of at most PREFILL_TOKENS."""
    parts, part = [], list[Prompt]()
    for prompt in prompts:
        if part and (len(part) + 1) * len(prompt.token_ids) > PREFILL_TOKENS:
            parts.append(_pass(model, processing, part))
            part = []
        part.append(prompt)
    parts.append(_pass(model, processing, part))
    return parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: Sequence[Prefilled]) -> Prefilled:
    width = max(part.width for part in parts)

    def padded(layer: int, which: int) -> Tensor:
        states = (part.layers[layer][which] for part in parts)
        return torch.cat([functional.pad(state, (0, 0, width - state.shape[2], 0)) for state in states])

    return Prefilled(
        layers=[(padded(layer, 0), padded(layer, 1)) for layer in range(len(parts[0].layers))],
        logits=torch.cat([part.logits for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        start=torch.cat([part.start for part in parts]),
    )


def _pass(model: PreTrainedModel, processing: Processing, prompts: Sequence[Prompt]) -> Prefilled:
    from transformers import DynamicCache

    device = next(model.parameters()).device
    width = max(len(prompt.token_ids) for prompt in prompts)
    ids = torch.full((len(prompts), width), processing.pad_token_id)
    positions = torch.zeros(position_axes(model), len(prompts), width, dtype=torch.long)
    features = []
    for row, prompt in enumerate(prompts):
        found = processing.features(prompt.sample)
        first = width - len(prompt.token_ids)
        ids[row, first:] = torch.from_numpy(prompt.token_ids)
        positions[:, row, first:] = prompt_positions(model, prompt.token_ids, found.grid_thw if found else None)
        if found is not None:
            features.append(found)
    pictures: dict[str, Any] = {}
    if features:
        pictures["pixel_values"] = torch.cat([found.pixel_values for found in features]).to(device)
        pictures["image_grid_thw"] = torch.cat([found.grid_thw for found in features]).to(device)
    lengths = torch.tensor([len(prompt.token_ids) for prompt in prompts], device=device)
    cache = DynamicCache()
    with attention_of(model.get_decoder(), "sdpa"):
        output = model(
            input_ids=ids.to(device),
            attention_mask=_mask(lengths, width),
            position_ids=(positions if len(positions) > 1 else positions[0]).to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **pictures,
        )
    start = positions.amax((0, 2)).to(device) + 1
    return Prefilled([(layer.keys, layer.values) for layer in cache.layers], output.logits[:, 0], lengths, start)


def _mask(lengths: Tensor, width: int) -> Tensor | None:
    """(B, 1, P, P), true where attention is allowed: causal, and not to the padding, which sees itself so that no row
    of the softmax is empty. None where plain causal attention will do."""
    if bool((lengths == width).all()):
        return None
    causal = torch.ones(width, width, dtype=torch.bool, device=lengths.device).tril()
    allowed = causal & ~left_padding(lengths, width)[:, None]
    return (allowed | torch.eye(width, dtype=torch.bool, device=lengths.device))[:, None]
