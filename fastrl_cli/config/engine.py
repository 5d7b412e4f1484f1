"""How rollouts are generated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fastrl_cli.config.base import Count, CountOrZero, Section


class AutoEngineConfig(Section):
    """vLLM where it is installed and runs, else transformers. The run says which and why."""

    type: Literal["auto"] = "auto"


class TransformersEngineConfig(Section):
    """Generation with the trainer's own model: always there, deterministic on a CPU."""

    type: Literal["transformers"] = "transformers"
    batch_size: Count = 128
    """Responses decoded at once."""


class VllmEngineConfig(Section):
    """vLLM in the trainer's process."""

    type: Literal["vllm"] = "vllm"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto`: bfloat16 on a GPU, float32 on a CPU."""
    gpu_memory_utilization: float = Field(0.6, gt=0, le=1)
    cpu_kv_cache_gib: Count = 1
    """Size of the key-value cache on a CPU."""
    max_model_len: Count | None = None
    """Null: the longest prompt plus the longest response."""
    tensor_parallel_size: Count = 1
    enforce_eager: bool | None = None
    """Null: compiled on a GPU, eager on a CPU, where compiling costs more than it saves in a short run."""
    sleep_level: Literal[0, 1, 2] = 1
    """What the engine gives back around the update on a GPU: 0 nothing, 1 the cache, 2 the weights too."""


class ReplayEngineConfig(Section):
    """Replays the rollouts that another run recorded, in place of generating: the same data for two trainers."""

    type: Literal["replay"] = "replay"
    run: str
    """Run directory whose `rollouts/` are replayed."""


EngineConfig = Annotated[
    AutoEngineConfig | TransformersEngineConfig | VllmEngineConfig | ReplayEngineConfig, Field(discriminator="type")
]


class SamplingConfig(Section):
    """How tokens are drawn in training."""

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: CountOrZero = 0
    max_tokens: Count = 64
