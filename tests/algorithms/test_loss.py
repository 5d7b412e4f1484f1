from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fastrl_cli.algorithms.aggregation import Aggregation, Denominators, step_denominators
from fastrl_cli.algorithms.importance import Level
from fastrl_cli.algorithms.loss import LossInputs, WeightedSum, policy_loss
from fastrl_cli.config.algorithm import AlgorithmConfig, ImportanceCorrectionConfig, KLConfig
from tests.algorithms.policy import ALL_TERMS, DAPO, GRPO, GSPO, Toy, chunks, padded_loss

CONFIGS = {"grpo": GRPO, "dapo": DAPO, "gspo": GSPO, **ALL_TERMS}
FLOAT32_WEIGHTS = 1e-6
"""Tolerance where the tokens' weights, float32, meet divisions in float64."""
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def assert_same(a: tuple[float, Tensor], b: tuple[float, Tensor], tolerance: float = 1e-12) -> None:
    """Two pairs of loss and gradient."""
    assert a[0] == pytest.approx(b[0], rel=tolerance, abs=tolerance)
    torch.testing.assert_close(a[1], b[1], rtol=tolerance, atol=tolerance)


@pytest.fixture
def two_rollouts() -> LossInputs:
    """Rollouts of 2 tokens with advantage 1 and of 1 token with advantage -1, as token_mean weighs them. Ratios e^0.1,
    e^0.4, e^-0.5."""
    return LossInputs(
        logprobs=torch.tensor([-1.0, -1.0, -1.0], dtype=torch.float64, requires_grad=True),
        old_logprobs=torch.tensor([-1.1, -1.4, -0.5], dtype=torch.float64),
        reference_logprobs=torch.tensor([-1.0, -2.0, 0.0], dtype=torch.float64),
        engine_logprobs=torch.tensor([-1.1, -1.4 - math.log(1.5), -0.5 - math.log(4)], dtype=torch.float64),
        advantages=torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64),
        sequence=torch.tensor([0, 0, 1]),
        weights=torch.full((3,), 1 / 3, dtype=torch.float64),
    )


def test_grpo_by_hand(two_rollouts: LossInputs) -> None:
    output = policy_loss(two_rollouts, GRPO)
    # e^0.4 > 1.3 and e^-0.5 < 0.8 are clipped; k3 of differences 0, -1 and 1
    policy = (-math.exp(0.1) - 1.3 + 0.8) / 3
    kl = (0 + math.exp(-1) + (math.e - 2)) / 3
    assert output.loss.item() == pytest.approx(policy + 0.01 * kl, rel=1e-14)
    assert output.metrics["policy_loss"].mean == pytest.approx(policy)
    assert output.metrics["kl"].mean == pytest.approx(kl)
    assert output.metrics["clip_fraction"].mean == pytest.approx(2 / 3)
    assert output.metrics["ratio"].mean == pytest.approx((math.exp(0.1) + math.exp(0.4) + math.exp(-0.5)) / 3)
    (gradient,) = torch.autograd.grad(output.loss, two_rollouts.logprobs)
    expected = [-math.exp(0.1) / 3, 0.01 * (1 - math.exp(-1)) / 3, 0.01 * (1 - math.e) / 3]
    assert gradient.tolist() == pytest.approx(expected, rel=1e-12)


def test_dapo_by_hand(two_rollouts: LossInputs) -> None:
    output = policy_loss(two_rollouts, DAPO)
    assert output.loss.item() == pytest.approx((-math.exp(0.1) - 1.28 + 0.8) / 3, rel=1e-14)
    assert "kl" not in output.metrics


def test_gspo_by_hand(two_rollouts: LossInputs) -> None:
    batch = replace(two_rollouts, weights=torch.tensor([1 / 4, 1 / 4, 1 / 2], dtype=torch.float64))
    wide = GSPO.model_copy(update={"clip_low": 0.5, "clip_high": 0.5})
    output = policy_loss(batch, wide)
    assert output.loss.item() == pytest.approx((-math.exp(0.25) + math.exp(-0.5)) / 2, rel=1e-14)
    (gradient,) = torch.autograd.grad(output.loss, batch.logprobs)
    assert gradient.tolist() == pytest.approx([-math.exp(0.25) / 4, -math.exp(0.25) / 4, math.exp(-0.5) / 2], rel=1e-14)
    assert policy_loss(batch, GSPO).loss.item() == pytest.approx((-1.0004 + 0.9997) / 2, rel=1e-12)


def test_importance_correction_by_hand(two_rollouts: LossInputs) -> None:
    """It scales the policy term by the capped ratio of trainer to engine (1, 1.5, 4), and leaves the KL term alone."""
    config = GRPO.model_copy(update={"importance_correction": ImportanceCorrectionConfig(cap=2.0, level="token")})
    output = policy_loss(two_rollouts, config)
    policy = (-math.exp(0.1) - 1.5 * 1.3 + 2 * 0.8) / 3
    assert output.metrics["policy_loss"].total == pytest.approx(policy, rel=1e-12)
    assert output.metrics["kl"] == policy_loss(two_rollouts, GRPO).metrics["kl"]


def test_the_first_update_is_the_plain_policy_gradient() -> None:
    """Without old log-probabilities every ratio is 1: the gradient is that of -A logp, whichever ratio is chosen."""
    toy = Toy()
    batch = replace(toy.inputs(toy.everyone, "token_mean", toy.count(toy.everyone)), old_logprobs=None)
    plain = -(batch.weights * batch.advantages * batch.logprobs).sum()
    (expected,) = torch.autograd.grad(plain, toy.weights, retain_graph=True)
    for config in (DAPO, DAPO.model_copy(update={"ratio": "sequence", "clip_low": 0.0, "clip_high": 0.0})):
        output = policy_loss(batch, config)
        assert output.metrics["ratio"].mean == pytest.approx(1, rel=1e-14)
        assert output.metrics["clip_fraction"].total == 0
        (gradient,) = torch.autograd.grad(output.loss, toy.weights, retain_graph=True)
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


@every_config
def test_loss_and_gradient_equal_those_of_padded_matrices(config: AlgorithmConfig) -> None:
    toy = Toy()
    loss = padded_loss(toy, toy.everyone, config, fill=1e4)
    (gradient,) = torch.autograd.grad(loss, toy.weights)
    assert_same(toy.step([toy.everyone], config), (loss.item(), gradient), FLOAT32_WEIGHTS)


@pytest.mark.parametrize("config", ALL_TERMS.values(), ids=ALL_TERMS.keys())
def test_the_toy_exercises_every_clip(config: AlgorithmConfig) -> None:
    toy = Toy()
    metrics = policy_loss(toy.inputs(toy.everyone, "token_mean", toy.count(toy.everyone)), config).metrics
    assert 0.1 < metrics["clip_fraction"].mean < 0.9


def test_gradient_equals_finite_differences() -> None:
    toy = Toy(lengths=(3, 1, 4))
    batch = toy.inputs([0, 1, 2], "seq_mean", toy.count([0, 1, 2]))
    config = ALL_TERMS["token-seq_mean"]

    def loss(logprobs: Tensor) -> Tensor:
        return policy_loss(replace(batch, logprobs=logprobs), config).loss

    assert torch.autograd.gradcheck(loss, batch.logprobs.detach().requires_grad_())


@every_config
@pytest.mark.parametrize("size", [1, 2, 4, 5, 8])
def test_row_11_micro_batches_change_neither_loss_nor_gradient(config: AlgorithmConfig, size: int) -> None:
    toy = Toy()
    assert_same(toy.step(chunks(toy.everyone, size), config), toy.step([toy.everyone], config), 1e-6)


@every_config
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_row_12_nor_do_they_over_several_updates_of_one_batch(config: AlgorithmConfig, size: int) -> None:
    """Each optimiser step divides by its own tokens and rollouts, however many steps share a batch."""

    def train(size: int) -> Tensor:
        toy = Toy()
        for part in (toy.everyone[:7], toy.everyone[7:]):
            _, gradient = toy.step(chunks(part, size), config)
            with torch.no_grad():
                toy.weights -= 0.5 * gradient
        return toy.weights.detach()

    torch.testing.assert_close(train(size), train(12), rtol=1e-6, atol=1e-6)


@every_config
def test_row_04_the_order_of_the_rollouts_changes_nothing(config: AlgorithmConfig) -> None:
    toy = Toy()
    order = [7, 0, 11, 3, 9, 1, 10, 4, 2, 8, 6, 5]
    assert_same(toy.step(chunks(order, 5), config), toy.step([toy.everyone], config))


@every_config
def test_row_13_masking_rollouts_equals_deleting_them(config: AlgorithmConfig) -> None:
    """A masked rollout is still computed, with weight zero, and is not counted in the denominators."""
    toy = Toy()
    kept = [0, 2, 3, 6, 7, 9, 11]
    batch = toy.inputs(toy.everyone, config.aggregation, toy.count(kept))
    is_kept = torch.isin(batch.sequence, torch.tensor(kept))
    output = policy_loss(replace(batch, weights=batch.weights * is_kept), config)
    (gradient,) = torch.autograd.grad(output.loss, toy.weights)
    assert_same((output.loss.item(), gradient), toy.step([kept], config))
    deleted = policy_loss(toy.inputs(kept, config.aggregation, toy.count(kept)), config).metrics
    for name, metric in output.metrics.items():
        assert (metric.total, metric.weight) == pytest.approx((deleted[name].total, deleted[name].weight)), name


@every_config
def test_row_14_values_at_padded_positions_do_not_exist(config: AlgorithmConfig) -> None:
    """Log-probabilities taken out of padded rows by length: whatever stands behind a rollout's end never enters."""
    toy = Toy()
    batch = toy.inputs(toy.everyone, config.aggregation, toy.count(toy.everyone))
    lengths = torch.tensor(toy.lengths)
    is_token = torch.arange(20) < lengths[:, None]

    def through_padding(flat: Tensor | None, fill: float) -> Tensor:
        assert flat is not None
        rows = torch.full(is_token.shape, fill, dtype=flat.dtype).masked_scatter(is_token, flat)
        return rows[is_token]

    outcomes = []
    for fill in (0.0, 1e4, math.nan):
        filled = replace(
            batch,
            logprobs=through_padding(batch.logprobs, fill),
            old_logprobs=through_padding(batch.old_logprobs, fill),
            reference_logprobs=through_padding(batch.reference_logprobs, fill),
            engine_logprobs=through_padding(batch.engine_logprobs, fill),
        )
        loss = policy_loss(filled, config).loss
        (gradient,) = torch.autograd.grad(loss, toy.weights, retain_graph=True)
        outcomes.append((loss.item(), gradient))
    for outcome in outcomes:
        assert outcome[0] == outcomes[0][0]
        assert torch.equal(outcome[1], outcomes[0][1])


def test_row_15_gspo_with_sequence_gradient_equals_gspo_token() -> None:
    """The sequence form, in which the gradient flows through the mean log-ratio, when A is constant in a rollout."""
    toy = Toy()
    config = GSPO.model_copy(update={"clip_low": 0.05, "clip_high": 0.1, "dual_clip": None})
    losses = []
    for i in toy.everyone:
        ratio = torch.exp((toy.logprobs(i, toy.weights) - toy.logprobs(i, toy.others["old"])).mean())
        clipped = ratio.clamp(0.95, 1.1)
        losses.append(torch.maximum(-toy.advantages[i] * ratio, -toy.advantages[i] * clipped))
    loss = torch.stack(losses).mean()
    (gradient,) = torch.autograd.grad(loss, toy.weights)
    assert_same(toy.step([toy.everyone], config), (loss.item(), gradient), FLOAT32_WEIGHTS)


def test_row_15_gspo_of_doubled_rollouts_is_unchanged() -> None:
    toy = Toy()
    doubled = Toy(lengths=[2 * length for length in toy.lengths])
    doubled.features = [torch.cat([rows, rows]) for rows in toy.features]
    doubled.tokens = [torch.cat([rows, rows]) for rows in toy.tokens]
    doubled.advantages, doubled.weights, doubled.others = toy.advantages, toy.weights, toy.others
    config = ALL_TERMS["sequence-seq_mean"]
    assert_same(doubled.step([toy.everyone], config), toy.step([toy.everyone], config))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("gap", [-1e4, 1e4])
def test_row_17_loss_and_gradient_are_finite_for_any_gap(gap: float, level: Level) -> None:
    for advantage in (-1.0, 1.0):
        batch = LossInputs(
            logprobs=torch.tensor([gap, -1.0], requires_grad=True),
            old_logprobs=torch.zeros(2),
            reference_logprobs=torch.zeros(2),
            advantages=torch.full((2,), advantage),
            sequence=torch.tensor([0, 0]),
            weights=torch.full((2,), 0.5),
        )
        for dual_clip in (3.0, None):
            config = AlgorithmConfig(ratio=level, kl=KLConfig(coefficient=0.04), dual_clip=dual_clip)
            loss = policy_loss(batch, config).loss
            (gradient,) = torch.autograd.grad(loss, batch.logprobs)
            assert torch.isfinite(loss) and torch.isfinite(gradient).all()


def test_row_06_without_advantages_only_the_kl_term_moves_the_policy() -> None:
    toy = Toy()
    toy.advantages = torch.zeros(12, dtype=torch.float64)
    loss, gradient = toy.step([toy.everyone], DAPO)
    assert loss == 0 and not gradient.any()
    assert toy.step([toy.everyone], GRPO)[1].any()


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean"])
def test_dropping_rollouts_of_zero_advantage_is_lossless_with_the_full_denominator(aggregation: Aggregation) -> None:
    toy = Toy()
    dropped = [1, 4, 5, 8]
    toy.advantages[torch.tensor(dropped)] = 0
    kept = [i for i in toy.everyone if i not in dropped]
    config = DAPO.model_copy(update={"aggregation": aggregation})
    denominators = step_denominators(toy.count(kept), toy.count(kept), toy.count(toy.everyone), "full")
    unpruned = toy.step([toy.everyone], config)
    assert_same(toy.step([kept], config, denominators), unpruned)
    assert abs(toy.step([kept], config)[0] - unpruned[0]) > 1e-3


@every_config
def test_an_empty_micro_batch_gives_zero_with_a_graph(config: AlgorithmConfig) -> None:
    toy = Toy()
    nothing = (toy.features[0] @ toy.weights)[:0, 0]
    batch = LossInputs(
        logprobs=nothing,
        reference_logprobs=nothing.detach(),
        engine_logprobs=nothing.detach(),
        advantages=nothing.detach(),
        sequence=torch.zeros(0, dtype=torch.long),
        weights=nothing.detach(),
    )
    output = policy_loss(batch, config)
    (gradient,) = torch.autograd.grad(output.loss, toy.weights)
    assert output.loss.item() == 0 and not gradient.any()
    full = policy_loss(toy.inputs([0], "token_mean", toy.count([0])), config)
    assert output.metrics == dict.fromkeys(full.metrics, WeightedSum(0, 0))


@every_config
def test_a_dummy_of_zero_weight_gives_zero_with_a_graph(config: AlgorithmConfig) -> None:
    toy = Toy()
    batch = toy.inputs([3], config.aggregation, toy.count([3]))
    output = policy_loss(replace(batch, weights=torch.zeros(3)), config)
    (gradient,) = torch.autograd.grad(output.loss, toy.weights)
    assert output.loss.item() == 0 and not gradient.any()
    assert set(output.metrics.values()) == {WeightedSum(0, 0)}


@every_config
def test_metrics_add_up_over_micro_batches(config: AlgorithmConfig) -> None:
    toy = Toy()
    counts = toy.count(toy.everyone)
    parts = [policy_loss(toy.inputs(part, config.aggregation, counts), config) for part in chunks(toy.everyone, 5)]
    whole = policy_loss(toy.inputs(toy.everyone, config.aggregation, counts), config)
    for name, metric in whole.metrics.items():
        joined = parts[0].metrics[name] + parts[1].metrics[name] + parts[2].metrics[name]
        assert (joined.total, joined.weight) == pytest.approx((metric.total, metric.weight)), name
        assert joined.mean == pytest.approx(metric.mean), name
    kl = whole.metrics["kl"].total if "kl" in whole.metrics else 0
    assert whole.loss.item() == pytest.approx(whole.metrics["policy_loss"].total + config.kl.coefficient * kl)


@pytest.mark.parametrize("name", ["old_logprobs", "advantages", "sequence", "weights", "engine_logprobs"])
@pytest.mark.parametrize("shape", [(1,), (3, 1), (2,)])
def test_shapes_that_would_broadcast_are_refused(two_rollouts: LossInputs, name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"{name} has shape"):
        replace(two_rollouts, **{name: torch.zeros(shape)})


def test_padded_logprobs_are_refused(two_rollouts: LossInputs) -> None:
    with pytest.raises(ValueError, match="logprobs has shape"):
        replace(two_rollouts, logprobs=torch.zeros(1, 3))


def test_missing_reference_is_refused(two_rollouts: LossInputs) -> None:
    with pytest.raises(ValueError, match=r"kl\.coefficient"):
        policy_loss(replace(two_rollouts, reference_logprobs=None), GRPO)


def test_missing_engine_logprobs_are_refused(two_rollouts: LossInputs) -> None:
    with pytest.raises(ValueError, match="importance_correction"):
        policy_loss(replace(two_rollouts, engine_logprobs=None), ALL_TERMS["token-token_mean"])


def test_a_metric_without_weight_has_mean_zero() -> None:
    assert WeightedSum(0, 0).mean == 0
    assert (WeightedSum(1, 0.5) + WeightedSum(2, 0.25)).mean == 4


def test_denominators_of_an_iterator() -> None:
    assert Denominators.count(iter([3, 4])) == Denominators(tokens=7, rollouts=2)
