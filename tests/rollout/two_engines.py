"""What each of two processes does in `test_two_processes`: an engine of its own beside the trainer's process group."""

from __future__ import annotations

import os
import sys

import torch
from accelerate import Accelerator

from fastrl_cli.config.data import DataConfig
from fastrl_cli.config.engine import VllmEngineConfig
from fastrl_cli.config.model import ModelConfig
from fastrl_cli.models.load import load_policy_model
from fastrl_cli.models.processing import Processing
from fastrl_cli.rollout.rollout import Sampling
from fastrl_cli.rollout.vllm import VllmEngine
from tests.rollout.helpers import Kit, gap, question, seeds

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    processing = Processing.load(sys.argv[1], DataConfig(instruction=""))
    model = load_policy_model(ModelConfig(path=sys.argv[1]), accelerator.device)
    environment = os.environ["LOCAL_WORLD_SIZE"], os.environ["WORLD_SIZE"]
    engine = VllmEngine(
        VllmEngineConfig(), model_path=sys.argv[1], processing=processing, device=accelerator.device, max_model_len=512
    )
    assert (os.environ["LOCAL_WORLD_SIZE"], os.environ["WORLD_SIZE"]) == environment == ("2", "2")
    kit = Kit("qwen2_5_vl", model, processing, engine, {})
    prompts = [processing.prompt(question(row, row % 3)) for row in range(rank, 5, 2)]
    sampling = Sampling(max_tokens=6 + rank, suppressed=processing.suppressed_tokens)
    answers = engine.generate(prompts, 2, sampling, seeds(len(prompts), base=rank))
    assert gap(kit, prompts, answers, sampling) < 1e-4
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    engine.sync(model.state_dict().items(), 1)
    answers = engine.generate(prompts, 2, sampling, seeds(len(prompts), base=rank))
    assert gap(kit, prompts, answers, sampling) < 1e-4
    total = accelerator.reduce(torch.tensor([float(len(prompts))]), "sum")
    assert total.item() == 5
    engine.close()
    assert accelerator.reduce(torch.ones(1), "sum").item() == 2
    print(f"rank {rank} is done")
