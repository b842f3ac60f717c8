"""Innovations against the evidence, and against posteriors from fewer measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.dense.engine import DenseInnovations, compute_dense_innovations
from lodekit.inference.dense.evidence import DenseData
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import fit_at_point


@pytest.fixture(scope="module")
def gp() -> lk.LODEGP:
    generator, times = np.random.default_rng(0), np.linspace(0.0, 10.0, 50)
    u = np.sin(times)
    y = (np.sin(times) - np.cos(times) + np.exp(-times)) / 2.0
    system = lk.System("y' + a*y = u", parameters={"a": lk.Parameter(positive=True)})
    data = {"y": y + 0.02 * generator.standard_normal(50), "u": u + 0.05 * generator.standard_normal(50)}
    return lk.LODEGP(system, random_state=0).fit(times, data)


def turns_of(gp: lk.LODEGP, first: frozenset[int] = frozenset()) -> DenseInnovations:
    fit = gp.fit_
    found = compute_dense_innovations(
        DenseData.from_series(fit.prior, fit.measurements.series), fit.hyperparameters, first
    )
    assert found is not None
    return found


@pytest.mark.parametrize("first", [frozenset(), frozenset({1})])
def test_densities_of_innovations_multiply_to_the_evidence(gp: lk.LODEGP, first: frozenset[int]) -> None:
    turns = turns_of(gp, first)
    parts = -0.5 * turns.standardized**2 - np.log(np.diag(turns.covariance_root)) - 0.5 * np.log(2 * np.pi)
    assert float(parts.sum()) == pytest.approx(gp.log_evidence_, rel=1e-8)
    assert np.isin(turns.observables[:50], [1]).all() == bool(first)


def test_a_prediction_ahead_is_that_of_a_posterior_from_the_measurements_before(gp: lk.LODEGP) -> None:
    fit, turns = gp.fit_, turns_of(gp)
    cut, row = 60, 66  # thirty rows of both channels are known, and y three rows later is asked for
    known = Measurements([item.select(slice(0, 30)) for item in fit.measurements.series])
    units = fit.prior.units
    scales = dict(zip(fit.measurements.names, units.scales.tolist(), strict=True))
    setup = build_setup(fit.system, fit.settings, known, time_units=units, scales=scales)
    hyper = replace(
        fit.hyperparameters, noise_std=setup.prior.noise.transfer_levels(fit.prior.noise, fit.hyperparameters.noise_std)
    )
    early = lk.LODEGP.from_fit(fit_at_point(setup, setup.layout.pack(hyper)))
    number, time = turns.observables[row], turns.times[row]
    name = fit.measurements.names[number]
    mean, std = early.predict([time], name, return_std=True, parameters="fixed")
    series = fit.measurements.series[number]
    (error,), (spread,) = turns.prediction_errors(np.array([row]), np.array([cut]))
    assert error == pytest.approx(float(series.values[33] - mean[0]), rel=1e-6)
    assert spread == pytest.approx(float(np.hypot(std[0], gp.noise_[name])), rel=1e-6)


def test_innovations_are_as_large_as_expected_where_residuals_of_a_bending_curve_are_not(gp: lk.LODEGP) -> None:
    check = next(check for check in gp.fit_.diagnosis.checks if check.name == "u")
    assert check.whiteness is not None
    assert check.whiteness.innovations
    turns = turns_of(gp)
    assert float(np.mean(turns.standardized**2)) == pytest.approx(1.0, abs=0.35)
    assert check.size < 1.0


def kept(engine: str) -> lk.LODEGP:
    """A model at values that nobody searched for."""
    generator, times = np.random.default_rng(0), 0.1 * np.arange(90)
    data = Observations().add(times, "y", np.sin(times) + 0.05 * generator.standard_normal(90), 0.05)
    data = data.add(times[:1], "y'", [1.0], 0.0)
    arguments = FitSettings(engine=engine, latent="matern-5/2", noise="shared")
    setup = build_setup(lk.System("y' = u"), arguments, Measurements.from_observations(data))
    span, count = setup.prior.units.time_scale, setup.prior.n_processes
    hyper = Hyperparameters(np.zeros(0), np.full(count, 2.0 / span), np.full(count, 1.0), np.zeros(0), np.zeros(0))
    hyper = replace(hyper, noise_std=np.full(setup.prior.noise.n_levels, 0.05))
    return lk.LODEGP.from_fit(fit_at_point(setup, setup.layout.pack(hyper))).label(units={"t": "s"})


def test_the_markov_engine_looks_at_the_whole_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than one run of a matrix; an exact value has no innovation; predictions ahead are those of a matrix."""
    monkeypatch.setattr("lodekit.inference.innovations._SEGMENT_ROWS", 10)
    gp, dense = kept("markov"), kept("dense")
    check = next(check for check in gp.fit_.diagnosis.checks if check.name == "y")
    assert check.whiteness is not None
    assert check.whiteness.innovations
    assert (check.looked, gp.fit_.engine_choice.name) == (90, "markov")
    innovations = gp.fit_.fitted_record.innovations
    assert innovations is not None
    assert not len(innovations["y'"][0])
    # Sizes of errors of the dense engine come from runs, here from the whole record as well.
    monkeypatch.undo()
    for own, other in zip(
        gp.predict(observable="y", ahead=3, return_std=True),
        dense.predict(observable="y", ahead="300 ms", return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(own[3:], other[3:], rtol=0, atol=1e-8)
    with pytest.raises(lk.LodekitError, match="the unit of time is s"):
        gp.predict(ahead="3 m")
    with pytest.raises(lk.LodekitError, match="expected a time ahead such as '24 h'"):
        gp.predict(ahead="soon")
