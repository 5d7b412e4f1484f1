"""What the loop knows of the model: pack, log-probabilities, backward, step, weights, save. Adapters, frozen parts and
sharding live behind this class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fastrl_cli.config.model import ModelConfig, OptimizerConfig
from fastrl_cli.errors import DivergedError
from fastrl_cli.models.positions import position_axes, prompt_positions
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import Sampling, TokenIds
from fastrl_cli.training.module import LogProbModule
from fastrl_cli.training.packing import PackedBatch, PackedPrompt, pack
from fastrl_cli.training.rows import MicroBatch

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel

    from fastrl_cli.models.processing import Processing


class Policy:
    """The trained model with its optimiser, and the frozen reference where the KL coefficient is not zero."""

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        processing: Processing,
        sampling: Sampling,
        accelerator: Accelerator,
        model_config: ModelConfig,
        optimizer_config: OptimizerConfig,
    ) -> None:
        self.model = model
        self.processing = processing
        self.accelerator = accelerator
        self.config = model_config
        self.optimizer_config = optimizer_config
        if model_config.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        module = LogProbModule(model, sampling, multimodal=processing.is_multimodal)
        optimizer = torch.optim.AdamW(
            module.parameters(),
            lr=optimizer_config.learning_rate,
            betas=optimizer_config.betas,
            eps=optimizer_config.eps,
            weight_decay=optimizer_config.weight_decay,
        )
        prepared: tuple[LogProbModule, torch.optim.Optimizer] = accelerator.prepare(module, optimizer)
        self.module, self.optimizer = prepared
        self.reference = self._frozen(reference, sampling)
        self.updates = 0

    def _frozen(self, reference: PreTrainedModel | None, sampling: Sampling) -> LogProbModule | None:
        if reference is None:
            return None
        module = LogProbModule(reference, sampling, multimodal=self.processing.is_multimodal)
        return module.requires_grad_(False).eval().to(self.accelerator.device)

    @property
    def hidden_size(self) -> int:
        """Width of the language model, which decides what a longer row costs."""
        return int(self.model.config.get_text_config().hidden_size)

    def pack(self, batch: MicroBatch, prompts: Sequence[Prompt], responses: Sequence[TokenIds]) -> PackedBatch:
        """Tensors of one micro-batch on the policy's device."""

        def prepared(group: int) -> PackedPrompt:
            prompt = prompts[group]
            features = self.processing.features(prompt.sample)
            grid = features.grid_thw if features is not None else None
            return PackedPrompt(prompt.token_ids, prompt_positions(self.model, prompt.token_ids, grid), features)

        packed = pack(batch, prepared, responses, self.processing.pad_token_id, position_axes(self.model))
        return packed.to(self.accelerator.device)

    def logprobs(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Log-probabilities (T,) with their graph, and entropies (T,)."""
        with self.accelerator.autocast():
            logprobs, entropy = self.module(batch)
        return logprobs, entropy

    def frozen_logprobs(self, batch: PackedBatch) -> Tensor:
        """Log-probabilities (T,) without a graph, of the policy as it is now."""
        with torch.no_grad(), self.accelerator.autocast():
            logprobs: Tensor = self.module(batch)[0]
        return logprobs

    def reference_logprobs(self, batch: PackedBatch) -> Tensor:
        """Log-probabilities (T,) of the reference model."""
        if self.reference is None:
            raise ValueError("no reference model was loaded: the KL coefficient is zero")
        with torch.no_grad(), self.accelerator.autocast():
            logprobs: Tensor = self.reference(batch)[0]
        return logprobs

    def backward(self, compute: Callable[[], Tensor], *, last: bool) -> None:
        """Add the gradient of a micro-batch's loss; the ranks' gradients are summed after the last one. The loss is the
        rank's part of a global sum, while DDP averages, hence the factor."""
        if last:
            (compute() * self.accelerator.num_processes).backward()
            return
        with self.accelerator.no_sync(self.module):
            (compute() * self.accelerator.num_processes).backward()

    def gradient_norm(self) -> float:
        """Clip the gradient to `max_grad_norm` and return its norm before that."""
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.optimizer_config.max_grad_norm)
        return float(norm)

    def learning_rate(self) -> float:
        """Linear warm-up, then constant."""
        warmup = self.optimizer_config.warmup_steps
        share = min(1.0, (self.updates + 1) / warmup) if warmup else 1.0
        return self.optimizer_config.learning_rate * share

    def step(self) -> float:
        """One optimiser step; returns the learning rate it used."""
        rate = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.updates += 1
        return rate

    def discard_gradient(self) -> None:
        """Forget the gradient of a skipped optimiser step."""
        self.optimizer.zero_grad()

    def check_finite(self) -> None:
        """Raise DivergedError where a weight is not finite."""
        for name, parameter in self.module.named_parameters():
            if not torch.isfinite(parameter).all():
                raise DivergedError(
                    f"after {self.updates} optimiser steps {name} has weights that are not finite, so nothing was "
                    "saved of them; the newest checkpoint stands. Lower optimizer.learning_rate."
                )

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Named weights, as `state_dict` names them, for an engine."""
        for name, tensor in self.model.state_dict().items():
            yield name, tensor.detach()

    def save(self, folder: Path) -> None:
        """Write a folder that transformers and vLLM load as it is."""
        self.model.save_pretrained(folder)
        self.processing.save(folder)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]
