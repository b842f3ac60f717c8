"""Units go there and back, and densities change with them as they should."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements, Scaling

Array = NDArray[np.float64]
TIMES = np.linspace(10.0, 30.0, 5)
SWINGING = np.array([4.0, -4.0, 4.0, -4.0, 0.0])


def measured(values: Array = SWINGING) -> Measurements:
    return Measurements.from_observations(Observations().add(TIMES, "x", values).add(TIMES[:3], "y", 0.1 * values[:3]))


def test_times_and_lengths_come_back() -> None:
    units = Scaling.from_measurements(measured())
    scaled = units.scale_times(TIMES)
    assert (units.start, units.time_scale) == (10.0, 20.0)
    np.testing.assert_allclose(scaled, np.linspace(0.0, 1.0, 5), atol=1e-15)
    np.testing.assert_allclose(units.unscale_times(scaled), TIMES, rtol=1e-15)
    # A length is a difference of times, wherever it stands.
    assert units.unscale_durations(0.25) == pytest.approx(
        units.unscale_times(np.array(0.75)) - units.unscale_times(np.array(0.5))
    )


def test_units_of_an_earlier_fit_are_kept() -> None:
    own, earlier = Scaling.from_measurements(measured()), Scaling(0.0, 3.0, np.ones(7))
    kept = Scaling.from_measurements(measured(), time=earlier, scales={"y": 5.0})
    assert (kept.start, kept.time_scale) == (0.0, 3.0)
    assert kept.scales.tolist() == [own.scales[0], 5.0]
    assert earlier.unscaled(2).scales.tolist() == [1.0, 1.0]
    assert earlier.unscaled(2).time_scale == 3.0


def test_a_single_time_has_a_unit_too() -> None:
    one = Measurements.from_observations(Observations().add(np.array([3.0]), "x", np.array([2.0])))
    assert Scaling.from_measurements(one).time_scale == 1.0


def test_the_log_jacobian_is_that_of_a_change_of_variables() -> None:
    generator = np.random.default_rng(0)
    units, counts = Scaling(0.0, 1.0, np.array([2.0, 0.3])), [3, 2]
    half = generator.standard_normal((5, 5))
    covariance, values = half @ half.T + np.eye(5), generator.standard_normal(5)
    size = np.repeat(units.scales, counts)
    scaled = multivariate_normal(np.zeros(5), covariance / np.outer(size, size)).logpdf(values / size)
    plain = multivariate_normal(np.zeros(5), covariance).logpdf(values)
    assert scaled + units.log_jacobian(counts) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("size", [1e-140, 1e140])
def test_sizes_that_cannot_be_squared_are_refused(size: float) -> None:
    with pytest.raises(lk.LodekitError, match="change their units"):
        Scaling.from_measurements(measured(size * np.array([1.0, 2.0, 3.0, 4.0, 5.0])))
