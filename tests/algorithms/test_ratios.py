from __future__ import annotations

import math

import pytest
import torch

from fastrl_cli.algorithms.ratios import sequence_log_ratio, sequence_mean, token_log_ratio


def test_token_log_ratio_is_the_difference() -> None:
    ratio = token_log_ratio(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0]), clamp=20)
    assert ratio.tolist() == [0.5, -1.0]


def test_sequence_mean_is_of_each_rollout() -> None:
    values = torch.tensor([1.0, 3.0, 10.0, 4.0, 5.0, 6.0])
    assert sequence_mean(values, torch.tensor([0, 0, 1, 2, 2, 2])).tolist() == [2, 2, 10, 5, 5, 5]


def test_sequence_mean_of_nothing_is_nothing() -> None:
    assert sequence_mean(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_sequence_mean_takes_tokens_in_any_order() -> None:
    assert sequence_mean(torch.tensor([1.0, 10.0, 3.0]), torch.tensor([0, 1, 0])).tolist() == [2, 10, 2]


def test_row_15_sequence_ratio_is_the_exponential_of_the_mean() -> None:
    """Not exp of the sum, not the sum or the mean of exponentials."""
    logprobs = torch.tensor([-1.0, -1.0, -1.0, -2.0], dtype=torch.float64)
    old = torch.tensor([-1.2, -0.9, -1.8, -2.5], dtype=torch.float64)
    ratio = sequence_log_ratio(logprobs, old, torch.tensor([0, 0, 0, 1]), clamp=20).exp()
    assert ratio.tolist() == pytest.approx([math.exp((0.2 - 0.1 + 0.8) / 3)] * 3 + [math.exp(0.5)], rel=1e-14)


def test_row_15_doubling_a_rollout_leaves_its_sequence_ratio() -> None:
    generator = torch.Generator().manual_seed(0)
    logprobs, old = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    once = sequence_log_ratio(logprobs, old, torch.zeros(7, dtype=torch.long), clamp=20)
    twice = sequence_log_ratio(
        torch.cat([logprobs, logprobs]), torch.cat([old, old]), torch.zeros(14, dtype=torch.long), clamp=20
    )
    torch.testing.assert_close(twice, torch.cat([once, once]), rtol=0, atol=1e-14)


def test_sequence_ratio_sends_each_token_its_own_gradient() -> None:
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    ratio = sequence_log_ratio(logprobs, torch.tensor([-1.1, -2.3, -2.8]), torch.tensor([0, 0, 1]), clamp=20)
    (gradient,) = torch.autograd.grad(ratio @ torch.tensor([1.0, 10.0, 100.0]), logprobs)
    assert gradient.tolist() == [1.0, 10.0, 100.0]


def test_sequence_ratio_of_float32_loses_no_digits_to_large_logprobs() -> None:
    logprobs = torch.full((3,), -30.0)
    old = torch.tensor([-30.0 - 2**-19, -30.0, -30.0])
    ratio = sequence_log_ratio(logprobs, old, torch.zeros(3, dtype=torch.long), clamp=20)
    assert ratio.tolist() == pytest.approx([2**-19 / 3] * 3, rel=1e-6, abs=0)


@pytest.mark.parametrize("gap", [-1e4, 1e4])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_row_17_log_ratio_is_bounded_before_it_is_exponentiated(gap: float, level: str) -> None:
    logprobs = torch.full((3,), gap, requires_grad=True)
    old = torch.zeros(3)
    if level == "token":
        log_ratio = token_log_ratio(logprobs, old, clamp=20)
    else:
        log_ratio = sequence_log_ratio(logprobs, old, torch.zeros(3, dtype=torch.long), clamp=20)
    assert log_ratio.tolist() == [math.copysign(20, gap)] * 3
    (gradient,) = torch.autograd.grad(log_ratio.exp().sum(), logprobs)
    assert gradient.tolist() == [0, 0, 0]
