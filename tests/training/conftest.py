"""A tiny policy of each architecture, and questions with no, one and several pictures."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from accelerate import Accelerator
from PIL import Image

from fastrl_cli.config.data import DataConfig
from fastrl_cli.config.model import ModelConfig, OptimizerConfig
from fastrl_cli.data.sample import EncodedImage, Sample
from fastrl_cli.models.load import load_policy_model
from fastrl_cli.models.processing import Processing
from fastrl_cli.rollout.rollout import Sampling
from fastrl_cli.training.policy import Policy
from tests.tiny_models import Kind


def picture(width: int, height: int, seed: int) -> EncodedImage:
    """A picture of noise."""
    pixels = np.random.RandomState(seed).randint(0, 255, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return EncodedImage(file.getvalue())


def questions(pictures: list[int]) -> list[Sample]:
    """Questions of growing length with that many pictures each."""
    return [
        Sample(
            id=f"test:{row}",
            source="test",
            row=row,
            question="what is it" + "?" * row,
            answer="1",
            images=tuple(picture(60 + 30 * place, 90, 7 * row + place) for place in range(count)),
        )
        for row, count in enumerate(pictures)
    ]


@pytest.fixture
def make_policy(model_folder: Callable[[Kind], Path]) -> Callable[..., Policy]:
    """A policy with fresh weights; keywords go to its two config sections."""

    def make(kind: Kind, *, temperature: float = 1.0, reference: bool = False, **settings: object) -> Policy:
        folder = model_folder(kind)
        optimizer = {name: settings.pop(name) for name in list(settings) if name in OptimizerConfig.model_fields}
        model_config = ModelConfig(path=str(folder), **settings)
        processing = Processing.load(folder, DataConfig())
        sampling = Sampling(
            temperature=temperature, suppressed=processing.suppressed_tokens, stop=processing.stop_tokens
        )
        accelerator = Accelerator(cpu=True)
        model = load_policy_model(model_config, accelerator.device)
        frozen = load_policy_model(model_config, accelerator.device) if reference else None
        return Policy(model, frozen, processing, sampling, accelerator, model_config, OptimizerConfig(**optimizer))

    return make
