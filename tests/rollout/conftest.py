"""An engine of each kind with each tiny model, started once for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fastrl_cli.config.data import DataConfig
from fastrl_cli.config.engine import VllmEngineConfig
from fastrl_cli.config.model import ModelConfig
from fastrl_cli.models.load import load_policy_model
from fastrl_cli.models.processing import Processing
from fastrl_cli.rollout.rollout import Engine
from fastrl_cli.rollout.select import vllm_obstacle
from fastrl_cli.rollout.transformers import TransformersEngine
from tests.rollout.helpers import Kit
from tests.tiny_models import Kind

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def vllm_engines(model_folder: Callable[[Kind], Path]) -> Iterator[Callable[[Kind, Processing], Engine]]:
    """vLLM with a tiny model, started at the first use."""
    started: dict[Kind, Engine] = {}

    def engine(kind: Kind, processing: Processing) -> Engine:
        if (obstacle := vllm_obstacle()) is not None:
            pytest.skip(obstacle)
        if kind not in started:
            from fastrl_cli.rollout.vllm import VllmEngine

            started[kind] = VllmEngine(
                VllmEngineConfig(),
                model_path=str(model_folder(kind)),
                processing=processing,
                device=CPU,
                max_model_len=512,
            )
        return started[kind]

    yield engine
    for engine_ in started.values():
        engine_.close()


@pytest.fixture
def make_kit(
    model_folder: Callable[[Kind], Path], vllm_engines: Callable[[Kind, Processing], Engine]
) -> Callable[[str, Kind], Kit]:
    """The engine of that name with the model of that kind, both with the folder's weights and at policy version 0."""

    def kit(name: str, kind: Kind) -> Kit:
        folder = model_folder(kind)
        processing = Processing.load(folder, DataConfig(instruction="", max_pixels=100 * 28 * 28))
        model = load_policy_model(ModelConfig(path=str(folder)), CPU)
        initial = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        if name == "transformers":
            return Kit(kind, model, processing, TransformersEngine(model, processing, batch_size=128), initial)
        made = Kit(kind, model, processing, vllm_engines(kind, processing), initial)
        made.load(initial, 0)
        return made

    return kit
