from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.algorithms.aggregation import Aggregation, Denominators, step_denominators, token_weights

LENGTHS = [1, 3]


def mean(losses: list[list[float]], aggregation: Aggregation) -> float:
    lengths = [len(row) for row in losses]
    weights = token_weights(torch.tensor(lengths), aggregation, Denominators.count(lengths))
    return float(weights @ torch.tensor([loss for row in losses for loss in row]))


def test_row_16_token_mean_is_the_mean_over_all_tokens() -> None:
    assert mean([[8.0], [1.0, 2.0, 3.0]], "token_mean") == pytest.approx((8 + 1 + 2 + 3) / 4)


def test_row_16_seq_mean_is_the_mean_over_rollouts_of_their_token_means() -> None:
    assert mean([[8.0], [1.0, 2.0, 3.0]], "seq_mean") == pytest.approx((8 + 2) / 2)


def test_seq_mean_is_not_a_token_weighted_mean_of_micro_batch_means() -> None:
    """Rollouts of 1 and 3 tokens in two micro-batches: weighting each micro-batch's mean by its share of the tokens, as
    EasyR1 does, would give 3.5; the mean over sequences is 5, wherever the rollouts are computed."""
    denominators = Denominators.count(LENGTHS)
    first = token_weights(torch.tensor([1]), "seq_mean", denominators) @ torch.tensor([8.0])
    second = token_weights(torch.tensor([3]), "seq_mean", denominators) @ torch.tensor([1.0, 2.0, 3.0])
    assert float(first + second) == pytest.approx(5.0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.sampled_from(["token_mean", "seq_mean"]))
def test_weights_of_a_step_sum_to_one(lengths: list[int], aggregation: Aggregation) -> None:
    weights = token_weights(torch.tensor(lengths), aggregation, Denominators.count(lengths))
    assert weights.shape == (sum(lengths),)
    assert float(weights.double().sum()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean"])
def test_an_empty_micro_batch_has_no_weights(aggregation: Aggregation) -> None:
    weights = token_weights(torch.zeros(0, dtype=torch.long), aggregation, Denominators(tokens=10, rollouts=2))
    assert weights.shape == (0,)


def test_kept_divides_by_the_step() -> None:
    step = Denominators(tokens=30, rollouts=3)
    assert step_denominators(step, Denominators(60, 5), Denominators(200, 16), "kept") == step


def test_full_divides_by_the_steps_share_of_the_batch_before_pruning() -> None:
    full = step_denominators(Denominators(30, 2), Denominators(60, 5), Denominators(200, 16), "full")
    assert full == Denominators(tokens=100, rollouts=6.4)


@given(st.lists(st.lists(st.integers(1, 4096), min_size=1, max_size=64), min_size=1, max_size=5))
def test_full_equals_kept_where_nothing_was_pruned(steps: list[list[int]]) -> None:
    whole = Denominators.count(length for step in steps for length in step)
    for lengths in steps:
        step = Denominators.count(lengths)
        assert step_denominators(step, whole, whole, "full") == step
