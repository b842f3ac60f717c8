"""Autoregressions of residuals against closed forms, and the coverage of intervals that they widen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.signal import lfilter

import lodekit as lk
from lodekit.results.summary import summary_dict
from lodekit.uncertainty.sandwich import ar_autocorrelation, fit_autoregression, sandwich_covariance


def test_correlations_of_an_autoregression_satisfy_its_recursion_and_those_of_its_process() -> None:
    coefficients = np.array([1.2, -0.5])
    found = ar_autocorrelation(coefficients, 30)
    assert found[1] == pytest.approx(1.2 / 1.5)  # phi1 / (1 - phi2)
    assert found[2:] == pytest.approx(1.2 * found[1:-1] - 0.5 * found[:-2])
    impulse = lfilter([1.0], [1.0, -1.2, 0.5], np.eye(1, 400)[0])
    power = np.array([impulse[k:] @ impulse[: 400 - k] for k in range(30)])
    assert found == pytest.approx(power / power[0], abs=1e-9)
    assert fit_autoregression(found[:9], 500) == pytest.approx(coefficients)
    assert len(fit_autoregression(np.eye(1, 9)[0], 500)) == 0


def test_the_sandwich_is_that_of_the_true_correlations_on_average() -> None:
    generator, size = np.random.default_rng(0), 2000
    slopes = np.stack([np.ones(size), np.sin(0.02 * np.arange(size)), generator.standard_normal(size)], axis=1)
    basis, _ = np.linalg.qr(slopes)
    expected = basis.T @ toeplitz(0.8 ** np.arange(size)) @ basis
    found = np.zeros((12, 3))
    for row in found:
        errors = lfilter([0.6], [1.0, -0.8], generator.standard_normal(size + 200))[200:]
        correlated, plain = sandwich_covariance([basis], [errors - basis @ (basis.T @ errors)])
        row[:] = np.diag(correlated)
        assert plain == pytest.approx(np.eye(3), abs=1e-12)
    assert found.mean(axis=0) == pytest.approx(np.diag(expected), rel=0.15)
    # What changes from row to row is told as if errors were independent; what is slow is not.
    assert expected[2, 2] == pytest.approx(1.0, abs=0.2)
    assert expected[0, 0] > 8.0


def test_widened_intervals_of_a_regression_cover_and_plain_ones_do_not() -> None:
    generator, size = np.random.default_rng(1), 200
    slopes = np.stack([np.ones(size), np.linspace(-1.0, 1.0, size)], axis=1)
    basis = slopes / np.linalg.norm(slopes, axis=0)
    inside = np.zeros((2, 2))
    for _ in range(200):
        errors = lfilter([0.6], [1.0, -0.8], generator.standard_normal(size + 200))[200:]
        estimate = basis.T @ errors
        left = errors - basis @ estimate
        level = np.sqrt(left @ left / (size - 2))
        correlated, plain = sandwich_covariance([basis], [left / level])
        wide = np.sqrt(np.diag(correlated) / np.diag(plain))
        for row, factor in enumerate((1.0, wide)):
            inside[row] += np.abs(estimate) < 1.98 * level * factor
    assert (inside[0] / 200 < 0.7).all()
    assert (inside[1] / 200 > 0.85).all()


def test_a_fit_widens_its_intervals_where_residuals_are_correlated_and_only_there(tmp_path: Path) -> None:
    generator, times = np.random.default_rng(2), np.linspace(0.0, 10.0, 200)
    white = generator.standard_normal(200)
    slow = lfilter([0.5], [1.0, -0.85], generator.standard_normal(400))[200:]
    system = lk.System("x' = -a*x + b", parameters={n: lk.Parameter(positive=True) for n in "ab"})
    curve = 1.0 + np.exp(-0.5 * times)
    plain = lk.LODEGP(system, random_state=0).fit(times, curve + 0.02 * white)
    assert plain.fit_.diagnosis.widening == {}
    assert plain.diagnose().is_independent
    wide = lk.LODEGP(system, random_state=0).fit(times, curve + 0.02 * slow)
    assert all(factor > 1.5 for factor in wide.fit_.diagnosis.widening.values())
    told = summary_dict(wide.fit_)
    assert told["residuals"]["x"]["correlated"]
    assert told["widening"] == pytest.approx(wide.fit_.diagnosis.widening)
    [sentence] = wide.diagnose().sentences
    assert "are correlated (lag 1: 0." in sentence
    assert "widened" in sentence
    assert any(sentence in text for text in wide.warnings_)
    assert "residuals of x" in wide.summary()
    low, high = wide.parameters_["a"].interval
    error = wide.parameters_["a"].std_error
    assert high - low > 3.9 * error
    assert wide.fit_.parameter_covariance[0, 0] == pytest.approx(error**2, rel=1e-3)
    wide.save(tmp_path / "wide.lodekit")
    again = lk.LODEGP.load(tmp_path / "wide.lodekit")
    assert repr(again.diagnose()) == repr(wide.diagnose())
    assert again.parameters_["a"].std_error == pytest.approx(error, rel=1e-9)


def test_one_residual_beside_a_series_counts_as_independent() -> None:
    generator = np.random.default_rng(0)
    slopes, residuals = generator.standard_normal((60, 2)), generator.standard_normal(60)
    alone = sandwich_covariance([slopes], [residuals])
    both = sandwich_covariance([slopes, np.array([[1.0, 2.0]])], [residuals, np.array([0.7])])
    more = np.array([[1.0, 2.0], [2.0, 4.0]])
    for one, two in zip(alone, both, strict=True):
        np.testing.assert_allclose(two, one + more)
