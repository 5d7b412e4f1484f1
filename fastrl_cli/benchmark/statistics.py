"""What interleaved measurements say: medians, intervals, verdicts. Pure functions of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

RESAMPLES = 2000

Verdict: TypeAlias = Literal["faster", "slower", "inconclusive"]


@dataclass(frozen=True)
class Estimate:
    """A median with its bootstrap 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def median(values: Sequence[float]) -> Estimate:
    """Median of at least one value; the interval is that of medians of resampled values."""
    sample = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(0).integers(0, len(sample), (RESAMPLES, len(sample)))
    low, high = np.quantile(np.median(sample[picks], axis=1), [0.025, 0.975])
    return Estimate(float(np.median(sample)), float(low), float(high))


def speed_up(baseline: Sequence[float], other: Sequence[float]) -> Estimate:
    """How many times faster `other` is: the median of the ratios of steps that were taken one after the other, so that
    a machine that is slow for a while slows both."""
    return median([slow / fast for slow, fast in zip(baseline, other, strict=True)])


def verdict(ratio: Estimate) -> Verdict:
    """By whether the interval holds 1."""
    return "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "inconclusive"


def noise(values: Sequence[float]) -> float:
    """Spread of repeated measurements as a share of their median: 1.4826 times the median absolute deviation, which for
    a normal distribution is the standard deviation."""
    sample = np.asarray(values, dtype=np.float64)
    middle = np.median(sample)
    return float(1.4826 * np.median(np.abs(sample - middle)) / middle)
