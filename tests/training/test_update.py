"""The passes of one batch: what decides the gradient, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from fastrl_cli.algorithms.aggregation import Denominators
from fastrl_cli.config.algorithm import AlgorithmConfig, ImportanceCorrectionConfig, KLConfig
from fastrl_cli.data.sample import Draw
from fastrl_cli.rollout.rollout import Generation, Rollout
from fastrl_cli.training.policy import Policy
from fastrl_cli.training.update import BatchUpdate, KeptBatch, UpdateStats
from tests.training.conftest import questions

NO_KL = KLConfig(coefficient=0)
GRPO = AlgorithmConfig(kl=NO_KL)
GSPO = AlgorithmConfig(name="gspo", ratio="sequence", aggregation="seq_mean", clip_low=3e-4, clip_high=4e-4, kl=NO_KL)
SAMPLES = questions([0, 1, 2])


def make_kept(policy: Policy, counts: tuple[int, ...] = (4, 5, 3), seed: int = 0) -> KeptBatch:
    """Random responses with alternating advantages, and the policy's own log-probabilities as the engine's, nearly."""
    random = np.random.RandomState(seed)
    prompts = [policy.processing.prompt(sample) for sample in SAMPLES]
    rollouts, group_of = [], []
    for place, count in enumerate(counts):
        for index in range(count):
            length = random.randint(1, 14)
            generation = Generation(
                random.randint(0, 256, length).astype(np.int32),
                random.uniform(-7, -4, length).astype(np.float32),
                "stop",
                0,
            )
            rollout = Rollout(SAMPLES[place], Draw(SAMPLES[place].id, place), index, generation, "", seed=index)
            rollout.advantage = float(random.normal())
            rollouts.append(rollout)
            group_of.append(place)
    return KeptBatch(prompts, rollouts, group_of, Denominators.count(rollout.length for rollout in rollouts))


def run_update(policy: Policy, config: AlgorithmConfig, batch: KeptBatch, *, trust: bool = False) -> UpdateStats:
    return BatchUpdate(policy, config, batch, lambda name: nullcontext(), trust_engine=trust).run()


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


@pytest.fixture
def gradient_of(make_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch):
    """The gradients of each optimiser step under some settings; the weights stay."""

    def gradients(config: AlgorithmConfig, counts: tuple[int, ...] = (4, 5, 3), **settings: object):
        reference = config.kl.coefficient > 0
        policy = make_policy("qwen2_5_vl", learning_rate=0.0, weight_decay=0.0, reference=reference, **settings)
        found = []
        norm = policy.gradient_norm

        def record() -> float:
            found.append({n: p.grad.clone() for n, p in policy.model.named_parameters()})
            return norm()

        monkeypatch.setattr(policy, "gradient_norm", record)
        stats = run_update(policy, config, make_kept(policy, counts))
        return found, stats

    return gradients


def assert_close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    whole = torch.sqrt(sum(value.square().sum() for value in first.values()))
    difference = torch.sqrt(sum((first[name] - second[name]).square().sum() for name in first))
    assert whole > 0
    assert difference <= tolerance * whole


@pytest.mark.parametrize("config", [GRPO, GSPO, AlgorithmConfig(kl=KLConfig(coefficient=0.1))], ids=lambda c: c.name)
def test_rows_11_and_25_the_micro_batches_change_no_gradient(gradient_of, config: AlgorithmConfig):
    reference, _ = gradient_of(config, tokens_per_micro_batch=100_000)
    for budget in (1, 200, 600):
        gradients, _ = gradient_of(config, tokens_per_micro_batch=budget)
        assert_close(reference[0], gradients[0])
    for layout in ("rows", "shared_prefix"):
        gradients, _ = gradient_of(config, layout=layout)
        assert_close(reference[0], gradients[0])


@pytest.mark.parametrize("config", [GRPO, GSPO], ids=lambda c: c.name)
def test_row_12_nor_over_several_updates(gradient_of, config: AlgorithmConfig):
    reference, _ = gradient_of(config, updates_per_batch=3, tokens_per_micro_batch=100_000)
    gradients, _ = gradient_of(config, updates_per_batch=3, tokens_per_micro_batch=1)
    assert len(reference) == len(gradients) == 3
    for first, second in zip(reference, gradients, strict=True):
        assert_close(first, second)


def test_gradient_checkpointing_changes_no_gradient(gradient_of):
    plain, _ = gradient_of(GRPO)
    recomputed, _ = gradient_of(GRPO, gradient_checkpointing=True)
    assert_close(plain[0], recomputed[0])


def test_the_number_of_updates_does_not_depend_on_how_many_are_kept(gradient_of):
    for counts in ((4, 5, 3), (2, 2, 1)):
        gradients, stats = gradient_of(GRPO, counts, updates_per_batch=2)
        assert len(gradients) == stats.updates == 2
    gradients, _ = gradient_of(GRPO, (4, 5, 3), updates_per_batch=None, mini_batch_rollouts=5)
    assert len(gradients) == 3


def test_one_update_needs_no_old_pass_and_has_ratio_one(make_policy: Callable[..., Policy], monkeypatch):
    policy = make_policy("qwen2_5_vl")
    monkeypatch.setattr(policy, "frozen_logprobs", lambda batch: pytest.fail("an old pass ran"))
    stats = run_update(policy, GRPO, make_kept(policy))
    assert stats.sums["ratio"].mean == pytest.approx(1.0, abs=1e-7)
    assert stats.updates == 1


def test_several_updates_take_old_logprobs_from_before_the_first(make_policy: Callable[..., Policy]):
    policy = make_policy("qwen2_5_vl", updates_per_batch=2, learning_rate=1e-2)
    batch = make_kept(policy)
    update = BatchUpdate(policy, GRPO, batch, lambda name: nullcontext(), trust_engine=False)
    plans = [update.plan_part(part) for part in update.parts]
    update.old_pass(plans)
    before = {key: value.clone() for key, value in update._old.items()}
    stats = update.run()
    for key, value in before.items():
        torch.testing.assert_close(update._old[key], value, atol=0, rtol=0)
    assert stats.sums["ratio"].mean != pytest.approx(1.0, abs=1e-4)


def test_a_trusted_engine_saves_the_old_pass(make_policy: Callable[..., Policy], monkeypatch):
    policy = make_policy("qwen2_5_vl", updates_per_batch=2, learning_rate=0.0)
    batch = make_kept(policy)
    for rollout in batch.rollouts:
        rollout.generation.logprobs[:] = -50.0
    monkeypatch.setattr(policy, "frozen_logprobs", lambda packed: pytest.fail("an old pass ran"))
    stats = run_update(policy, GRPO, batch, trust=True)
    assert stats.sums["ratio"].mean > 1e6


def test_old_pass_with_learning_rate_zero_gives_ratio_one(gradient_of):
    _, stats = gradient_of(GRPO, updates_per_batch=3)
    assert stats.sums["ratio"].mean == pytest.approx(1.0, abs=1e-5)


def test_the_parameters_change_and_all_of_them_have_gradients(make_policy: Callable[..., Policy]):
    for kind in ("qwen2_5_vl", "qwen3_vl"):
        policy = make_policy(kind, learning_rate=1e-3)
        before = weights(policy)
        run_update(policy, GRPO, make_kept(policy))
        changed = (weights(policy) != before).float().mean()
        assert changed > 0.9


def test_the_reference_stays_and_kl_grows_with_the_distance(make_policy: Callable[..., Policy]):
    config = AlgorithmConfig(kl=KLConfig(coefficient=0.1))
    policy = make_policy("qwen2_5_vl", reference=True, learning_rate=1e-2)
    frozen = [parameter.clone() for parameter in policy.reference.parameters()]
    batch = make_kept(policy)
    first = run_update(policy, config, batch)
    second = run_update(policy, config, batch)
    assert first.sums["kl"].mean == pytest.approx(0.0, abs=1e-6)
    assert second.sums["kl"].mean > 1e-4
    assert all(torch.equal(a, b) for a, b in zip(frozen, policy.reference.parameters(), strict=True))


def test_denominator_full_makes_dropping_zero_advantages_lossless(make_policy: Callable[..., Policy], monkeypatch):
    config = AlgorithmConfig(kl=NO_KL, denominator="full")
    gradients = []
    for dropped in (False, True):
        policy = make_policy("qwen2_5_vl", learning_rate=0.0)
        batch = make_kept(policy)
        for rollout in batch.rollouts[::2]:
            rollout.advantage = 0.0
        if dropped:
            places = range(1, len(batch.rollouts), 2)
            batch = KeptBatch(
                batch.prompts,
                [batch.rollouts[k] for k in places],
                [batch.group_of[k] for k in places],
                batch.full,
            )
        norm = policy.gradient_norm
        monkeypatch.setattr(
            policy,
            "gradient_norm",
            lambda policy=policy, norm=norm: (
                gradients.append({n: p.grad.clone() for n, p in policy.model.named_parameters()}),
                norm(),
            )[1],
        )
        run_update(policy, config, batch)
    assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_row_18_a_non_finite_loss_skips_the_step_and_names_the_rollouts(make_policy, bad: float):
    policy = make_policy("qwen2_5_vl", tokens_per_micro_batch=1)
    batch = make_kept(policy)
    batch.rollouts[5].advantage = bad
    before = weights(policy)
    stats = run_update(policy, GRPO, batch)
    assert stats.updates == 0
    assert len(stats.skipped) == 1
    assert f"{SAMPLES[1].id}#1.1" in stats.skipped[0]
    assert torch.equal(weights(policy), before)
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in policy.model.parameters())


def test_the_gap_to_the_engine_is_measured_on_the_weights_that_sampled(make_policy: Callable[..., Policy]):
    policy = make_policy("qwen2_5_vl", updates_per_batch=2, learning_rate=1e-2)
    batch = make_kept(policy)
    stats = run_update(policy, GRPO, batch)
    assert stats.gap.tokens == sum(rollout.length for rollout in batch.rollouts[: len(batch.rollouts) // 2])
    assert stats.gap.mean_abs > 0.1


def test_importance_correction_caps_its_weights(make_policy: Callable[..., Policy]):
    config = AlgorithmConfig(kl=NO_KL, importance_correction=ImportanceCorrectionConfig(cap=2.0))
    policy = make_policy("qwen2_5_vl", learning_rate=0.0)
    batch = make_kept(policy)
    for rollout in batch.rollouts:
        rollout.generation.logprobs[:] = -60.0
    stats = run_update(policy, config, batch)
    assert stats.sums["importance_weight"].mean == pytest.approx(2.0)


def test_warm_up_rises_linearly(make_policy: Callable[..., Policy]):
    policy = make_policy("llama", learning_rate=1.0, warmup_steps=4)
    rates = []
    for _ in range(6):
        rates.append(policy.learning_rate())
        policy.updates += 1
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_phases_are_entered_in_the_papers_order(make_policy: Callable[..., Policy]):
    config = AlgorithmConfig(kl=KLConfig(coefficient=0.1))
    policy = make_policy("qwen2_5_vl", reference=True, updates_per_batch=2)
    seen: list[str] = []

    def phase(name: str):
        seen.append(name)
        return nullcontext()

    BatchUpdate(policy, config, make_kept(policy), phase, trust_engine=False).run()
    assert seen[0] == "old"
    assert seen.count("old") == 1
    assert seen.index("reference") < len(seen) - seen[::-1].index("update") - 1
