"""Thresholds of cumulative sums: against published run lengths, Siegmund's approximation and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.results.stream.cusum import (
    HIGH,
    LOW,
    average_run_length,
    check_alarm_options,
    cusum_threshold,
    update_cusum,
)


@pytest.mark.parametrize(("threshold", "length"), [(4.0, 335.4), (5.0, 930.9)])
def test_run_lengths_are_the_published_ones(threshold: float, length: float) -> None:
    # One-sided sums with k = 1/2: twice the two-sided 168 and 465 of Montgomery's table.
    assert average_run_length(threshold, 0.5) == pytest.approx(length, rel=2e-3)


def test_run_lengths_are_near_siegmunds_approximation() -> None:
    for reference in (0.1, 0.25, 0.5):
        for threshold in (3.0, 6.0, 9.0):
            b = threshold + 1.166
            near = (math.exp(2 * reference * b) - 2 * reference * b - 1) / (2 * reference**2)
            assert average_run_length(threshold, reference) == pytest.approx(near, rel=0.05)


def find_rate(scores: NDArray[np.float64], threshold: float) -> float:
    """Return how many alarms a row has, for scores of shape (rows, streams), by the rule of the textbook."""
    high, low, alarms = np.zeros(scores.shape[1]), np.zeros(scores.shape[1]), 0
    for row in scores:
        high, low = np.maximum(0.0, high + row - 0.5), np.maximum(0.0, low - row - 0.5)
        crossed = (high > threshold) | (low > threshold)
        high[crossed] = low[crossed] = 0.0
        alarms += int(crossed.sum())
    return alarms / scores.size


def test_alarms_come_at_the_stated_rate() -> None:
    rate, scores = 5e-3, np.random.default_rng(0).standard_normal((2000, 400))
    # 4000 alarms are expected: three deviations are five percent.
    assert find_rate(scores, cusum_threshold(rate, 0.5)) == pytest.approx(rate, rel=0.05)


def test_sums_begin_again_after_an_alarm_and_tell_its_direction() -> None:
    sums, told = (0.0, 0.0), []
    for score in (3.0, 3.0, -3.0, -3.0, -3.0):
        high, low, alarm = update_cusum(sums, score, 0.5, 4.0)
        sums = high, low
        told.append(alarm)
    assert told == ["", HIGH, "", LOW, ""]


@pytest.mark.parametrize(("rate", "shift"), [(0.0, 1.0), (0.5, 1.0), (1e-4, 0.0), ("often", 1.0), (True, 1.0)])
def test_rates_that_make_no_sense_are_refused(rate: object, shift: object) -> None:
    with pytest.raises(lk.LodekitError, match=r"expected (false_alarms|shift) as a number"):
        check_alarm_options(rate, shift)
