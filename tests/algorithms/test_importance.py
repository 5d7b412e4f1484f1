from __future__ import annotations

import math

import pytest
import torch

from fastrl_cli.algorithms.importance import GapStatistics, Level, gap_statistics, importance_weights

SEQUENCE = torch.tensor([0, 0, 0, 1])
TRAINER = torch.tensor([-1.0, -2.0, -0.5, -1.0], dtype=torch.float64)
ENGINE = torch.tensor([-1.1, -1.7, -2.5, -1.2], dtype=torch.float64)
NOTHING = torch.zeros(0)


def test_token_weights_are_ratios_up_to_the_cap() -> None:
    weights = importance_weights(TRAINER, ENGINE, SEQUENCE, "token", cap=2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.1), math.exp(-0.3), 2.0, math.exp(0.2)], rel=1e-12)


def test_row_15_sequence_weight_is_the_exponential_of_the_mean() -> None:
    weights = importance_weights(TRAINER, ENGINE, SEQUENCE, "sequence", cap=2.0)
    assert weights.tolist() == pytest.approx([math.exp(1.8 / 3)] * 3 + [math.exp(0.2)], rel=1e-12)
    assert importance_weights(TRAINER, ENGINE, SEQUENCE, "sequence", cap=1.5).tolist()[0] == pytest.approx(1.5)


def test_row_15_sequence_weight_of_a_long_rollout_stays_near_one() -> None:
    """A gap of 0.001 a token over 3,000 tokens: the exponential of the sum would be 0.05."""
    weights = importance_weights(
        torch.full((3000,), -1.001), torch.full((3000,), -1.0), torch.zeros(3000, dtype=torch.long), "sequence", cap=2.0
    )
    assert weights[0].item() == pytest.approx(math.exp(-0.001), rel=1e-4)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_are_constants(level: Level) -> None:
    logprobs = TRAINER.clone().requires_grad_()
    assert not importance_weights(logprobs, ENGINE, SEQUENCE, level, cap=2.0).requires_grad


@pytest.mark.parametrize("gap", [-1e4, 1e4])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_row_17_weights_are_finite_for_any_gap(level: Level, gap: float) -> None:
    weights = importance_weights(torch.full((4,), gap), torch.zeros(4), SEQUENCE, level, cap=2.0)
    assert weights.tolist() == pytest.approx([2.0 if gap > 0 else 0.0] * 4)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_an_empty_micro_batch_has_no_weights(level: Level) -> None:
    assert importance_weights(NOTHING, NOTHING, NOTHING.long(), level, cap=2.0).shape == (0,)


def test_gap_statistics_of_four_tokens() -> None:
    gap = gap_statistics(TRAINER, ENGINE)
    differences = [0.1, -0.3, 2.0, 0.2]
    assert gap.tokens == 4
    assert gap.mean_abs == pytest.approx(2.6 / 4)
    assert gap.max_abs == pytest.approx(2.0)
    assert gap.mean_ratio == pytest.approx(sum(math.exp(d) for d in differences) / 4)
    assert gap.kl == pytest.approx(sum(math.exp(d) - d - 1 for d in differences) / 4)


def test_gap_statistics_add_up_over_parts() -> None:
    parts = [gap_statistics(TRAINER[i:j], ENGINE[i:j]) for i, j in ((0, 1), (1, 4), (4, 4))]
    joined = parts[0] + parts[1] + parts[2]
    whole = gap_statistics(TRAINER, ENGINE)
    assert (joined.tokens, joined.max_abs) == (whole.tokens, whole.max_abs)
    assert (joined.mean_abs, joined.kl, joined.mean_ratio) == pytest.approx(
        (whole.mean_abs, whole.kl, whole.mean_ratio)
    )


def test_gap_statistics_of_nothing_are_zero() -> None:
    gap = gap_statistics(NOTHING, NOTHING)
    assert gap == GapStatistics(tokens=0, sum_abs=0, max_abs=0, sum_k3=0, sum_ratio=0)
    assert (gap.mean_abs, gap.kl, gap.mean_ratio) == (0, 0, 0)


def test_row_17_gap_statistics_are_finite_for_any_gap() -> None:
    gap = gap_statistics(torch.tensor([0.0, -1e4]), torch.tensor([-1e4, 0.0]))
    assert gap.max_abs == 1e4
    assert math.isfinite(gap.kl) and math.isfinite(gap.mean_ratio)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_row_19_one_temperature_on_both_sides_gives_ratios_of_one(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 11, generator=generator)
    tokens = torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)

    def logprobs(temperature: float) -> torch.Tensor:
        return torch.log_softmax(logits / temperature, dim=-1).gather(1, tokens)[:, 0]

    gap = gap_statistics(logprobs(temperature), logprobs(temperature))
    assert (gap.mean_ratio, gap.max_abs, gap.kl) == (1, 0, 0)
    forgotten = gap_statistics(logprobs(1.0), logprobs(temperature))
    assert temperature == 1.0 or forgotten.mean_abs > 0.1
