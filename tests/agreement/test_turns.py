"""Innovations and predictions ahead: a filter through blocks, a matrix, and a textbook in fifty digits say the same."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.errors import LodekitError
from lodekit.inference.dense.engine import compute_dense_innovations
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.innovations import Horizon, forecast_errors, uses_kalman_filter
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.innovations import KalmanInnovations
from lodekit.inference.selection import ENGINES
from lodekit.prior.prior import Hyperparameters
from tests.agreement.kalman import matern
from tests.inference.fitted import make_case, prior_of, series_of

Array = NDArray[np.float64]
LEADS = [Horizon(1), Horizon(4), Horizon(time=0.35), Horizon(time=1e4)]
COUPLED = lk.System("x' = -a*x + u; y' = -b*y + x + v", parameters=["a", "b"])


def filtered(data: DenseData | KalmanData, hyper: Hyperparameters, length: int | None = None) -> KalmanInnovations:
    own = data if isinstance(data, KalmanData) else KalmanData.from_series(data.prior, series_of(data))
    found = KalmanEngine(replace(own, block_length=length)).compute_innovations(hyper)
    assert found is not None
    return found


def compare(data: DenseData, own: KalmanInnovations, hyper: Hyperparameters, tolerance: float = 1e-9) -> None:
    """Innovations, their deviations, and predictions some rows and times ahead."""
    turns = compute_dense_innovations(data, hyper)
    assert turns is not None
    np.testing.assert_array_equal(own.observables, turns.observables)
    np.testing.assert_allclose(own.times, turns.times)
    np.testing.assert_allclose(own.standardized, turns.standardized, rtol=0, atol=tolerance)
    np.testing.assert_allclose(own.std, np.diag(turns.covariance_root), rtol=tolerance)
    for number in range(len(data.index)):
        for lead in LEADS:
            expected, spread = forecast_errors(turns, [(number, lead)])[0]
            errors, deviations = forecast_errors(own, [(number, lead)])[0]
            np.testing.assert_allclose(errors / spread, expected / spread, rtol=0, atol=tolerance)
            np.testing.assert_allclose(deviations, spread, rtol=tolerance)


def test_innovations_of_means_over_intervals() -> None:
    """Intervals that overlap; further ahead they are a matter of the matrix, and the filter says so."""
    times = 0.2 * np.arange(1, 25)
    data = Observations().add(times, "mean(x, 0.5)", np.sin(times)).add(times[::3], "y", np.cos(times[::3]))
    measurements = Measurements.from_observations(data)
    prior = prior_of(COUPLED, measurements, latent="matern-5/2", noise="shared")
    groups = np.ones(len(prior.groups))
    hyper = Hyperparameters(np.array([1.0, 0.5]), np.full(2, 0.2), np.ones(2), groups, np.array([0.1]))
    own = filtered(KalmanData.from_series(prior, measurements.series), hyper, 10)
    turns = compute_dense_innovations(DenseData.from_series(prior, measurements.series), hyper)
    assert turns is not None
    np.testing.assert_allclose(own.standardized, turns.standardized, rtol=0, atol=1e-9)
    np.testing.assert_allclose(own.std, np.diag(turns.covariance_root), rtol=1e-9)
    assert not uses_kalman_filter(ENGINES["markov"], prior)
    with pytest.raises(LodekitError, match="intervals"):
        forecast_errors(own, [(0, Horizon(4))])


@pytest.mark.parametrize("name", ["two_room", "double oscillation", "growth"])
def test_catalog_systems_are_as_the_dense_engine_says(name: str) -> None:
    """Irregular times, a quarter of the values missing; short blocks and one block."""
    _, data, _, hyper = make_case(name, count=9, missing=True, latent="matern-9/2", noise="channel")
    for length in (7, None):
        compare(data, filtered(data, hyper, length), hyper)


def test_regular_blocks_and_repeated_values() -> None:
    """Blocks that share all but means; several rates; a value that stands twice; a derivative."""
    generator, times = np.random.default_rng(0), np.arange(150) * 0.1
    whole = Observations().add(times, "x", np.sin(times)).add(times, "y", generator.standard_normal(150))
    some = Observations().add(times[::7] + 0.03, "x", generator.standard_normal(22)).add(times, "y", np.cos(times))
    some = some.add([times[30], times[30]], "y", [0.4, 0.5], 0.2).add([times[2]], "x'", [0.4], 0.05)
    for observations in (whole, some):
        measurements = Measurements.from_observations(observations)
        prior = prior_of(COUPLED, measurements, latent="matern-5/2", noise="shared")
        hyper = Hyperparameters(np.array([1.0, 0.5]), np.full(2, 0.05), np.ones(2), np.ones(2), np.array([0.1]))
        hyper = replace(hyper, mode_amplitudes=np.ones(len(prior.groups)))
        dense, data = (
            DenseData.from_series(prior, measurements.series),
            KalmanData.from_series(prior, measurements.series),
        )
        compare(dense, filtered(data, hyper, 40), hyper)


def test_densities_of_innovations_multiply_to_the_evidence() -> None:
    """Long records, regular and not; the last prediction of all is that from everything before."""
    generator = np.random.default_rng(1)
    for times in (0.01 * np.arange(3000), np.sort(generator.uniform(0.0, 30.0, 3000))):
        y = np.sin(times) + 0.1 * generator.standard_normal(3000)
        y[generator.random(3000) < 0.1] = np.nan
        measurements = Measurements.from_observations(Observations().add(times, "x", np.cos(times)).add(times, "y", y))
        prior = prior_of(COUPLED, measurements, latent="matern-5/2", noise="shared")
        lengths = np.full(2, 2.0) / prior.units.time_scale
        hyper = Hyperparameters(np.array([1.0, 0.5]), lengths, np.ones(2), np.ones(0), np.array([0.1]))
        engine = KalmanEngine(KalmanData.from_series(prior, measurements.series))
        turns = engine.compute_innovations(hyper)
        assert turns is not None
        parts = -0.5 * turns.standardized**2 - np.log(turns.std) - 0.5 * np.log(2 * np.pi)
        assert float(parts.sum()) == pytest.approx(engine.value(hyper), rel=1e-11)
        rows = np.arange(len(turns.times))
        rows = rows[turns.observables == 0]
        errors, deviations = turns.prediction_errors(rows, rows)
        np.testing.assert_allclose(errors / deviations, turns.standardized[rows], rtol=0, atol=1e-9)


@pytest.mark.parametrize("noise", [0.1, 1e-6])
def test_a_textbook_filter_in_fifty_digits_says_the_same(noise: float) -> None:
    """Values that fit the equations: with tiny noise, what each adds is a difference of what is nearly the same."""
    times = [0.0, 0.07, 0.2, 0.21, 0.5, 0.77, 1.0]
    x = np.sin(3.0 * np.array(times))
    u = 3.0 * np.cos(3.0 * np.array(times)) + 2.0 * x
    measurements = Measurements.from_observations(Observations().add(times, "x", x).add(times, "u", u))
    prior = prior_of(lk.System("x' = -2*x + u"), measurements, latent="matern-3/2")
    hyper = Hyperparameters(np.zeros(0), np.array([0.4]), np.array([1.0]), np.zeros(0), np.array([noise]))
    plain = replace(prior.observables, units=replace(prior.units, scales=np.ones(2)))
    prior = replace(prior, observables=plain, noise=replace(prior.noise, scales=np.ones(2)))
    free = [np.pad(row, (0, 2 - len(row))).tolist() for row in prior.observables.evaluate(np.zeros(0)).free[:, 0]]
    with mpmath.workdps(50):
        rows = [mpmath.matrix([[mpmath.mpf(c) for c in row]]) for row in free]
        # At one time, in the order of names.
        seen = [[(1, u[i], noise), (0, x[i], noise)] for i in range(len(times))]
        expected = matern(1, 0.4, 1.0).filter(times, rows, seen)
        ahead = [expected.ahead(i, mpmath.mpf(t) - mpmath.mpf(times[i]), 0, noise) for i, t in enumerate(times[2:])]
    for length in (None, 4):
        own = filtered(KalmanData.from_series(prior, measurements.series), hyper, length)
        np.testing.assert_allclose(own.standardized, expected.innovations, rtol=0, atol=1e-8 if noise < 0.1 else 1e-12)
        np.testing.assert_allclose(own.std, expected.deviations, rtol=1e-9)
        errors, deviations = forecast_errors(own, [(0, Horizon(2))])[0]
        np.testing.assert_allclose(x[2:] - errors[2:], [each[0] for each in ahead], rtol=0, atol=1e-9)
        np.testing.assert_allclose(deviations[2:], [each[1] for each in ahead], rtol=1e-9)
