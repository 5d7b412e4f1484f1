"""The parts of a run from its configuration: processes, model, engine, policy, trainer, validator. `train`, `eval`
and `bench` all build with these functions."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fastrl_cli.config.data import DataConfig
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.load import QuestionSets
from fastrl_cli.data.sample import Sample
from fastrl_cli.errors import UsageError
from fastrl_cli.evaluation.validate import Validator
from fastrl_cli.models.load import load_policy_model
from fastrl_cli.models.load import model_path as resolve_path
from fastrl_cli.models.processing import Processing
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.rewards import AccuracyFormatReward, RewardFunction
from fastrl_cli.rollout.rollout import Engine, Sampling
from fastrl_cli.rollout.select import build_engine
from fastrl_cli.sampling import QuestionStream, RunLength, rollout_count, run_length
from fastrl_cli.training.collect import Collector
from fastrl_cli.training.faults import Faults
from fastrl_cli.training.loop import Trainer
from fastrl_cli.training.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelerate import Accelerator
    from transformers import PreTrainedModel

EVALUATION_SEED = 10_000_019
"""Added to the run's seed: evaluation draws from generators of its own."""


def make_accelerator(config: RunConfig) -> Accelerator:
    """Devices, processes and precision; the global generators are seeded and the threads set here too."""
    from accelerate import Accelerator

    on_gpu = torch.cuda.is_available()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    wanted = config.model.compute_dtype
    bf16 = wanted == "bfloat16" or (wanted == "auto" and on_gpu and torch.cuda.is_bf16_supported())
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if bf16 else "no")
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    return accelerator


@dataclass(frozen=True)
class ModelParts:
    """A model with its processing and an engine that generates with it."""

    model: PreTrainedModel
    processing: Processing
    engine: Engine
    engine_reason: str


def load_model_parts(config: RunConfig, model_path: str, accelerator: Accelerator, reporter: Reporter) -> ModelParts:
    """Load the model at `model_path`, which is the configured one or a checkpoint of it, and start its engine."""
    with reporter.phase("loading the model"):
        model = load_policy_model(
            config.model.model_copy(update={"path": model_path}), accelerator.device, reporter.warn
        )
        data = within_positions(config, model.config.get_text_config().max_position_embeddings, reporter)
        processing = Processing.load(model_path, data)
    with reporter.phase("starting the engine"):
        engine, reason = build_engine(
            config.engine,
            model_path=resolve_path(model_path),
            policy_model=model,
            processing=processing,
            max_model_len=data.max_prompt_tokens + config.sampling.max_tokens,
            device=accelerator.device,
            autocast=torch.bfloat16 if accelerator.mixed_precision == "bf16" else None,
        )
    reporter.line(f"engine {engine.name}: {reason}")
    return ModelParts(model, processing, engine, reason)


def within_positions(config: RunConfig, positions: int, reporter: Reporter) -> DataConfig:
    """The data section with a limit of prompt tokens that leaves room for a response within the model's positions.
    Raises UsageError where there is no room at all."""
    room = positions - config.sampling.max_tokens
    if room < 1:
        raise UsageError(
            f"sampling.max_tokens is {config.sampling.max_tokens}, but the model has {positions} positions for prompt "
            "and response together. Lower sampling.max_tokens."
        )
    if config.data.max_prompt_tokens <= room:
        return config.data
    reporter.line(f"prompts of at most {room} tokens: the model has {positions} positions for prompt and response")
    return config.data.model_copy(update={"max_prompt_tokens": room})


def training_sampling(config: RunConfig, processing: Processing) -> Sampling:
    """How rollouts are drawn, for engine and trainer alike."""
    return Sampling(
        temperature=config.sampling.temperature,
        top_p=config.sampling.top_p,
        top_k=config.sampling.top_k,
        max_tokens=config.sampling.max_tokens,
        suppressed=processing.suppressed_tokens,
        stop=processing.stop_tokens,
    )


def evaluation_sampling(config: RunConfig, processing: Processing) -> Sampling:
    """How validation responses are drawn."""
    return Sampling(
        temperature=config.eval.temperature,
        top_p=config.eval.top_p,
        max_tokens=config.sampling.max_tokens,
        suppressed=processing.suppressed_tokens,
        stop=processing.stop_tokens,
    )


def make_trainer(
    config: RunConfig, questions: Sequence[Sample], parts: ModelParts, accelerator: Accelerator, reporter: Reporter
) -> tuple[Trainer, RunLength]:
    """A trainer at step 0, and how long its run is. A reference model is loaded only where the KL coefficient is not
    0."""
    sampling = training_sampling(config, parts.processing)
    reference = None
    if config.algorithm.kl.coefficient > 0:
        with reporter.phase("loading the reference model"):
            reference = load_policy_model(config.model, accelerator.device)
    policy = Policy(parts.model, reference, parts.processing, sampling, accelerator, config.model, config.optimizer)
    faults = Faults(config.faults.max_non_finite_steps, reporter.warn, accelerator)
    batch = config.batch
    stream = QuestionStream(len(questions), batch.questions_per_step, seed=config.seed, shuffle=config.data.shuffle)
    length = run_length(len(questions), batch.questions_per_step, steps=batch.steps, epochs=batch.epochs)
    adaptive = rollout_count(
        config.adaptive,
        n0=batch.rollouts,
        total_steps=length.steps,
        total_epochs=length.epochs,
        pruning=config.pruning.type != "none",
    )
    collector = Collector(
        questions,
        stream,
        parts.processing,
        parts.engine,
        sampling,
        AccuracyFormatReward(config.reward, parts.processing.prefill),
        accelerator,
        faults,
        seed=config.seed,
        overlong_is_error=config.data.overlong_prompt == "error",
    )
    return Trainer(config, policy, collector, adaptive, faults, reporter), length


def make_validator(
    config: RunConfig, questions: QuestionSets, parts: ModelParts, reward: RewardFunction, accelerator: Accelerator
) -> Validator | None:
    """None where the data set has no validation split."""
    if not questions.validation:
        return None
    return Validator(
        questions.validation,
        parts.processing,
        reward,
        evaluation_sampling(config, parts.processing),
        config.eval.rollouts,
        accelerator,
        config.seed + EVALUATION_SEED,
    )
