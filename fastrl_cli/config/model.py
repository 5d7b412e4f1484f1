"""Which model is trained, and how the trainer computes with it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fastrl_cli.config.base import Count, CountOrZero, Section

BUILTIN = "builtin"


class ModelConfig(Section):
    """The policy."""

    path: str = Field(BUILTIN, min_length=1)
    """`builtin` (the tiny vision-language model of this package), a folder, or a hub id."""
    dtype: Literal["float32"] = "float32"
    """Precision of the master weights."""
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the passes. `auto`: bfloat16 on a GPU that has it, float32 elsewhere."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Attention implementation of transformers. The shared-prefix layout needs one that takes a dense mask."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    layout: Literal["auto", "shared_prefix", "rows"] = "auto"
    """`shared_prefix` computes a question's prompt and pictures once for all its rollouts, `rows` once for each."""
    tokens_per_micro_batch: Count = 8192
    """Upper bound of the tokens, padding included, in one forward and backward pass. A single longer rollout still
    goes."""


class OptimizerConfig(Section):
    """AdamW, as the paper sets it but for the learning rate of the built-in model."""

    learning_rate: float = Field(3e-5, ge=0)
    weight_decay: float = Field(1e-2, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    warmup_steps: CountOrZero = 0
    """Optimiser steps over which the learning rate rises linearly from zero; constant afterwards."""
    updates_per_batch: Count | None = 1
    """Optimiser steps on each batch of rollouts. The kept rollouts are split into that many near-equal parts, so
    pruning changes the size of a step and not their number. Null: use `mini_batch_rollouts`."""
    mini_batch_rollouts: Count | None = None
    """The authors' way: a fixed number of rollouts an optimiser step, so pruning lowers the number of steps."""
