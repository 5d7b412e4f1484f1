"""One step after another, on a tiny model with the real engine and rewards that a rule of the test decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from accelerate import Accelerator

from fastrl_cli.config.algorithm import AlgorithmConfig, DynamicSamplingConfig, KLConfig, OverlongPenaltyConfig
from fastrl_cli.config.pruning import AdvantageOnlyConfig, ARSConfig, FixedRolloutsConfig, MDAPConfig, NoPruningConfig
from fastrl_cli.config.run import BatchConfig, RunConfig
from fastrl_cli.reporting.metrics import validate
from fastrl_cli.reporting.progress import QuietReporter
from fastrl_cli.rollout.rollout import Reward, Rollout, Sampling
from fastrl_cli.rollout.transformers import TransformersEngine
from fastrl_cli.sampling import QuestionStream, rollout_count, run_length
from fastrl_cli.training.collect import Collector
from fastrl_cli.training.faults import Faults
from fastrl_cli.training.loop import Trainer
from fastrl_cli.training.policy import Policy
from tests.training.conftest import questions

NO_KL = KLConfig(coefficient=0)
Rule = Callable[[Rollout], tuple[float, float]]


def by_seed(rollout: Rollout) -> tuple[float, float]:
    """Accuracy and format, mixed within each question."""
    return float(rollout.seed % 2), 0.5 * (rollout.seed % 4 == 0)


class RuleReward:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Reward | None]:
        made: list[Reward | None] = []
        for rollout in rollouts:
            accuracy, form = self.rule(rollout)
            made.append(Reward({"accuracy": accuracy, "format": form}, accuracy + form, accuracy))
        return made


@pytest.fixture
def make_trainer(make_policy: Callable[..., Policy]) -> Callable[..., Trainer]:
    """A trainer on questions with 0, 1, 2, 0 pictures; keywords are sections of the configuration."""

    def make(rule: Rule = by_seed, *, steps: int = 8, policy: dict | None = None, **sections: object) -> Trainer:
        settings = {
            "algorithm": AlgorithmConfig(kl=NO_KL),
            "pruning": MDAPConfig(),
            "adaptive": FixedRolloutsConfig(),
            "batch": BatchConfig(questions_per_step=2, rollouts=4, steps=steps),
        }
        settings |= sections
        config = RunConfig(**settings)
        samples = questions([0, 1, 2, 0])
        trained = make_policy("qwen2_5_vl", **({"learning_rate": 1e-2} | (policy or {})))
        processing = trained.processing
        sampling = Sampling(max_tokens=6, suppressed=processing.suppressed_tokens, stop=processing.stop_tokens)
        engine = TransformersEngine(trained.model, processing, batch_size=64)
        reporter = QuietReporter()
        faults = Faults(3, reporter.warn, Accelerator(cpu=True))
        batch = config.batch
        stream = QuestionStream(len(samples), batch.questions_per_step, seed=0)
        length = run_length(len(samples), batch.questions_per_step, steps=batch.steps, epochs=batch.epochs)
        adaptive = rollout_count(
            config.adaptive, n0=batch.rollouts, total_steps=length.steps, total_epochs=length.epochs, pruning=True
        )
        collector = Collector(
            samples, stream, processing, engine, sampling, RuleReward(rule), Accelerator(cpu=True), faults,
            seed=0, overlong_is_error=False,
        )  # fmt: skip
        return Trainer(config, trained, collector, adaptive, faults, reporter)

    return make


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.policy.model.parameters()])


def test_a_step_moves_the_weights_and_reports_known_metrics(make_trainer):
    trainer = make_trainer(pruning=AdvantageOnlyConfig())
    before = weights(trainer)
    metrics, groups, selection, _ = trainer.step()
    assert not torch.equal(weights(trainer), before)
    validate(metrics)
    assert metrics["rollouts/generated"] == sum(len(group.rollouts) for group in groups) == 8
    assert metrics["rollouts/kept"] == sum(selection.counts) < 8
    assert metrics["tokens/trained"] == sum(
        group.rollouts[k].length for group, kept in zip(groups, selection.kept, strict=True) for k in kept
    )
    phases = sum(value for name, value in metrics.items() if name.startswith("phase_seconds/"))
    assert phases == pytest.approx(metrics["step_seconds"], rel=1e-6)
    assert metrics["phase_seconds/old"] == metrics["phase_seconds/reference"] == 0


def test_row_50_metrics_carry_every_counter(make_trainer):
    trainer = make_trainer(policy={"updates_per_batch": 2})
    for step in (1, 2):
        metrics = trainer.step().metrics
        assert (metrics["step"], metrics["samples"]) == (step, 2 * step)
        assert metrics["optimizer_steps"] == 2 * step
        assert metrics["policy_version"] == 2 * (step - 1)
        assert metrics["tokens/generated"] > 0
        assert metrics["step_seconds"] > 0


def test_c2_01_tau_zero_equals_the_unpruned_run_bit_for_bit(make_trainer):
    runs = []
    for pruning in (NoPruningConfig(), MDAPConfig(tau=0)):
        trainer = make_trainer(pruning=pruning)
        losses = [trainer.step()[0]["loss/total"] for _ in range(2)]
        runs.append((losses, weights(trainer)))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])


def test_c2_08_dropped_degenerate_groups_change_nothing_with_the_full_denominator(make_trainer):
    def rule(rollout: Rollout) -> tuple[float, float]:
        return (1.0, 0.5) if rollout.sample.row % 2 else by_seed(rollout)

    runs = []
    for pruning in (MDAPConfig(tau=0), MDAPConfig(tau=0, degenerate="drop")):
        trainer = make_trainer(rule, pruning=pruning, algorithm=AlgorithmConfig(kl=NO_KL, denominator="full"))
        metrics = trainer.step().metrics
        runs.append((metrics["kept_fraction"], metrics["grad_norm"]))
    assert runs[1][0] < runs[0][0]
    assert runs[1][1] == pytest.approx(runs[0][1], rel=1e-5)


def test_c2_12_advantages_are_those_of_the_whole_group_after_selection(make_trainer):
    trainer = make_trainer()
    _, groups, selection, _ = trainer.step()
    for group, kept in zip(groups, selection.kept, strict=True):
        rewards = torch.tensor(group.rewards, dtype=torch.float64)
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for k in kept:
            assert group.rollouts[k].advantage == pytest.approx(expected[k].item(), abs=1e-9)


def test_c2_19_the_passes_see_exactly_the_kept_rollouts(make_trainer, monkeypatch):
    trainer = make_trainer(policy={"updates_per_batch": 2, "reference": True}, algorithm=AlgorithmConfig())
    trainer.collector.engine.trusted_logprobs = False
    seen: dict[str, int] = {"old": 0, "reference": 0, "update": 0}
    for name, method in (("old", "frozen_logprobs"), ("reference", "reference_logprobs"), ("update", "logprobs")):
        original = getattr(trainer.policy, method)

        def counted(batch, name=name, original=original):
            seen[name] += len(batch.rollouts)
            return original(batch)

        monkeypatch.setattr(trainer.policy, method, counted)
    metrics = trainer.step().metrics
    assert seen == dict.fromkeys(seen, int(metrics["rollouts/kept"]))


def test_row_6_degenerate_groups_warn_and_skip_the_update_only_without_kl(make_trainer, capsys):
    trainer = make_trainer(lambda rollout: (0.0, 0.0))
    before = weights(trainer)
    metrics = trainer.step().metrics
    assert torch.equal(weights(trainer), before)
    assert metrics["groups/zero_std_fraction"] == 1
    assert metrics["optimizer_steps"] == 0
    assert capsys.readouterr().err.count("nothing to learn") == 1
    trainer = make_trainer(
        lambda rollout: (0.0, 0.0), algorithm=AlgorithmConfig(), policy={"reference": True, "learning_rate": 1e-3}
    )
    assert trainer.step()[0]["optimizer_steps"] == 1


def test_rows_7_and_8_dynamic_sampling_goes_by_accuracy_and_never_fails(make_trainer):
    def rule(rollout: Rollout) -> tuple[float, float]:
        return (0.0, 0.5 * (rollout.index % 2)) if rollout.sample.row != 1 else (float(rollout.index % 2), 0.5)

    dynamic = AlgorithmConfig(kl=NO_KL, dynamic_sampling=DynamicSamplingConfig(max_rounds=3))
    trainer = make_trainer(rule, algorithm=dynamic)
    metrics, groups, _, set_aside = trainer.step()
    assert {group.question.prompt.sample.row for group in groups} <= {1}
    assert metrics["dynamic/dropped_groups"] == len(set_aside) > 0
    assert metrics["rollouts/generated"] == 4 * (len(groups) + len(set_aside))
    right = sum(group.question.prompt.sample.row == 1 for group in (*groups, *set_aside))
    assert metrics["reward/accuracy"] == pytest.approx(0.5 * right / (len(groups) + len(set_aside)))
    trainer = make_trainer(lambda rollout: (0.0, 0.5 * (rollout.index % 2)), algorithm=dynamic)
    metrics, groups, _, _ = trainer.step()
    assert groups == []
    assert metrics["reward/format"] == 0.25 and metrics["tokens/generated"] > 0
    assert metrics["dynamic/rounds"] == 3
    assert metrics["rollouts/kept"] == metrics["optimizer_steps"] == 0


def test_the_overlong_penalty_enters_the_reward_but_not_the_groups_of_equal_reward(make_trainer):
    penalty = AlgorithmConfig(kl=NO_KL, overlong_penalty=OverlongPenaltyConfig(max_length=6, cache=5))
    trainer = make_trainer(lambda rollout: (1.0, 0.5), algorithm=penalty)
    metrics, groups, _, _ = trainer.step()
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout in rollouts:
        assert rollout.reward.parts["overlong"] == pytest.approx(-(max(rollout.length - 1, 0)) / 5)
        assert rollout.reward.total == pytest.approx(1.5 + rollout.reward.parts["overlong"])
    assert metrics["reward/overlong"] < 0
    for group in groups:
        assert len(set(group.for_selection().reward_keys)) == 1


def test_ars_lowers_the_number_of_rollouts_late_in_a_run(make_trainer):
    trainer = make_trainer(
        lambda rollout: (float(rollout.index % 2), 0.5),
        steps=8,
        adaptive=ARSConfig(),
        pruning=MDAPConfig(tau=0.01),
        batch=BatchConfig(questions_per_step=2, rollouts=6, steps=8),
        policy={"learning_rate": 0.0},
    )
    trainer.collector.processing.decode = lambda ids: "same"
    counts = []
    for _ in range(8):
        metrics = trainer.step().metrics
        counts.append(int(metrics["rollouts_per_question"]))
    assert counts[0] == 6
    assert all(2 <= n <= 6 for n in counts)


def test_row_21_learning_rate_zero_keeps_the_gap_flat(make_trainer):
    trainer = make_trainer(policy={"learning_rate": 0.0})
    gaps = [trainer.step()[0]["gap/logprob_abs_max"] for _ in range(3)]
    assert max(gaps) < 1e-4


def test_the_gap_stays_small_while_the_weights_move(make_trainer):
    trainer = make_trainer(policy={"learning_rate": 1e-2})
    before = weights(trainer)
    gaps = [trainer.step()[0]["gap/logprob_abs_max"] for _ in range(3)]
    assert (weights(trainer) - before).abs().max() > 1e-3
    assert max(gaps) < 1e-4


def test_state_round_trips(make_trainer):
    trainer = make_trainer(adaptive=ARSConfig())
    for _ in range(3):
        trainer.step()
    other = make_trainer(adaptive=ARSConfig())
    other.load_state_dict(trainer.state_dict())
    assert other.state_dict() == trainer.state_dict()
    assert other.step_number == 3
