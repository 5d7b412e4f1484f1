"""Which engine a run gets, why, and what happens where vLLM cannot be had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fastrl_cli.config.data import DataConfig
from fastrl_cli.config.engine import (
    AutoEngineConfig,
    EngineConfig,
    ReplayEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
)
from fastrl_cli.config.model import ModelConfig
from fastrl_cli.errors import MissingError
from fastrl_cli.models.load import load_policy_model
from fastrl_cli.models.processing import Processing
from fastrl_cli.rollout import select
from fastrl_cli.rollout.rollout import Engine
from fastrl_cli.rollout.select import build_engine, engine_choice
from tests.tiny_models import Kind


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend a machine: is vLLM there, built for CPUs or not, on a processor with these flags, with a GPU or not."""

    def pretend(*, installed: bool = True, on_cpu: bool = True, flags: str = "avx2", gpu: bool = False) -> None:
        monkeypatch.setattr(select, "find_spec", lambda name: object() if installed else None)
        monkeypatch.setattr(select, "_vllm_version", lambda: ("1.2.3", on_cpu))
        monkeypatch.setattr(select, "cpu_flags", lambda: flags)
        monkeypatch.setattr(select, "has_nvidia_gpu", lambda: gpu)
        monkeypatch.setattr(select.platform, "machine", lambda: "x86_64")

    return pretend


@pytest.mark.parametrize(
    ("pretended", "reason"),
    [
        ({"installed": False}, "not installed"),
        ({"on_cpu": False}, "built for NVIDIA GPUs, and none is seen"),
        ({"flags": "sse4_2"}, "needs AVX2"),
    ],
)
def test_where_vllm_cannot_run_auto_takes_transformers_and_vllm_by_name_is_an_error(
    machine: Callable[..., None], pretended: dict[str, object], reason: str
) -> None:
    machine(**pretended)
    name, why = engine_choice(AutoEngineConfig())
    assert name == "transformers" and reason in why
    with pytest.raises(MissingError, match=rf"{reason}.*fastrl-cli\[cpu\].*--engine transformers"):
        engine_choice(VllmEngineConfig())


@pytest.mark.parametrize("pretended", [{}, {"on_cpu": False, "gpu": True}])
def test_where_vllm_can_run_auto_takes_it(machine: Callable[..., None], pretended: dict[str, object]) -> None:
    machine(**pretended)
    assert engine_choice(AutoEngineConfig()) == ("vllm", "vLLM 1.2.3 is installed")
    assert engine_choice(VllmEngineConfig())[0] == "vllm"


def test_an_engine_asked_for_by_name_is_taken() -> None:
    assert engine_choice(TransformersEngineConfig())[0] == "transformers"
    assert engine_choice(ReplayEngineConfig(run="runs/a"))[0] == "replay"


def test_choosing_imports_neither_torch_nor_vllm() -> None:
    code = (
        "import sys\nfrom fastrl_cli.config.engine import AutoEngineConfig\n"
        "from fastrl_cli.rollout.select import engine_choice\nengine_choice(AutoEngineConfig())\n"
        "assert not {'torch', 'vllm', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def build(model_folder: Callable[[Kind], Path]) -> Callable[[EngineConfig], tuple[Engine, str]]:
    """Build the engine of a configuration for a tiny model."""
    folder = model_folder("llama")

    def built(config: EngineConfig) -> tuple[Engine, str]:
        return build_engine(
            config,
            model_path=str(folder),
            policy_model=load_policy_model(ModelConfig(path=str(folder)), torch.device("cpu")),
            processing=Processing.load(folder, DataConfig()),
            max_model_len=128,
            device=torch.device("cpu"),
        )

    return built


def test_a_vllm_that_does_not_start_gives_way_under_auto_and_is_an_error_by_name(
    machine: Callable[..., None], build: Callable[..., tuple[Engine, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()

    def fail(*_: object) -> Engine:
        raise ValueError("head size 16 is not supported\nand more")

    monkeypatch.setattr(select, "_start_vllm", fail)
    engine, reason = build(AutoEngineConfig())
    assert engine.name == "transformers"
    assert reason == "vLLM 1.2.3 did not start (ValueError: head size 16 is not supported)"
    with pytest.raises(MissingError, match="head size 16 is not supported"):
        build(VllmEngineConfig())


def test_the_batch_size_of_the_transformers_engine_is_the_configured_one(
    build: Callable[..., tuple[Engine, str]],
) -> None:
    engine, _ = build(TransformersEngineConfig(batch_size=5))
    assert engine.name == "transformers" and engine.batch_size == 5  # type: ignore[attr-defined]
