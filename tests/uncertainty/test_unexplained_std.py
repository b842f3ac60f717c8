"""Where innovations are correlated under free functions, bands and intervals hold what is left over as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.diagnostics.residual_tests import ResidualCheck, estimate_unexplained_std, inflate_all, ljung_box_test
from lodekit.results.fit import Fit

T = np.arange(30.0)


def check(values: np.ndarray) -> ResidualCheck:
    """Return what would be said of some innovations of y."""
    whiteness = ljung_box_test(T, values, innovations=True)
    assert whiteness is not None
    return ResidualCheck("y", 30, 30, 1.0, whiteness.lags[0], 0.8, whiteness=whiteness)


WAVE, NOISE = np.sqrt(2.0) * np.sin(0.7 * T), np.random.default_rng(0).standard_normal(30)


@pytest.fixture(scope="module")
def fit() -> Fit:
    """Return a fit of which y is measured with much noise, and a diagnosis that calls that noise a curve."""
    generator = np.random.default_rng(0)
    data = {"x": np.sin(0.3 * T) + 0.1 * generator.standard_normal(30), "y": generator.standard_normal(30)}
    system = lk.System("x' = v; y = k*x", parameters=["k"])
    found = lk.LODEGP(system, random_state=0).fit(T, data).fit_
    checks = (check(WAVE),)
    return replace(found, diagnosis=replace(found.diagnosis, checks=checks, widening=inflate_all(found.layout, checks)))


def test_what_is_left_is_what_neighbours_do_not_differ_by() -> None:
    wave, noise = check(WAVE), check(NOISE)
    assert wave.is_autocorrelated
    assert not noise.is_autocorrelated
    assert estimate_unexplained_std([wave], lambda _: 0.5, {"y": 0.3}) == {"y": pytest.approx(0.4)}
    assert estimate_unexplained_std([noise], lambda _: 0.5, {"y": 0.3}) == {}
    # Where neighbours differ by all of it, nothing is left; where they are not known, their correlation tells.
    assert estimate_unexplained_std([wave], lambda _: 0.5, {"y": 0.7}) == {}
    assert estimate_unexplained_std([wave], lambda _: 0.5, {}) == {"y": pytest.approx(0.5 * np.sqrt(wave.memory))}


def test_slow_waves_do_not_swing() -> None:
    """Half a period later their correlation is far below zero, and stronger than that of neighbours."""
    wave = check(np.sqrt(2.0) * np.sin(2.0 * np.pi * T / 6.0 + 0.3))
    assert min(wave.whiteness.lags) < -wave.memory - 0.1  # type: ignore[union-attr]
    assert wave.is_autocorrelated
    swinging = check(np.where(T % 2 == 0, 1.0, -1.0) + 0.3 * NOISE)
    assert swinging.is_correlated
    assert not swinging.is_autocorrelated


def test_bands_of_that_observable_and_of_no_other_are_wider(fit: Fit) -> None:
    fit = replace(fit)
    vars(fit)["unexplained_std"] = {"y": 0.4}
    model, plain = lk.LODEGP.from_fit(fit), replace(fit, diagnosis=replace(fit.diagnosis, checks=()))
    times = np.array([3.3, 17.0])
    _, std, cov = model.predict(times, ["x", "y"], return_std=True, return_cov=True)
    _, before, whole = lk.LODEGP.from_fit(plain).predict(times, ["x", "y"], return_std=True, return_cov=True)
    assert std**2 - before**2 == pytest.approx(np.array([[0.0, 0.16], [0.0, 0.16]]), abs=1e-12)
    assert cov - whole == pytest.approx(np.diag([0.0, 0.16, 0.0, 0.16]).reshape(2, 2, 2, 2), abs=1e-12)
    _, fixed = model.predict(times, "y", return_std=True, parameters="fixed")
    assert (fixed < 0.4).all()


def test_intervals_are_wider_by_what_such_errors_do_to_a_mean(fit: Fit) -> None:
    plain = replace(fit, diagnosis=replace(fit.diagnosis, checks=(), widening={}))
    factor = fit.diagnosis.widening["k"]
    # The variance of a mean of errors that each resemble the last by r is larger by (1 + r)/(1 - r).
    memory = fit.diagnosis.checks[0].memory
    assert factor == pytest.approx(np.sqrt((1 + memory) / (1 - memory)))
    assert fit.estimates["k"].std_error == pytest.approx(factor * plain.estimates["k"].std_error)
    assert any('prior="channels"' in text for text in fit.warnings)
    assert not any('prior="channels"' in text for text in plain.warnings)
