"""Accuracy of a policy on questions with known answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastrl_cli.data.problems import UnusableSampleError
from fastrl_cli.data.sample import Draw, Sample
from fastrl_cli.errors import DataError
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.reporting.summary import wilson_interval
from fastrl_cli.rewards import RewardFunction, score
from fastrl_cli.rollout.rollout import Engine, Rollout, Sampling
from fastrl_cli.sampling import group_seed
from fastrl_cli.training.ranks import gather_rollouts, share

if TYPE_CHECKING:
    from accelerate import Accelerator

    from fastrl_cli.models.processing import Processing


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found."""

    metrics: dict[str, float]
    """Under the names of `reporting.metrics`."""
    rollouts: Sequence[Rollout]
    """Graded, in the order of the questions, on every rank."""
    unusable: int
    """Questions without a usable prompt; they count as wrong."""


class Validator:
    """Asks the same questions of the engine's current weights, with seeds of its own: training randomness is
    untouched."""

    def __init__(
        self,
        samples: Sequence[Sample],
        processing: Processing,
        reward: RewardFunction,
        sampling: Sampling,
        rollouts: int,
        accelerator: Accelerator,
        seed: int,
    ) -> None:
        self.samples = samples
        self.processing = processing
        self.reward = reward
        self.sampling = sampling
        self.rollouts = rollouts
        self.accelerator = accelerator
        self.seed = seed

    def prompts(self) -> list[Prompt]:
        """Prompts of this rank's usable questions."""
        made = []
        for sample in share(self.samples, self.accelerator.process_index, self.accelerator.num_processes):
            try:
                prompt = self.processing.prompt(sample)
                self.processing.images(sample)
            except UnusableSampleError:
                continue
            made.append(prompt)
        return made

    def run(self, engine: Engine) -> Evaluation:
        """Accuracy with its interval, format, lengths, and accuracy by kind."""
        start = time.perf_counter()
        prompts = self.prompts()
        draws = [Draw(prompt.sample.id, 0) for prompt in prompts]
        seeds = [group_seed(self.seed, 0, draw) for draw in draws]
        answers = engine.generate(prompts, self.rollouts, self.sampling, seeds)
        mine = [
            Rollout(prompt.sample, draw, k, generation, self.processing.decode(generation.token_ids), seed + k)
            for prompt, draw, group, seed in zip(prompts, draws, answers, seeds, strict=True)
            for k, generation in enumerate(group)
        ]
        for rollout, reward in zip(mine, score(mine, self.reward).rewards, strict=True):
            rollout.reward = reward
        place = {sample.id: number for number, sample in enumerate(self.samples)}
        samples = {sample.id: sample for sample in self.samples}
        rollouts = gather_rollouts(mine, samples, self.accelerator)
        rollouts.sort(key=lambda rollout: (place[rollout.sample.id], rollout.index))
        if not rollouts:
            raise DataError(f"none of the {len(self.samples)} validation questions can be used")
        metrics = self.metrics(rollouts) | {"eval_seconds": time.perf_counter() - start}
        return Evaluation(metrics, rollouts, len(self.samples) - len(rollouts) // self.rollouts)

    def metrics(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Means over the questions; one that cannot be used and a rollout whose grading failed count as wrong."""
        asked = len(self.samples) * self.rollouts
        right = sum(rollout.reward.accuracy for rollout in rollouts if rollout.reward)
        low, high = wilson_interval(right / asked, len(self.samples))
        kind_of = {s.id: kind for s in self.samples if isinstance(kind := s.columns.get("kind"), str)}
        asked_of = Counter(kind_of.values())
        right_of = {
            kind: sum(r.reward.accuracy for r in rollouts if r.reward and kind_of.get(r.sample.id) == kind)
            for kind in asked_of
        }
        well_formed = sum(rollout.reward.parts.get("format", 0.0) > 0 for rollout in rollouts if rollout.reward)
        unparsed = sum(not rollout.reward.details.get("extraction") for rollout in rollouts if rollout.reward)
        return {
            "eval/accuracy": right / asked,
            "eval/accuracy_low": low,
            "eval/accuracy_high": high,
            "eval/format": well_formed / asked,
            "eval/parse_fail_rate": unparsed / asked,
            "eval/length_mean": float(np.mean([rollout.length for rollout in rollouts])),
            "eval/truncated_fraction": float(np.mean([r.generation.finish_reason == "length" for r in rollouts])),
            "eval/questions": float(len(self.samples)),
            "eval/rollouts": float(self.rollouts),
            **{
                f"eval/kind/{kind}": right_of[kind] / (count * self.rollouts)
                for kind, count in sorted(asked_of.items())
            },
        }
