from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.algorithms.clipping import clipped_policy_loss


def one(
    ratio: float, advantage: float, low: float = 0.2, high: float = 0.3, dual: float | None = 3.0
) -> tuple[float, bool, float]:
    """Loss, whether it is clipped, and its derivative by the log-ratio, of one token."""
    log_ratio = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    loss, clipped = clipped_policy_loss(log_ratio, torch.tensor([advantage], dtype=torch.float64), low, high, dual)
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    return loss.item(), bool(clipped.item()), gradient.item()


@pytest.mark.parametrize(
    "ratio, advantage, loss, clipped",
    [
        (1.0, 2.0, -2.0, False),
        (1.25, 2.0, -2.5, False),
        (1.31, 2.0, -2.6, True),  # the upper bound acts on a good token
        (0.5, 2.0, -1.0, False),  # the lower one does not
        (0.9, -2.0, 1.8, False),
        (0.5, -2.0, 1.6, True),  # the lower bound acts on a bad token
        (1.31, -2.0, 2.62, False),  # the upper one does not
        (2.9, -2.0, 5.8, False),
        (3.1, -2.0, 6.0, True),  # beyond the dual clip
        (3.1, 2.0, -2.6, True),
        (5.0, 0.0, 0.0, False),
    ],
)
def test_loss_of_one_token(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    value, is_clipped, gradient = one(ratio, advantage)
    assert value == pytest.approx(loss, rel=1e-12, abs=1e-12)
    assert is_clipped is clipped
    assert gradient == pytest.approx(0 if clipped else -advantage * ratio, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("low, high", [(0.2, 0.28), (3e-4, 4e-4), (0.1, 0.9), (0.0, 0.0)])
def test_the_range_is_asymmetric(low: float, high: float) -> None:
    assert one(1 + high + 1e-2, 1.0, low, high)[0] == pytest.approx(-(1 + high), rel=1e-12)
    assert one(1 - low - 1e-2, -1.0, low, high)[0] == pytest.approx(1 - low, rel=1e-12)


def test_the_first_update_is_never_clipped_even_by_an_empty_range() -> None:
    assert one(1.0, 1.5, low=0.0, high=0.0) == (-1.5, False, -1.5)


@given(st.floats(-20, 20), st.floats(-5, 5), st.floats(1.01, 10))
def test_dual_clip_bounds_the_loss_of_bad_tokens(log_ratio: float, advantage: float, dual: float) -> None:
    ratio = math.exp(log_ratio)
    bounded, unbounded = one(ratio, advantage, dual=dual)[0], one(ratio, advantage, dual=None)[0]
    if advantage < 0:
        assert bounded <= -advantage * dual * (1 + 1e-12)
        assert bounded == pytest.approx(min(unbounded, -advantage * dual), rel=1e-12)
    else:
        assert bounded == unbounded


def test_without_dual_clip_the_loss_of_a_bad_token_grows_with_its_ratio() -> None:
    loss, clipped, gradient = one(100.0, -1.0, dual=None)
    assert not clipped
    assert (loss, gradient) == pytest.approx((100, 100))


@given(st.floats(-20, 20), st.floats(-5, 5))
def test_the_loss_is_never_below_the_unclipped_one_except_by_the_dual_clip(log_ratio: float, advantage: float) -> None:
    loss = one(math.exp(log_ratio), advantage, dual=None)[0]
    assert loss >= -advantage * math.exp(log_ratio) * (1 if advantage < 0 else 1 + 1e-12) - 1e-9


@given(st.floats(-20, 20), st.floats(-5, 5).filter(lambda advantage: abs(advantage) > 1e-3))
def test_the_mask_names_the_tokens_without_gradient(log_ratio: float, advantage: float) -> None:
    _, clipped, gradient = one(math.exp(log_ratio), advantage)
    assert clipped == (gradient == 0)
