"""What the tests of engines share: questions with pictures, an engine with its model, and the log-probabilities that a
plain forward pass over prompt and response gives."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastrl_cli.data.sample import EncodedImage, Sample
from fastrl_cli.models.processing import Processing
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import Engine, Generation, Sampling
from tests.tiny_models import Kind

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")


def picture(width: int, height: int, seed: int) -> EncodedImage:
    """A picture of noise."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return EncodedImage(file.getvalue())


def question(row: int, pictures: int) -> Sample:
    """A question, longer the larger its row, whose pictures differ in size."""
    images = tuple(picture(70 + 40 * place, 90, 10 * row + place) for place in range(pictures))
    text = "<image>" * pictures + "what is it" + "?" * (2 * row)
    return Sample(id=f"test:{row}", source="test", row=row, question=text, answer="1", images=images)


@dataclass
class Kit:
    """An engine, and the trainer's model with the same weights."""

    kind: Kind
    model: Any
    processing: Processing
    engine: Engine
    initial: dict[str, torch.Tensor]

    def prompts(self, pictures: Sequence[int] = (0, 1, 2, 1)) -> list[Prompt]:
        """Prompts with that many pictures each, none for a model of text."""
        counts = pictures if self.processing.is_multimodal else [0] * len(pictures)
        return [self.processing.prompt(question(row, count)) for row, count in enumerate(counts)]

    def sampling(self, **changes: Any) -> Sampling:
        """The model's own end and vision tokens, 12 tokens at most."""
        processing = self.processing
        settings = {
            "max_tokens": 12,
            "suppressed": processing.suppressed_tokens,
            "stop": processing.stop_tokens,
        }
        return Sampling(**(settings | changes))

    def load(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Give trainer and engine other weights."""
        self.model.load_state_dict(weights)
        self.engine.sync(self.model.state_dict().items(), version)

    def perturbed(self, scale: float = 0.1, seed: int = 0) -> dict[str, torch.Tensor]:
        """The initial weights, every one of them moved; tied ones alike."""
        generator = torch.Generator().manual_seed(seed)
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.initial)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def seeds(prompts: int, base: int = 0) -> list[int]:
    """Far enough apart that every response has a seed of its own."""
    return [base + 1000 * place for place in range(prompts)]


@torch.no_grad()
def forward_logprobs(kit: Kit, prompt: Prompt, tokens: Sequence[int] | np.ndarray, sampling: Sampling) -> torch.Tensor:
    """(T, V) log-probabilities by one plain pass over prompt and response alone, positions left to the model."""
    features = kit.processing.features(prompt.sample)
    ids = torch.from_numpy(np.concatenate([prompt.token_ids, np.asarray(tokens)]).astype(np.int64))[None]
    inputs: dict[str, Any] = {}
    if features is not None:
        kinds = (ids == kit.model.config.image_token_id).int()
        inputs = {
            "pixel_values": features.pixel_values,
            "image_grid_thw": features.grid_thw,
            "mm_token_type_ids": kinds,
        }
    kit.model.eval()
    logits = kit.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **inputs).logits[0]
    kit.model.base_model.rope_deltas = None
    logits = logits[len(prompt.token_ids) - 1 : -1]
    logits[:, list(sampling.suppressed)] = float("-inf")
    return torch.log_softmax(logits / (sampling.temperature or 1.0), -1)


def gap(kit: Kit, prompts: Sequence[Prompt], answers: Sequence[Sequence[Generation]], sampling: Sampling) -> float:
    """Largest difference between the engine's log-probabilities and the plain pass's."""
    worst = 0.0
    for prompt, group in zip(prompts, answers, strict=True):
        for generation in group:
            expected = forward_logprobs(kit, prompt, generation.token_ids, sampling)
            chosen = expected[range(len(generation.token_ids)), generation.token_ids]
            worst = max(worst, float((chosen - torch.from_numpy(generation.logprobs)).abs().max()))
    return worst
