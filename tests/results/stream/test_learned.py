"""Thresholds that make up for what learning errs by."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.results.stream.cusum import (
    average_run_length,
    averaged_cusum_threshold,
    calibrate_threshold,
    cusum_threshold,
    sample_log_variances,
)
from tests.results.stream.test_cusum import find_rate


def test_the_rate_is_right_on_average_over_variances() -> None:
    """Streams of scores with a variance of their own: 4000 alarms are expected, and the plain threshold has more."""
    generator, rate = np.random.default_rng(0), 5e-3
    logs = 0.15 * generator.standard_normal(400)
    scores = generator.standard_normal((2000, 400)) * np.exp(0.5 * logs)
    assert find_rate(scores, averaged_cusum_threshold(rate, 0.5, logs)) == pytest.approx(rate, rel=0.05)
    assert find_rate(scores, cusum_threshold(rate, 0.5)) > 1.08 * rate


def test_thresholds_without_doubt_are_the_plain_ones() -> None:
    for logs in (np.zeros((0, 2)), np.zeros(5)):
        assert averaged_cusum_threshold(1e-4, 0.5, logs) == pytest.approx(cusum_threshold(1e-4, 0.5), abs=2e-4)
    # All scores a tenth larger: as if threshold and reference were smaller.
    scale = 1.1
    found = averaged_cusum_threshold(1e-3, 0.5, np.full(3, 2.0 * np.log(scale)))
    assert 2.0 / average_run_length(found / scale, 0.5 / scale) == pytest.approx(1e-3, rel=1e-3)


def test_a_level_of_noise_is_known_as_well_as_its_measurements_tell() -> None:
    """The logarithm of a variance that n values tell has the variance 2/n; with known noise nothing is in doubt."""
    times = np.linspace(0.0, 5.0, 200)
    values = np.exp(-times) + 0.1 * np.random.default_rng(0).standard_normal(200)
    system = lk.System("x' = -x")
    learned = lk.LODEGP(system, random_state=0).fit(times, values).fit_
    logs = sample_log_variances(learned, learned.measurements.series, 1)
    assert logs.std() == pytest.approx(np.sqrt(2.0 / 200), rel=0.1)
    plain = cusum_threshold(1e-4, 0.5)
    assert calibrate_threshold(learned, learned.measurements.series, 1e-4, 1.0) > plain + 0.05
    given = lk.LODEGP(system, mode_deviation=1.0).fit(times, values, 0.1)
    assert given.stream().threshold == plain
