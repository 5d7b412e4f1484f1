"""Medians, intervals and verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.benchmark.statistics import Estimate, median, noise, speed_up, verdict

SECONDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


@given(SECONDS)
def test_a_median_lies_in_its_interval(values: list[float]) -> None:
    estimate = median(values)
    assert estimate.value == np.median(values)
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    hits = sum(e.low <= 1.0 <= e.high for e in (median(generator.lognormal(0, 0.3, 15).tolist()) for _ in range(300)))
    assert 0.88 <= hits / 300 <= 1.0


def test_ratios_are_of_paired_steps() -> None:
    assert speed_up([2, 20, 200], [1, 10, 100]) == Estimate(2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("slow", "fast", "expected"),
    [([2.0] * 6, [1.0] * 6, "faster"), ([1.0] * 6, [2.0] * 6, "slower"), ([1, 3, 1, 3], [2, 2, 2, 2], "inconclusive")],
)
def test_the_verdict_follows_from_whether_the_interval_holds_one(
    slow: list[float], fast: list[float], expected: str
) -> None:
    assert verdict(speed_up(slow, fast)) == expected


def test_noise_is_the_deviation_of_a_normal_sample_and_blind_to_one_outlier() -> None:
    sample = np.random.default_rng(0).normal(10, 1, 4001).tolist()
    assert noise(sample) == pytest.approx(0.1, rel=0.1)
    assert noise([1.0] * 9 + [100.0]) == 0
