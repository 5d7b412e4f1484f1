from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.algorithms.advantages import group_advantages, is_degenerate, overlong_penalty
from fastrl_cli.config.algorithm import OverlongPenaltyConfig

REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=16)


def test_advantages_of_one_right_in_four() -> None:
    # mean 0.25, squared deviations 0.5625 + 3 * 0.0625 = 0.75, sample deviation sqrt(0.75 / 3) = 0.5
    advantages = group_advantages([1, 0, 0, 0], eps=0)
    np.testing.assert_allclose(advantages, [1.5, -0.5, -0.5, -0.5], rtol=1e-15)
    assert advantages.dtype == np.float64


def test_advantages_of_one_right_in_eight() -> None:
    advantages = group_advantages([0, 0, 0, 1, 0, 0, 0, 0], eps=1e-6)
    assert advantages[3] == pytest.approx(2.475, abs=5e-4)
    assert advantages[0] == pytest.approx(-0.354, abs=5e-4)


def test_eps_is_added_to_the_deviation() -> None:
    assert group_advantages([1, 0], eps=0.25)[0] == pytest.approx(0.5 / (math.sqrt(0.5) + 0.25), rel=1e-15)


@given(REWARDS)
def test_advantages_equal_the_formula_written_out(rewards: list[float]) -> None:
    n = len(rewards)
    mean = math.fsum(rewards) / n
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (n - 1))
    expected = [(reward - mean) / (deviation + 1e-3) for reward in rewards]
    np.testing.assert_allclose(group_advantages(rewards, 1e-3), expected, rtol=1e-9, atol=1e-9)


@given(REWARDS, st.randoms())
def test_row_04_shuffling_the_rollouts_changes_no_bit(rewards: list[float], random: object) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = group_advantages([rewards[i] for i in order], 1e-6)
    assert shuffled.tolist() == group_advantages(rewards, 1e-6)[order].tolist()


@given(st.floats(-1e6, 1e6), st.integers(2, 33), st.sampled_from([0.0, 1e-6]))
def test_equal_rewards_give_exactly_zero(reward: float, n: int, eps: float) -> None:
    assert group_advantages([reward] * n, eps).tolist() == [0.0] * n


def test_equal_rewards_in_a_group_have_equal_advantages() -> None:
    advantages = group_advantages([0.1, 1.1, 0.1, 0.6, 1.1, 0.1], 1e-6)
    assert advantages[0] == advantages[2] == advantages[5]
    assert advantages[1] == advantages[4]


@pytest.mark.parametrize("rewards", [[], [1.0]])
def test_row_01_fewer_than_two_rollouts_are_refused_with_the_reason(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match=r"at least 2 rollouts.*compares the rollouts of one question"):
        group_advantages(rewards, 1e-6)


def test_several_groups_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        group_advantages([[1, 0, 1], [0, 0, 1]], 1e-6)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages([0.0, reward, 1.0], 1e-6)


@pytest.mark.parametrize(
    "accuracies, degenerate",
    [([0, 0, 0], True), ([1, 1], True), ([1], True), ([0, 1, 0], False), ([1, 1, 1, 0], False)],
)
def test_degenerate_is_all_right_or_all_wrong(accuracies: list[float], degenerate: bool) -> None:
    assert is_degenerate(accuracies) is degenerate


@pytest.mark.parametrize("accuracy_weight, format_weight", [(0.9, 0.1), (1.0, 0.5)])
def test_row_08_equal_accuracy_with_unequal_format_is_degenerate(accuracy_weight: float, format_weight: float) -> None:
    """Both shaped rewards of the peers: a group of wrong answers of which half are well formed has a spread of reward,
    a group that is half right may have any mean of it. Only the spread of accuracy decides."""

    def rewards(accuracies: list[int], formats: list[int]) -> list[float]:
        return [accuracy_weight * a + format_weight * f for a, f in zip(accuracies, formats, strict=True)]

    all_wrong, half_right = [0, 0, 0, 0], [1, 1, 0, 0]
    mixed_format, all_formatted = [1, 0, 1, 0], [1, 1, 1, 1]
    assert np.ptp(rewards(all_wrong, mixed_format)) > 0
    assert is_degenerate(all_wrong)
    assert np.ptp(rewards(half_right, all_formatted)) > 0
    assert not is_degenerate(half_right)


@pytest.mark.parametrize(
    "length, penalty", [(0, 0.0), (60, 0.0), (61, -0.025), (80, -0.5), (100, -1.0), (101, -1.0), (5000, -1.0)]
)
def test_overlong_penalty(length: int, penalty: float) -> None:
    config = OverlongPenaltyConfig(max_length=100, cache=40)
    assert overlong_penalty(length, config) == pytest.approx(penalty, abs=1e-15)


def test_overlong_penalty_of_the_paper() -> None:
    config = OverlongPenaltyConfig(max_length=20480, cache=4096)
    assert overlong_penalty(16384, config) == 0
    assert overlong_penalty(16384 + 1024, config) == -0.25
