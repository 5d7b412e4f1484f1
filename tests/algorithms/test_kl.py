from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.algorithms.kl import k3


def estimate(logprob: float, reference: float, dtype: torch.dtype = torch.float64) -> tuple[float, float]:
    """The estimate of one token and its derivative by the policy's log-probability."""
    logprobs = torch.tensor([logprob], dtype=dtype, requires_grad=True)
    value = k3(logprobs, torch.tensor([reference], dtype=dtype), log_ratio_clamp=20, value_clamp=10)
    (gradient,) = torch.autograd.grad(value.sum(), logprobs)
    return value.item(), gradient.item()


@pytest.mark.parametrize(
    "logprob, reference, value",
    [(-1.0, -1.0, 0.0), (-2.0, -1.0, math.e - 2), (-1.0, -2.0, 1 / math.e), (-3.0, -1.0, math.e**2 - 3)],
)
def test_k3_of_one_token(logprob: float, reference: float, value: float) -> None:
    assert estimate(logprob, reference)[0] == pytest.approx(value, rel=1e-14)


@given(st.floats(-2, 2))
def test_the_gradient_is_one_minus_the_ratio(difference: float) -> None:
    assert estimate(-5.0, -5.0 + difference)[1] == pytest.approx(1 - math.exp(difference), rel=1e-9, abs=1e-9)


@given(st.floats(-30, 0), st.floats(-30, 0))
def test_k3_is_between_zero_and_its_clamp(logprob: float, reference: float) -> None:
    assert 0 <= estimate(logprob, reference)[0] <= 10


@pytest.mark.parametrize("gap", [1e4, -1e4, 1e30, -1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_17_k3_and_its_gradient_are_finite_for_any_gap(gap: float, dtype: torch.dtype) -> None:
    assert estimate(0.0, gap, dtype) == (10.0, 0.0)


def test_small_gaps_keep_their_digits_in_float32() -> None:
    assert estimate(0.0, 1e-3, torch.float32)[0] == pytest.approx(1e-6 / 2, rel=1e-3)


def test_k3_is_unbiased_for_the_divergence() -> None:
    """Weighted by the policy's own probabilities it is KL(policy || reference), not the reverse."""
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    expected = (policy * (policy.log() - reference.log())).sum()
    estimated = (policy * k3(policy.log(), reference.log(), log_ratio_clamp=20, value_clamp=10)).sum()
    torch.testing.assert_close(estimated, expected)
