"""One update of a small random Qwen2.5-VL of realistic shape, to see on a machine with a GPU that the passes run there,
how long they take and how much memory they need. It needs torch, transformers and the source tree, and fetches nothing.

    python -m fastrl_cli.benchmark.gpu_check [--output FILE.json] [--small]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastrl_cli.algorithms.aggregation import Denominators
from fastrl_cli.config.algorithm import AlgorithmConfig, KLConfig
from fastrl_cli.config.model import ModelConfig, OptimizerConfig
from fastrl_cli.data.sample import Draw, EncodedImage, Sample
from fastrl_cli.models.processing import ImageFeatures
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.rollout.rollout import Generation, Rollout, Sampling
from fastrl_cli.training.policy import Policy
from fastrl_cli.training.rows import Layout, tokens_of
from fastrl_cli.training.update import BatchUpdate, KeptBatch

LAYOUTS: tuple[Layout, ...] = ("shared_prefix", "rows")


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of the batch."""

    vocabulary: int = 151_936
    hidden: int = 1024
    layers: int = 8
    vision_layers: int = 4
    image_side: tuple[int, int] = (16, 32)
    """Image tokens down and across: 512 in all."""
    question_tokens: int = 64
    groups: int = 4
    rollouts: int = 8
    new_tokens: int = 512
    repeats: int = 5


SMALL = Shape(512, 64, 2, 1, (2, 4), 8, 2, 3, 6, 2)
"""For a test on a CPU."""


class RandomPictures:
    """In place of a processor: random patches of the right shape for each sample."""

    is_multimodal = True
    pad_token_id = 0

    def __init__(self, shape: Shape, patch_values: int) -> None:
        down, across = shape.image_side
        self.grid = torch.tensor([[1, 2 * down, 2 * across]])
        self.pixels = torch.randn(4 * down * across, patch_values)

    def features(self, sample: Sample) -> ImageFeatures:
        return ImageFeatures(self.pixels, self.grid)


def build_model(shape: Shape) -> Any:
    """A random Qwen2.5-VL in float32."""
    cure()
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    special = {"image_token_id": 10, "video_token_id": 11, "vision_start_token_id": 12, "vision_end_token_id": 13}
    text = {
        "vocab_size": shape.vocabulary, "hidden_size": shape.hidden, "intermediate_size": 3 * shape.hidden,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.hidden // 32,
        "num_key_value_heads": shape.hidden // 64, "max_position_embeddings": 32_768, "tie_word_embeddings": True,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    }  # fmt: skip
    vision = {
        "depth": shape.vision_layers, "hidden_size": 320, "intermediate_size": 960, "num_heads": 4,
        "out_hidden_size": shape.hidden, "fullatt_block_indexes": [shape.vision_layers - 1],
    }  # fmt: skip
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **special)
    torch.manual_seed(0)
    return Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")


def build_batch(shape: Shape) -> KeptBatch:
    """Random prompts, each with one picture, and random responses of full length with mixed advantages."""
    generator = np.random.default_rng(0)
    down, across = shape.image_side
    prompts, rollouts, group_of = [], [], []
    for group in range(shape.groups):
        sample = Sample(f"random:{group}", "random", group, "?", "1", (EncodedImage(b""),))
        words = generator.integers(20, shape.vocabulary, shape.question_tokens)
        ids = np.concatenate([[12], np.full(down * across, 10), [13], words]).astype(np.int32)
        prompts.append(Prompt(sample, "", ids))
        for index in range(shape.rollouts):
            tokens = generator.integers(20, shape.vocabulary, shape.new_tokens).astype(np.int32)
            generation = Generation(tokens, np.zeros(len(tokens), np.float32), "length", 0)
            rollout = Rollout(sample, Draw(sample.id, group), index, generation, "", 0)
            rollout.advantage = 1.0 if index % 2 else -1.0
            rollouts.append(rollout)
            group_of.append(group)
    lengths = [shape.new_tokens] * len(rollouts)
    return KeptBatch(prompts, rollouts, group_of, Denominators.count(lengths))


class StageClock:
    """Seconds of each stage, the device's queue emptied at both ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, name: str, call: Callable[[], Any]) -> Any:
        """Charge a call to a stage."""
        self.synchronize()
        start = time.perf_counter()
        result = call()
        self.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


def one_update(policy: Policy, batch: KeptBatch, clock: StageClock) -> None:
    """Old pass, forward and backward passes, optimiser step, each timed."""
    update = BatchUpdate(policy, AlgorithmConfig(kl=KLConfig(coefficient=0)), batch, _no_phase, trust_engine=False)
    (micro_batches,) = [update.plan_part(part) for part in update.parts]
    packed = [clock.timed("pack", lambda m=m: update.pack(m)) for m in micro_batches]  # type: ignore[misc]
    for one in packed:
        clock.timed("old pass", lambda one=one: policy.frozen_logprobs(one))  # type: ignore[misc]
    for place, one in enumerate(packed):
        last = place == len(packed) - 1
        clock.timed(
            "forward and backward",
            lambda one=one, last=last: update.micro_batch(one, batch.full, None, None, first=True, last=last),  # type: ignore[misc]
        )
    clock.timed("optimiser", lambda: update.optimizer_step(update.parts[0], []))


def _no_phase(name: str) -> nullcontext[None]:
    return nullcontext()


def check(shape: Shape) -> dict[str, Any]:
    """Seconds by stage and peak memory of each layout, taken in turns on one model."""
    from accelerate import Accelerator

    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if on_gpu else "no")
    model = build_model(shape).to(accelerator.device)
    vision = model.config.vision_config
    processing: Any = RandomPictures(shape, vision.in_channels * vision.temporal_patch_size * vision.patch_size**2)
    batch = build_batch(shape)
    policy = Policy(model, None, processing, Sampling(), accelerator, ModelConfig(), OptimizerConfig())
    stages: dict[str, list[dict[str, float]]] = {layout: [] for layout in LAYOUTS}
    peak: dict[str, float] = dict.fromkeys(LAYOUTS, 0.0)
    tokens: dict[str, int] = {}
    for repeat in range(shape.repeats + 1):
        for layout in LAYOUTS:
            policy.config = ModelConfig(layout=layout)
            clock = StageClock(accelerator.device)
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            one_update(policy, batch, clock)
            if repeat > 0:
                stages[layout].append(clock.seconds)
            if on_gpu:
                peak[layout] = max(peak[layout], torch.cuda.max_memory_allocated() / 2**30)
            tokens[layout] = forward_tokens(policy, batch)
    return {
        "schema_version": 1,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "precision": accelerator.mixed_precision,
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "image_tokens": shape.image_side[0] * shape.image_side[1],
        "rollouts": [shape.groups, shape.rollouts, shape.new_tokens],
        "seconds": {layout: medians(rows) for layout, rows in stages.items()},
        "peak_gib": peak,
        "forward_tokens": tokens,
        "shared_prefix_speed_up": float(
            np.median([sum(b.values()) / sum(a.values()) for a, b in zip(*stages.values(), strict=True)])
        ),
    }


def forward_tokens(policy: Policy, batch: KeptBatch) -> int:
    """Tokens that one pass over the batch feeds to the model."""
    update = BatchUpdate(policy, AlgorithmConfig(), batch, _no_phase, trust_engine=False)
    return sum(tokens_of(row) for micro_batch in update.plan_part(update.parts[0]) for row in micro_batch)


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Median seconds of each stage."""
    return {name: float(np.median([row[name] for row in rows])) for name in rows[0]}


def table(document: dict[str, Any]) -> str:
    """The document for a person."""
    lines = [f"{document['device']}, {document['precision']}, {document['parameters'] / 1e6:.0f} M parameters"]
    lines.append(_row("ms", LAYOUTS))
    for name in document["seconds"][LAYOUTS[0]]:
        lines.append(_row(name, [f"{1000 * document['seconds'][layout][name]:.1f}" for layout in LAYOUTS]))
    lines.append(_row("tokens of a pass", [f"{document['forward_tokens'][layout]:,}" for layout in LAYOUTS]))
    lines.append(_row("peak memory, GiB", [f"{document['peak_gib'][layout]:.2f}" for layout in LAYOUTS]))
    lines.append(f"shared prefix is {document['shared_prefix_speed_up']:.2f}x as fast as packed rows")
    return "\n".join(lines)


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<22}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> None:
    """Run the check, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a machine without a GPU")
    options = parser.parse_args()
    document = check(SMALL if options.small else Shape())
    print(table(document), file=sys.stderr)
    text = json.dumps(document, indent=2)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
