from __future__ import annotations

import numpy as np
import pytest

from fastrl_cli.sampling import InformativeBatch, expected_dead_groups, has_spread, keep_informative

RIGHT, WRONG, MIXED = [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]


@pytest.mark.parametrize(("accuracy_weight", "format_weight"), [(0.9, 0.1), (1.0, 0.5)])
@pytest.mark.parametrize(
    ("right", "formatted", "informative"),
    [
        ([0, 0, 0, 0], [1, 1, 1, 1], False),  # the mean reward alone looks neither right nor wrong
        ([0, 0, 0, 0], [1, 0, 1, 0], False),  # the reward has a spread
        ([1, 1, 1, 1], [1, 0, 1, 1], False),
        ([1, 1, 1, 0], [1, 1, 1, 1], True),  # a mean reward of 1 and above
        ([1, 0, 0, 0], [0, 0, 0, 0], True),
    ],
)
def test_the_spread_is_that_of_accuracy_whatever_the_format_adds(
    accuracy_weight: float, format_weight: float, right: list[int], formatted: list[int], informative: bool
) -> None:
    rewards = accuracy_weight * np.array(right) + format_weight * np.array(formatted)
    by_mean_reward = 0.01 < rewards.mean() < 0.99
    assert has_spread(right) == informative
    if not any(right):
        assert by_mean_reward, "a filter on the mean reward would keep this group"


def test_groups_without_rollouts_have_no_spread() -> None:
    assert not has_spread([])


def test_keep_informative_keeps_order_and_stops_at_what_is_needed() -> None:
    accuracies = [RIGHT, MIXED, WRONG, MIXED, MIXED]
    assert keep_informative("abcde", accuracies, 9) == ["b", "d", "e"]
    assert keep_informative("abcde", accuracies, 2) == ["b", "d"]
    assert keep_informative("abcde", accuracies, 0) == []


def test_an_empty_result_is_no_error() -> None:
    assert keep_informative("ab", [RIGHT, WRONG], 4) == []
    assert keep_informative([], [], 4) == []


def test_a_batch_is_filled_over_rounds() -> None:
    batch: InformativeBatch[str] = InformativeBatch(4, max_rounds=10)
    assert batch.to_draw() == 4
    batch.add("abcd", [MIXED, WRONG, RIGHT, MIXED])
    assert batch.to_draw() == 4, "two are missing and every second has spread"
    batch.add("efgh", [MIXED, MIXED, MIXED, WRONG])
    assert batch.kept == ["a", "d", "e", "f"]
    assert batch.set_aside == ["b", "c", "g", "h"]
    assert batch.to_draw() == 0
    assert (batch.rounds, batch.drawn, batch.informative) == (2, 8, 5)


def test_a_round_draws_no_more_than_what_is_missing_needs() -> None:
    batch: InformativeBatch[int] = InformativeBatch(8, max_rounds=10)
    batch.add(range(8), [MIXED] * 7 + [WRONG])
    assert batch.to_draw() == 2


def test_rounds_end_with_the_groups_there_are_even_none() -> None:
    batch: InformativeBatch[str] = InformativeBatch(2, max_rounds=3)
    rounds = 0
    while count := batch.to_draw():
        assert count == 2
        batch.add("xy", [RIGHT, WRONG])
        rounds += 1
    assert rounds == 3
    assert batch.kept == []


@pytest.mark.parametrize(("p", "n", "share"), [(0.5, 2, 0.5), (0.5, 8, 2 / 256), (0.0, 4, 1.0), (1.0, 4, 1.0)])
def test_expected_dead_groups(p: float, n: int, share: float) -> None:
    assert expected_dead_groups(p, n) == share


def test_expected_dead_groups_agrees_with_sampling() -> None:
    right = np.random.default_rng(0).random((200_000, 3)) < 0.3
    dead = (right.all(1) | ~right.any(1)).mean()
    assert expected_dead_groups(0.3, 3) == pytest.approx(dead, abs=0.005)
