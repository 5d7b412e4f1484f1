"""The policy as one torch module, from packed rows to log-probabilities: what DDP and FSDP wrap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastrl_cli.rollout.rollout import Sampling
from fastrl_cli.training.packing import PackedBatch

LOGITS_PER_CHUNK = 2**24
"""Logits computed at once (64 MiB in float32); longer batches are cut and recomputed in the backward pass."""


def token_logprobs(logits: Tensor, targets: Tensor, temperature: float, suppressed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities (T,) of `targets` and entropies (T,) under `softmax((logits + bias) / temperature)`, where
    the bias is minus infinity on `suppressed` tokens: the distribution the engine samples from. Entropies carry no
    gradient."""
    scaled = logits.float() / temperature
    if len(suppressed):
        scaled = scaled.index_fill(-1, suppressed, float("-inf"))
    logprobs = torch.log_softmax(scaled, dim=-1)
    with torch.no_grad():
        detached = logprobs.detach()
        entropy = -(detached.exp() * detached.clamp_min(torch.finfo(detached.dtype).min)).sum(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], entropy


def head_logprobs(
    hidden: Tensor, targets: Tensor, lm_head: Any, temperature: float, suppressed: Tensor, logits_per_chunk: int
) -> tuple[Tensor, Tensor]:
    """`token_logprobs` of a head over hidden states (T, d), with about `logits_per_chunk` logits at a time: further
    chunks are recomputed in the backward pass, so that the logits of all tokens are never held."""
    rows = max(1, logits_per_chunk // lm_head.out_features)

    def chunk(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(lm_head(states), tokens, temperature, suppressed)

    if len(targets) <= rows:
        return chunk(hidden, targets)
    parts = [
        checkpoint(chunk, states, tokens, use_reentrant=False)
        for states, tokens in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


class LogProbModule(nn.Module):
    """A transformers model with the packed forward pass."""

    model: Any
    suppressed: Tensor

    def __init__(self, model: nn.Module, sampling: Sampling, *, multimodal: bool) -> None:
        super().__init__()
        self.model = model
        self.temperature = sampling.temperature
        self.multimodal = multimodal
        self.register_buffer("suppressed", torch.tensor(sampling.suppressed, dtype=torch.long), persistent=False)

    def forward(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Log-probabilities (T,) and entropies (T,) of the batch's response tokens."""
        inputs: dict[str, Any] = {}
        if batch.pixel_values is not None:
            inputs = {"pixel_values": batch.pixel_values, "image_grid_thw": batch.grid_thw}
        hidden = self.model.model(
            input_ids=batch.input_ids,
            attention_mask=self.attention_mask(batch.mask),
            position_ids=batch.positions,
            use_cache=False,
            **inputs,
        ).last_hidden_state
        if self.multimodal and batch.pixel_values is None:
            hidden = hidden + self.vision_dummy()
        return self.head(hidden.flatten(0, 1)[batch.predictors], batch.targets)

    def attention_mask(self, allowed: Tensor) -> Tensor:
        """What the attention implementation takes: booleans for sdpa, an additive mask for eager."""
        if self.model.config._attn_implementation == "sdpa":
            return allowed
        dtype = next(self.model.parameters()).dtype
        return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
            ~allowed, torch.finfo(dtype).min
        )

    def head(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The language-model head over (T, d) hidden states, in chunks of bounded memory."""
        lm_head = self.model.get_output_embeddings()
        return head_logprobs(hidden, targets, lm_head, self.temperature, self.suppressed, LOGITS_PER_CHUNK)

    def vision_dummy(self) -> Tensor:
        """Zero, by way of the vision tower: every rank runs it in every micro-batch, with pictures or without, so
        that the collective calls of the ranks match and every parameter has a gradient."""
        vision = self.model.config.vision_config
        merge = vision.spatial_merge_size
        channels = getattr(vision, "in_channels", getattr(vision, "in_chans", 3))
        width = channels * vision.temporal_patch_size * vision.patch_size**2
        parameter = next(self.model.parameters())
        pixels = torch.zeros(merge**2, width, device=parameter.device, dtype=parameter.dtype)
        grid = torch.tensor([[1, merge, merge]], device=parameter.device)
        output = self.model.model.get_image_features(pixels, grid, return_dict=True)
        features = [*output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
        return 0.0 * torch.stack([feature.sum() for feature in _flatten(features)]).sum()


def _flatten(features: list[Any]) -> list[Tensor]:
    return [tensor for item in features for tensor in ([item] if isinstance(item, Tensor) else _flatten(list(item)))]
