"""One step of training, top to bottom: generate, reward, advantage, select, old, reference, update, sync. Nothing
else in the program knows this order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from fastrl_cli.algorithms.advantages import is_degenerate
from fastrl_cli.algorithms.aggregation import Denominators
from fastrl_cli.config.run import RunConfig
from fastrl_cli.pruning import Selection, select
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.sampling import InformativeBatch, RolloutCount, group_seed
from fastrl_cli.training.collect import Collector, permute_rewards
from fastrl_cli.training.faults import Faults
from fastrl_cli.training.groups import RolloutGroup, all_rollouts, scored
from fastrl_cli.training.phases import PhaseClock
from fastrl_cli.training.policy import Policy
from fastrl_cli.training.update import BatchUpdate, KeptBatch, UpdateStats
from fastrl_cli.training.watchdog import Watchdog

Metrics = dict[str, float]


class Step(NamedTuple):
    """What a step leaves."""

    metrics: Metrics
    groups: Sequence[RolloutGroup]
    selection: Selection
    """Of `groups`."""
    set_aside: Sequence[RolloutGroup]
    """Groups that dynamic sampling generated and left out of the batch."""


class Trainer:
    """The state of a run between steps, and the step."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        collector: Collector,
        adaptive: RolloutCount,
        faults: Faults,
        reporter: Reporter,
    ) -> None:
        self.config = config
        self.policy = policy
        self.collector = collector
        self.adaptive = adaptive
        self.faults = faults
        self.reporter = reporter
        self.step_number = 0
        self.watchdog: Watchdog | None = None

    def step(self) -> Step:
        """One batch of questions, from drawing to new weights in the engine."""
        self.step_number += 1
        clock = PhaseClock(self.reporter, self.watchdog)
        n = self.adaptive.next_n()
        version = self.policy.updates
        groups, set_aside, rounds = self.collect(n, clock)
        with clock.phase("advantage"):
            for group in (*groups, *set_aside):
                group.set_advantages(self.config.algorithm.advantage_eps)
        with clock.phase("select"):
            selection = self.select(groups)
        stats = self.update(groups, selection, clock)
        with clock.phase("sync"):
            self.sync()
        self.adaptive.observe(self.step_number, selection.counts)
        self.faults.updates(stats.updates, stats.skipped)
        metrics = self.metrics(n, version, [*groups, *set_aside], selection, stats) | {"dynamic/rounds": rounds}
        metrics |= {"dynamic/dropped_groups": float(len(set_aside))} | clock.metrics()
        metrics["tokens_per_second"] = metrics["tokens/generated"] / metrics["step_seconds"]
        return Step(metrics, groups, selection, set_aside)

    def collect(self, n: int, clock: PhaseClock) -> tuple[list[RolloutGroup], list[RolloutGroup], float]:
        """The step's scored groups, those set aside, and the rounds of generation. With dynamic sampling, groups
        without spread of accuracy are set aside and other questions drawn for them, for a bounded number of rounds;
        then the step goes on with what it has."""
        wanted = self.config.batch.questions_per_step
        dynamic = self.config.algorithm.dynamic_sampling
        if dynamic is None:
            return self.round(wanted, n, clock), [], 1.0
        batch = InformativeBatch[RolloutGroup](wanted, dynamic.max_rounds)
        while count := batch.to_draw():
            groups = self.round(count, n, clock)
            batch.add(groups, [group.accuracies for group in groups])
        return batch.kept, batch.set_aside, float(batch.rounds)

    def round(self, count: int, n: int, clock: PhaseClock) -> list[RolloutGroup]:
        """Draw, generate and reward `count` questions."""
        with clock.phase("generate"):
            drawn = self.collector.draw(count)
            mine = self.collector.generate(drawn, n, self.step_number)
        with clock.phase("reward"):
            self.collector.grade(mine)
            if (penalty := self.config.algorithm.overlong_penalty) is not None:
                for group in mine:
                    group.add_overlong_penalty(penalty)
            groups = self.collector.exchange(drawn, mine)
            if self.config.reward.shuffle:
                permute_rewards(groups, group_seed(self.config.seed, self.step_number, drawn[0].draw))
        return groups

    def select(self, groups: Sequence[RolloutGroup]) -> Selection:
        """Which rollouts are trained on. With a fixed mini-batch the kept total is made a multiple of it. The number of
        processes never enters: their micro-batches are padded with dummies, so that one or several select alike."""
        divisor = self.config.optimizer.mini_batch_rollouts or 1
        candidates = [group.for_selection() for group in groups]
        return select(candidates, self.config.pruning, divisor=divisor, step=self.step_number)

    def update(self, groups: Sequence[RolloutGroup], selection: Selection, clock: PhaseClock) -> UpdateStats:
        """The old, reference and update passes over the kept rollouts."""
        kept = [
            (place, group.rollouts[index])
            for place, (group, indices) in enumerate(zip(groups, selection.kept, strict=True))
            for index in indices
        ]
        if self.nothing_to_learn(groups) or not kept:
            return UpdateStats()
        sampling = self.collector.sampling
        batch = KeptBatch(
            prompts=[group.question.prompt for group in groups],
            rollouts=[rollout for _, rollout in kept],
            group_of=[place for place, _ in kept],
            full=Denominators.count(rollout.length for rollout in all_rollouts(groups)),
        )
        is_exact = self.collector.engine.trusted_logprobs and sampling.logprobs_are_exact
        trust = is_exact and self.config.algorithm.old_logprobs == "auto"
        self.collector.engine.sleep()
        stats = BatchUpdate(self.policy, self.config.algorithm, batch, clock.phase, trust_engine=trust).run()
        self.collector.engine.wake()
        return stats

    def nothing_to_learn(self, groups: Sequence[RolloutGroup]) -> bool:
        """True, said once a step, where every advantage is zero. Without a KL term an optimiser step would then only
        follow its momentum, and is skipped."""
        if any(not is_degenerate(group.rewards) for group in groups):
            return False
        what = "in every group all rewards are equal" if groups else "no group has right and wrong answers"
        self.reporter.warn(f"step {self.step_number}: {what}, so there is nothing to learn")
        return self.config.algorithm.kl.coefficient == 0

    def sync(self) -> None:
        """Hand the new weights to the engine."""
        self.collector.engine.sync(self.policy.weights(), self.policy.updates)

    def metrics(
        self, n: int, version: int, groups: Sequence[RolloutGroup], selection: Selection, stats: UpdateStats
    ) -> Metrics:
        """The step's line of metrics, but for its seconds. `groups` are all that were generated."""
        drawn = self.collector.stream.drawn
        rollouts = all_rollouts(groups)
        metrics: Metrics = {
            "step": self.step_number,
            "epoch": drawn / len(self.collector.questions),
            "optimizer_steps": self.policy.updates,
            "samples": drawn,
            "policy_version": version,
            "rollouts_per_question": n,
            "rollouts/generated": len(rollouts),
            "rollouts/kept": selection.stats["kept"],
            "kept_fraction": selection.stats["kept"] / max(len(rollouts), 1),
            "kept/mean": selection.stats["kept_per_question_mean"],
            "kept/max": selection.stats["kept_per_question_max"],
            "kept/unaligned": float(selection.unaligned),
            "tokens/generated": sum(rollout.length for rollout in rollouts),
            "tokens/trained": selection.stats["tokens_kept"] if stats.updates or stats.skipped else 0.0,
            "tokens/forward": stats.forward_tokens,
            "tokens/padding": stats.padding_tokens,
            "mem/rss_bytes": psutil.Process().memory_info().rss,
        }
        for name, value in selection.stats.items():
            if name.startswith("reason_"):
                metrics[f"kept/reason/{name.removeprefix('reason_')}"] = value
        return metrics | reward_metrics(groups) | update_metrics(stats, self.config) | self.faults.metrics()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the loop, as JSON takes it."""
        return {
            "step": self.step_number,
            "adaptive": self.adaptive.state_dict(),
            "questions": self.collector.stream.state_dict(),
            "faults": self.faults.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step_number = state["step"]
        self.adaptive.load_state_dict(state["adaptive"])
        self.collector.stream.load_state_dict(state["questions"])
        self.faults.load_state_dict(state["faults"])


def reward_metrics(groups: Sequence[RolloutGroup]) -> Metrics:
    """Means over all generated rollouts, before any pruning."""
    rollouts = all_rollouts(groups)
    if not rollouts:
        return {}
    rewards = [scored(rollout) for rollout in rollouts]
    totals = [reward.total for reward in rewards]
    lengths = [rollout.length for rollout in rollouts]
    truncated = [rollout.generation.finish_reason == "length" for rollout in rollouts]
    unparsed = [reward.details.get("extraction", "") == "" for reward in rewards]
    metrics = {
        "reward/mean": float(np.mean(totals)),
        "reward/std": float(np.std(totals)),
        "reward/parse_fail_rate": float(np.mean(unparsed)),
        "groups/zero_std_fraction": float(np.mean([is_degenerate(group.rewards) for group in groups])),
        "advantage/abs_mean": float(np.mean([abs(rollout.advantage) for rollout in rollouts])),
        "response/length_mean": float(np.mean(lengths)),
        "response/truncated_fraction": float(np.mean(truncated)),
    }
    for name in rewards[0].parts:
        metrics[f"reward/{name}"] = float(np.mean([reward.parts[name] for reward in rewards]))
    return metrics


def update_metrics(stats: UpdateStats, config: RunConfig) -> Metrics:
    """Means over the tokens of the batch's optimiser steps; empty where there was no pass."""
    if not stats.sums:
        return {}
    means = {name: value.mean for name, value in stats.sums.items()}
    total = means["policy_loss"] + config.algorithm.kl.coefficient * means.get("kl", 0.0)
    metrics = {
        "loss/policy": means["policy_loss"],
        "loss/total": total,
        "ratio/mean": means["ratio"],
        "ratio/clip_fraction": means["clip_fraction"],
        "entropy": means["entropy"],
        "gap/logprob_abs_mean": stats.gap.mean_abs,
        "gap/logprob_abs_max": stats.gap.max_abs,
        "gap/kl": stats.gap.kl,
    }
    if "kl" in means:
        metrics["loss/kl"] = means["kl"]
    if "importance_weight" in means:
        metrics["importance_weight/mean"] = means["importance_weight"]
    if stats.grad_norms:
        metrics["grad_norm"] = float(np.mean(stats.grad_norms))
        metrics["learning_rate"] = stats.learning_rate
    return metrics
