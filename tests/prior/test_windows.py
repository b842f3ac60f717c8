"""Averages of covariances and of exponentials against quadrature of what they are averages of."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import expm

from lodekit.errors import LodekitError
from lodekit.prior.expm import averaging_response, expm_mean, exponential_moments
from lodekit.prior.kernels import Kernel, Matern, SquaredExponential, average_kernel_with_lag
from tests.prior.ringing import Ringing

WINDOWS = [(0.3, 0.3), (0.002, 0.3), (0.0, 1.9), (3.0, 0.1), (0.1, 3.0), (2.5, 4.0), (4.0, 0.0), (2.0, 2.0)]
LAGS = np.array([-3.1, -0.25, 0.0, 0.02, 2.9])


def average(latent: Kernel, lag: float, windows: tuple[float, float], order: int, *, lagged: bool) -> float:
    """The mean over lags, of which the difference of two uniform numbers has the density of a trapezium."""
    first, second = windows

    def at(s: float) -> float:
        value = float(list(latent.derivatives(np, np.array([lag + s]), order))[order][0])
        share = max(0.0, min(s + first, second - s, first, second)) / (first * second) if first and second else 1.0
        return share * value * (lag + s if lagged else 1.0) / (1.0 if first and second else first + second)

    edges = sorted({-first, 0.0, second - first, second, float(np.clip(-lag, -first, second))})
    inside = [edge for edge in edges if -first <= edge <= second]
    parts = [quad(at, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(inside)]
    return float(sum(parts))


@pytest.mark.parametrize("latent", [SquaredExponential(), Matern(0), Matern(2)], ids=lambda latent: latent.name)
@pytest.mark.parametrize("windows", WINDOWS)
def test_covariances_are_those_of_quadrature(latent: Kernel, windows: tuple[float, float]) -> None:
    """Tolerance: rounding, times what differences of antiderivatives lose."""
    order = min(3, int(2 * latent.smoothness) if np.isfinite(latent.smoothness) else 3)
    found = average_kernel_with_lag(latent, LAGS * 0.7, 0.7, (windows[0] * 0.7, windows[1] * 0.7), order, with_lag=True)
    for place in (1, 2, 4):
        for m in {0, order}:
            expected = average(latent, LAGS[place], windows, m, lagged=False)
            assert found[0, m, place] == pytest.approx(expected, rel=1e-11, abs=2e-13)
        if order:
            expected = average(latent, LAGS[place], windows, order, lagged=True)
            assert found[1, order, place] == pytest.approx(expected, rel=1e-11, abs=2e-13)


def test_a_covariance_without_antiderivative_is_averaged_over_short_windows() -> None:
    latent = Ringing()
    found = average_kernel_with_lag(latent, LAGS, 1.0, (0.3, 0.2), 0, with_lag=False)
    assert found[0, 0, 1] == pytest.approx(average(latent, LAGS[1], (0.3, 0.2), 0, lagged=False), rel=1e-11)
    with pytest.raises(LodekitError, match="antiderivative"):
        average_kernel_with_lag(latent, LAGS, 1.0, (0.3, 20.0), 0, with_lag=False)


@pytest.mark.parametrize("exponent", [-1e3, -21.0, -5.0 + 3.0j, 0.0, 1e-9, 25.0, 40.0j])
def test_moments_are_those_of_mpmath(exponent: complex) -> None:
    with mpmath.workdps(40):
        z, h = mpmath.mpc(exponent), mpmath.mpf(0.7)
        expected = [complex(mpmath.hyp1f1(j + 1, j + 2, z * h) * h**j / (j + 1)) for j in range(4)]
    np.testing.assert_allclose(exponential_moments(exponent, 0.7, 3), expected, rtol=1e-13)


def test_waves_are_averaged_as_exponentials_are() -> None:
    frequencies, windows = np.array([0.0, 0.3, 40.0]), np.array([0.0, 0.7])
    expected = [[np.exp(-1j * w * h) * exponential_moments(1j * w, h, 0)[0] for w in frequencies] for h in windows]
    np.testing.assert_allclose(averaging_response(windows, frequencies), expected, rtol=0, atol=1e-15)


def test_the_mean_of_an_exponential_of_a_matrix_is_that_of_quadrature() -> None:
    """A nilpotent block and a fast one; derivatives are those of differences."""
    matrix = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, -30.0]])
    direction = np.array([[0.2, -1.0, 0.0], [0.3, 0.0, 1.0], [0.0, 0.5, 2.0]])
    x, w = np.polynomial.legendre.leggauss(40)
    expected = sum(0.5 * b * expm(matrix * 0.4 * (1.0 + a)) for a, b in zip(x, w, strict=True))
    found, slopes = expm_mean(matrix, direction[None], 0.8)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    ends = [expm_mean(matrix + s * direction, np.zeros((0, 3, 3)), 0.8)[0] for s in (1e-6, -1e-6)]
    np.testing.assert_allclose(slopes[0], (ends[0] - ends[1]) / 2e-6, rtol=0, atol=1e-9)
