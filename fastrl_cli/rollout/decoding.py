"""Decoding many responses to few prompts: each prompt's keys and values are computed and kept once, and all its
responses attend to them together.

transformers' own cache repeats a prompt for each of its responses and copies it at every token. Here a layer's cache
hands itself to the attention function `shared_prefix`, which computes one softmax over the prompt's part and the
response's own part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ATTENTION = "fastrl_shared_prefix"
FIRST_CAPACITY = 32
"""Tokens a response's own cache has room for at first; it doubles when full."""


class Layout:
    """Which prompt each of R responses belongs to, as a grid of B prompts by at most M responses."""

    def __init__(self, owner: Tensor) -> None:
        """`owner` (R,) is ascending: the prompt's number, 0..B-1, of each response; every prompt has one at least."""
        counts = torch.bincount(owner)
        self.owner = owner
        self.prompts = len(counts)
        self.width = int(counts.max())
        starts = counts.cumsum(0) - counts
        self.place = owner * self.width + torch.arange(len(owner), device=owner.device) - starts[owner]
        self.full = self.prompts * self.width == len(owner)

    def spread(self, rows: Tensor) -> Tensor:
        """(R, ...) to (B, M, ...), zeros where a prompt has fewer than M."""
        if not self.full:
            grid = rows.new_zeros(self.prompts * self.width, *rows.shape[1:])
            grid[self.place] = rows
            rows = grid
        return rows.reshape(self.prompts, self.width, *rows.shape[1:])

    def collect(self, grid: Tensor) -> Tensor:
        """(B, M, ...) back to (R, ...)."""
        rows = grid.reshape(self.prompts * self.width, *grid.shape[2:])
        return rows if self.full else rows[self.place]


@dataclass
class LayerCache:
    """Keys and values of one layer. B prompts of at most P tokens, R responses, H key-value heads of D."""

    prompt_keys: Tensor
    """(B, H, P, D), padded on the left."""
    prompt_values: Tensor
    keys: Tensor
    """(R, H, capacity, D), of which the first `length` are filled."""
    values: Tensor
    length: int
    decoding: SharedPrefixCache

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add one token's (R, H, 1, D)."""
        if self.length == self.keys.shape[2]:
            self.keys = torch.cat([self.keys, torch.empty_like(self.keys)], dim=2)
            self.values = torch.cat([self.values, torch.empty_like(self.values)], dim=2)
        self.keys[:, :, self.length] = key[:, :, 0]
        self.values[:, :, self.length] = value[:, :, 0]
        self.length += 1

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """(R, 1, heads, D) attention of queries (R, heads, 1, D) over the prompt and the response so far."""
        layout, bias = self.decoding.layout, self.decoding.bias
        responses, heads, _, size = query.shape
        shared = self.keys.shape[1]
        queries = query.reshape(responses, shared, heads // shared, size) * scaling
        own_scores = queries @ self.keys[:, :, : self.length].transpose(2, 3)
        prompt_scores = self._over_prompt(queries, self.prompt_keys.transpose(2, 3))
        if bias is not None:
            prompt_scores = prompt_scores + bias[layout.owner]
        weights = torch.cat([prompt_scores, own_scores], dim=-1).softmax(-1, dtype=torch.float32).to(query.dtype)
        width = prompt_scores.shape[-1]
        mixed = self._over_prompt(weights[..., :width], self.prompt_values)
        mixed = mixed + weights[..., width:] @ self.values[:, :, : self.length]
        return mixed.reshape(responses, 1, heads, size)

    def _over_prompt(self, rows: Tensor, matrices: Tensor) -> Tensor:
        """Each response's (H, r, K) times its prompt's (H, K, N): (R, H, r, N), one product a prompt."""
        layout = self.decoding.layout
        grid = layout.spread(rows)
        prompts, width, shared, repeats, inner = grid.shape
        product = grid.transpose(1, 2).reshape(prompts, shared, width * repeats, inner) @ matrices
        return layout.collect(product.reshape(prompts, shared, width, repeats, -1).transpose(1, 2))

    def select(self, responses: Tensor, prompts: Tensor | None) -> None:
        self.keys, self.values = self.keys[responses], self.values[responses]
        if prompts is not None:
            self.prompt_keys, self.prompt_values = self.prompt_keys[prompts], self.prompt_values[prompts]


class SharedPrefixCache:
    """What a transformers decoder takes as `past_key_values` when it decodes R responses by one token each."""

    def __init__(self, prompts: list[tuple[Tensor, Tensor]], bias: Tensor | None, owner: Tensor) -> None:
        """`prompts`: each layer's keys and values (B, H, P, D), padded on the left; `bias`: (B, 1, 1, P), minus
        infinity on padding, None without; `owner`: see `Layout`."""
        self.layout = Layout(owner)
        self.bias = bias
        self.layers = [self._layer(keys, values) for keys, values in prompts]

    def _layer(self, keys: Tensor, values: Tensor) -> LayerCache:
        responses = len(self.layout.owner)
        empty_keys = keys.new_empty(responses, keys.shape[1], FIRST_CAPACITY, keys.shape[3])
        empty_values = values.new_empty(responses, values.shape[1], FIRST_CAPACITY, values.shape[3])
        return LayerCache(keys, values, empty_keys, empty_values, 0, self)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object, **__: object) -> tuple[LayerCache, None]:
        """Called by each attention layer, which passes what it gets on to the attention function."""
        self.layers[layer].append(key, value)
        return self.layers[layer], None

    def get_seq_length(self, layer: int = 0) -> int:
        return self.layers[layer].length

    def select(self, responses: Tensor) -> None:
        """Keep only the responses (R',) numbered, ascending, and the prompts that still have one."""
        present, owner = self.layout.owner[responses].unique_consecutive(return_inverse=True)
        prompts = present if len(present) < self.layout.prompts else None
        for layer in self.layers:
            layer.select(responses, prompts)
        if prompts is not None and self.bias is not None:
            self.bias = self.bias[prompts]
        self.layout = Layout(owner)


def shared_prefix_attention(
    module: Any, query: Tensor, key: LayerCache, value: None, attention_mask: None, *, scaling: float, **_: object
) -> tuple[Tensor, None]:
    """The attention function of decoding, in the form that transformers calls."""
    return key.attend(query, scaling), None


@contextmanager
def attention_of(decoder: Any, implementation: str) -> Iterator[None]:
    """Within, the decoder's layers use another attention function."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, shared_prefix_attention)
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = implementation
    try:
        yield
    finally:
        decoder.config._attn_implementation = before
