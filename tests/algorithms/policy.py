"""A toy policy with rollouts of unequal length, and an independent account of the losses: padded matrices and a plain
loop over rollouts and tokens, which shares no code with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fastrl_cli.algorithms.aggregation import Aggregation, Denominators, token_weights
from fastrl_cli.algorithms.loss import LossInputs, policy_loss
from fastrl_cli.config.algorithm import AlgorithmConfig, ImportanceCorrectionConfig, KLConfig

GRPO = AlgorithmConfig(name="grpo", clip_low=0.2, clip_high=0.3, kl=KLConfig(coefficient=0.01))
DAPO = AlgorithmConfig(name="dapo", clip_low=0.2, clip_high=0.28, kl=KLConfig(coefficient=0))
GSPO = AlgorithmConfig(
    name="gspo",
    ratio="sequence",
    clip_low=3e-4,
    clip_high=4e-4,
    aggregation="seq_mean",
    kl=KLConfig(coefficient=0),
)
ALL_TERMS = {
    f"{ratio}-{aggregation}": AlgorithmConfig(
        ratio=ratio,
        aggregation=aggregation,
        clip_low=0.05,
        clip_high=0.1,
        kl=KLConfig(coefficient=0.3),
        importance_correction=ImportanceCorrectionConfig(cap=1.05, level=level),
    )
    for ratio, level in (("token", "token"), ("sequence", "sequence"))
    for aggregation in ("token_mean", "seq_mean")
}
"""Every combination of ratio and averaging, with ranges so tight that each clip acts on some tokens, and all other
terms switched on."""


@dataclass
class Toy:
    """`log softmax(features @ weights)` over 7 tokens: rollout i has `lengths[i]` positions."""

    lengths: Sequence[int] = (5, 1, 9, 3, 12, 2, 7, 4, 6, 8, 1, 10)
    seed: int = 0
    spread: float = 0.15
    """How far the old, the reference and the engine's weights are from the policy's."""
    features: list[Tensor] = field(init=False)
    tokens: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.features = [normal(length, 4) for length in self.lengths]
        self.tokens = [torch.randint(7, (length,), generator=generator) for length in self.lengths]
        self.advantages = normal(len(self.lengths))
        self.weights = normal(4, 7).requires_grad_()
        self.others = {
            name: self.weights.detach() + self.spread * normal(4, 7) for name in ("old", "reference", "engine")
        }

    @property
    def everyone(self) -> list[int]:
        return list(range(len(self.lengths)))

    def logprobs(self, rollout: int, weights: Tensor) -> Tensor:
        scores = torch.log_softmax(self.features[rollout] @ weights, dim=-1)
        return scores[torch.arange(self.lengths[rollout]), self.tokens[rollout]]

    def inputs(
        self,
        rollouts: Sequence[int],
        aggregation: Aggregation,
        denominators: Denominators,
        weights: Tensor | None = None,
    ) -> LossInputs:
        """The micro-batch of these rollouts, as a trainer would lay it out."""
        weights = self.weights if weights is None else weights
        lengths = torch.tensor([self.lengths[i] for i in rollouts], dtype=torch.long)
        sequence = torch.arange(len(lengths)).repeat_interleave(lengths)

        def flat(weights: Tensor) -> Tensor:
            return torch.cat([self.logprobs(i, weights) for i in rollouts])

        return LossInputs(
            logprobs=flat(weights),
            old_logprobs=flat(self.others["old"]),
            reference_logprobs=flat(self.others["reference"]),
            engine_logprobs=flat(self.others["engine"]),
            advantages=self.advantages[torch.tensor(rollouts)][sequence],
            sequence=sequence,
            weights=token_weights(lengths, aggregation, denominators).double(),
        )

    def count(self, rollouts: Sequence[int]) -> Denominators:
        return Denominators.count(self.lengths[i] for i in rollouts)

    def step(
        self, micro_batches: Sequence[Sequence[int]], config: AlgorithmConfig, denominators: Denominators | None = None
    ) -> tuple[float, Tensor]:
        """Loss and gradient of one optimiser step, accumulated over micro-batches."""
        if denominators is None:
            denominators = self.count([i for rollouts in micro_batches for i in rollouts])
        total, gradient = 0.0, torch.zeros_like(self.weights)
        for rollouts in micro_batches:
            loss = policy_loss(self.inputs(rollouts, config.aggregation, denominators), config).loss
            total += loss.item()
            gradient += torch.autograd.grad(loss, self.weights)[0]
        return total, gradient


def chunks(items: Sequence[int], size: int) -> list[list[int]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def padded(rows: Sequence[Tensor], fill: float) -> Tensor:
    """(rollouts, longest) with `fill` behind each row."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)


def padded_loss(toy: Toy, rollouts: Sequence[int], config: AlgorithmConfig, fill: float) -> Tensor:
    """The loss of a whole step from matrices padded with `fill`, token by token, by the formulas as written."""
    logp = padded([toy.logprobs(i, toy.weights) for i in rollouts], fill)
    old, reference, engine = (
        padded([toy.logprobs(i, toy.others[name]) for i in rollouts], fill) for name in ("old", "reference", "engine")
    )
    row_losses, tokens = [], 0
    for row, i in enumerate(rollouts):
        advantage, length = toy.advantages[i].item(), toy.lengths[i]
        log_ratios = (logp - old)[row, :length]
        mean = log_ratios.sum().item() / length
        gaps = (old - engine)[row, :length]
        row_loss = torch.zeros((), dtype=torch.float64)
        for t in range(length):
            if config.ratio == "token":
                ratio = torch.exp(log_ratios[t])
            else:
                ratio = math.exp(mean) * torch.exp(logp[row, t] - logp[row, t].item())
            inside = min(max(ratio.item(), 1 - config.clip_low), 1 + config.clip_high)
            clipped = ratio if inside == ratio.item() else torch.tensor(inside, dtype=torch.float64)
            objective = torch.min(advantage * ratio, advantage * clipped)
            if advantage < 0 and config.dual_clip is not None:
                objective = torch.max(objective, torch.tensor(config.dual_clip * advantage, dtype=torch.float64))
            weight = 1.0
            if config.importance_correction is not None:
                of_token = config.importance_correction.level == "token"
                gap = gaps[t].item() if of_token else gaps.sum().item() / length
                weight = min(math.exp(gap), config.importance_correction.cap)
            difference = reference[row, t] - logp[row, t]
            kl = torch.exp(difference) - difference - 1
            row_loss = row_loss - weight * objective + config.kl.coefficient * kl
        row_losses.append(row_loss)
        tokens += length
    if config.aggregation == "token_mean":
        return torch.stack(row_losses).sum() / tokens
    return torch.stack([loss / toy.lengths[i] for loss, i in zip(row_losses, rollouts, strict=True)]).mean()
