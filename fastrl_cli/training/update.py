"""From kept rollouts to new weights: the old, reference and update passes of one batch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fastrl_cli.algorithms.aggregation import Denominators, step_denominators, token_weights
from fastrl_cli.algorithms.importance import GapStatistics, gap_statistics
from fastrl_cli.algorithms.loss import LossInputs, WeightedSum, policy_loss
from fastrl_cli.config.algorithm import AlgorithmConfig
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import Rollout, TokenIds
from fastrl_cli.training.packing import PackedBatch
from fastrl_cli.training.policy import Policy
from fastrl_cli.training.ranks import gather, total
from fastrl_cli.training.rows import MicroBatch, PromptRollouts, plan, split_updates

NAMED = 16
"""Rollouts that a warning names; all of a step are in its rollouts file."""

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class KeptBatch:
    """The rollouts that selection kept, question by question, and the counts before it."""

    prompts: Sequence[Prompt]
    rollouts: Sequence[Rollout]
    group_of: Sequence[int]
    """Place in `prompts` of each rollout's prompt."""
    full: Denominators
    """Of all generated rollouts of the batch."""

    @cached_property
    def lengths(self) -> list[int]:
        return [rollout.length for rollout in self.rollouts]

    @cached_property
    def responses(self) -> list[TokenIds]:
        return [rollout.generation.token_ids for rollout in self.rollouts]


@dataclass
class UpdateStats:
    """What the passes of one batch add up to, over micro-batches, updates and ranks."""

    sums: dict[str, WeightedSum] = field(default_factory=lambda: defaultdict(lambda: WeightedSum(0.0, 0.0)))
    gap: GapStatistics = field(default_factory=lambda: GapStatistics(0, 0.0, 0.0, 0.0, 0.0))
    forward_tokens: int = 0
    padding_tokens: int = 0
    grad_norms: list[float] = field(default_factory=list)
    learning_rate: float = 0.0
    updates: int = 0
    skipped: list[str] = field(default_factory=list)
    """One sentence for each skipped update."""

    def add(self, name: str, value: float, weight: float) -> None:
        self.sums[name] = self.sums[name] + WeightedSum(value, weight)


class BatchUpdate:
    """One batch's optimiser steps. Only this rank's micro-batches are computed here; denominators are those of all
    ranks, so the sum of the ranks' gradients is that of the whole step."""

    def __init__(
        self, policy: Policy, config: AlgorithmConfig, batch: KeptBatch, phase: Phase, *, trust_engine: bool
    ) -> None:
        self.policy = policy
        self.config = config
        self.batch = batch
        self.phase = phase
        self.trust_engine = trust_engine
        self.accelerator = policy.accelerator
        self.stats = UpdateStats()
        self._old: dict[tuple[int, int], Tensor] = {}
        optimizer = policy.optimizer_config
        self.parts = split_updates(len(batch.rollouts), optimizer.updates_per_batch, optimizer.mini_batch_rollouts)

    def run(self) -> UpdateStats:
        """All passes of the batch."""
        plans = [self.plan_part(part) for part in self.parts]
        if len(self.parts) > 1 and not self.trust_engine:
            with self.phase("old"):
                self.old_pass(plans)
        for number, micro_batches in enumerate(plans):
            self.update(number, micro_batches)
        self.reduce_over_ranks()
        return self.stats

    def plan_part(self, part: range) -> list[MicroBatch]:
        """This rank's micro-batches of one optimiser step."""
        by_group: dict[int, list[int]] = defaultdict(list)
        for place in part:
            by_group[self.batch.group_of[place]].append(place)
        lengths = self.batch.lengths
        groups = [
            PromptRollouts(
                len(self.batch.prompts[group].token_ids), tuple(places), tuple(lengths[place] for place in places)
            )
            for group, places in by_group.items()
        ]
        config = self.policy.config
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        plans = plan(groups, config.layout, self.policy.hidden_size, config.tokens_per_micro_batch, ranks)
        names = list(by_group)
        return [
            tuple(tuple(replace(block, group=names[block.group]) for block in row) for row in micro_batch)
            for micro_batch in plans[rank]
        ]

    def pack(self, micro_batch: MicroBatch) -> PackedBatch:
        return self.policy.pack(micro_batch, self.batch.prompts, self.batch.responses)

    def count(self, packed: PackedBatch) -> None:
        """Count the tokens of one forward pass."""
        self.stats.forward_tokens += packed.input_ids.numel()
        self.stats.padding_tokens += packed.padding_tokens

    def old_pass(self, plans: Sequence[Sequence[MicroBatch]]) -> None:
        """Log-probabilities before the first update, kept by micro-batch."""
        for number, micro_batches in enumerate(plans):
            for place, micro_batch in enumerate(micro_batches):
                packed = self.pack(micro_batch)
                self._old[number, place] = self.policy.frozen_logprobs(packed)
                self.count(packed)

    def old_logprobs(self, number: int, place: int, packed: PackedBatch) -> Tensor | None:
        """None where the update's own, detached, are the old ones: with one update on a batch they are equal in every
        precision, and no pass is needed."""
        if len(self.parts) == 1:
            return None
        if self.trust_engine:
            return self.per_token(packed, lambda rollout: rollout.generation.logprobs)
        return self._old[number, place]

    def per_token(self, packed: PackedBatch, values: Callable[[Rollout], np.ndarray]) -> Tensor:
        """(T,) values of the packed rollouts' tokens."""
        parts = [values(self.batch.rollouts[place]) for place in packed.rollouts]
        flat = np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, dtype=np.float32)
        return torch.from_numpy(flat).to(self.accelerator.device)

    def update(self, number: int, micro_batches: Sequence[MicroBatch]) -> None:
        """One optimiser step: forward and backward over the micro-batches, then clip and step."""
        part = self.parts[number]
        denominators = step_denominators(
            Denominators.count(self.batch.lengths[place] for place in part),
            Denominators.count(self.batch.lengths),
            self.batch.full,
            self.config.denominator,
        )
        suspects: list[str] = []
        for place, micro_batch in enumerate(micro_batches):
            with self.phase("update"):
                packed = self.pack(micro_batch)
            reference = None
            if self.policy.reference is not None:
                with self.phase("reference"):
                    reference = self.policy.reference_logprobs(packed)
                    self.count(packed)
            with self.phase("update"):
                last = place == len(micro_batches) - 1
                old = self.old_logprobs(number, place, packed)
                loss = self.micro_batch(packed, denominators, old, reference, first=number == 0, last=last)
                if not math.isfinite(loss):
                    suspects += self.names(packed.rollouts)
        with self.phase("update"):
            self.optimizer_step(part, suspects)

    def micro_batch(
        self,
        packed: PackedBatch,
        denominators: Denominators,
        old: Tensor | None,
        reference: Tensor | None,
        *,
        first: bool,
        last: bool,
    ) -> float:
        """Forward and backward of one micro-batch; returns its part of the loss."""
        engine = self.per_token(packed, lambda rollout: rollout.generation.logprobs)
        lengths = torch.tensor(packed.lengths, dtype=torch.long, device=self.accelerator.device)
        advantages = self.per_token(packed, lambda rollout: np.full(rollout.length, rollout.advantage))
        loss_value = 0.0

        def compute() -> Tensor:
            nonlocal loss_value
            logprobs, entropy = self.policy.logprobs(packed)
            inputs = LossInputs(
                logprobs=logprobs,
                advantages=advantages,
                sequence=packed.sequence,
                weights=token_weights(lengths, self.config.aggregation, denominators),
                old_logprobs=old,
                reference_logprobs=reference,
                engine_logprobs=engine,
            )
            output = policy_loss(inputs, self.config)
            loss_value = float(output.loss.detach())
            for name, value in output.metrics.items():
                self.stats.sums[name] = self.stats.sums[name] + value
            self.stats.add("entropy", float(entropy.sum()), len(entropy))
            if first:
                self.stats.gap = self.stats.gap + gap_statistics(logprobs, engine)
            return output.loss

        self.policy.backward(compute, last=last)
        self.count(packed)
        return loss_value

    def optimizer_step(self, part: range, suspects: list[str]) -> None:
        """Step on a finite gradient; skip, and say which rollouts were in it, on any other."""
        norm = self.policy.gradient_norm()
        suspects = gather(suspects, self.accelerator)
        if math.isfinite(norm) and not suspects:
            self.stats.learning_rate = self.policy.step()
            self.stats.grad_norms.append(norm)
            self.stats.updates += 1
            return
        self.policy.discard_gradient()
        what = "loss" if suspects else "gradient"
        names = suspects or self.names(part)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        self.stats.skipped.append(f"non-finite {what}, update skipped; rollouts {', '.join(names[:NAMED])}{more}")

    def names(self, places: Sequence[int]) -> list[str]:
        """Rollouts as a person finds them in the rollouts file."""
        rollouts = [self.batch.rollouts[place] for place in places]
        return [f"{rollout.draw.question_id}#{rollout.draw.number}.{rollout.index}" for rollout in rollouts]

    def reduce_over_ranks(self) -> None:
        """Replace this rank's sums by those of all ranks."""
        stats = self.stats
        names = sorted(stats.sums)
        values = [number for name in names for number in (stats.sums[name].total, stats.sums[name].weight)]
        gap = [stats.gap.tokens, stats.gap.sum_abs, stats.gap.sum_k3, stats.gap.sum_ratio]
        counts = [stats.forward_tokens, stats.padding_tokens]
        summed = total([*values, *gap, *counts], self.accelerator)
        for place, name in enumerate(names):
            stats.sums[name] = WeightedSum(summed[2 * place], summed[2 * place + 1])
        tokens, sum_abs, sum_k3, sum_ratio, forward, padding = summed[2 * len(names) :]
        largest = max(gather([stats.gap.max_abs], self.accelerator))
        stats.gap = GapStatistics(int(tokens), sum_abs, largest, sum_k3, sum_ratio)
        stats.forward_tokens, stats.padding_tokens = int(forward), int(padding)
