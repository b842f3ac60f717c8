"""With hardly any noise the returned mean and deviation have the digits of a calculation with sixty of them."""

from __future__ import annotations

import mpmath
import numpy as np

import lodekit as lk
from lodekit.inference.spectral.posterior import SpectralPosterior

TIMES = np.linspace(0.0, 3.0, 14)
NEW = np.array([0.1, 0.77, 1.5, 2.9, 3.3])
NOISE = 1e-7


def exact_posterior(ell: float, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of x where x is a squared exponential, x and u = x'' + 4 x are measured."""
    with mpmath.workdps(60):

        def cov(m: int, lag: mpmath.mpf) -> mpmath.mpf:
            """The m-th derivative of the covariance in the lag, by the recursion of Hermite polynomials."""
            length, tau = mpmath.mpf(ell), mpmath.mpf(lag)
            h = [mpmath.mpf(1), tau / length]
            for k in range(1, m):
                h.append(tau / length * h[k] - k * h[k - 1])
            return mpmath.mpf(sigma) ** 2 * (-1 / length) ** m * h[m] * mpmath.exp(-((tau / length) ** 2) / 2)

        weights = {"x": {0: 1}, "u": {0: 4, 2: 1}}

        def pair(first: str, s: float, second: str, t: float) -> mpmath.mpf:
            # Second derivatives are even in the lag, so no signs appear.
            lag = mpmath.mpf(float(s)) - mpmath.mpf(float(t))
            return sum(a * b * cov(i + j, lag) for i, a in weights[first].items() for j, b in weights[second].items())

        rows = [(name, t) for name in ("x", "u") for t in TIMES]
        values = mpmath.matrix([value for column in data() for value in column])
        K = mpmath.matrix([[pair(a, s, b, t) for b, t in rows] for a, s in rows])
        for i in range(len(rows)):
            K[i, i] += mpmath.mpf(NOISE) ** 2
        cross = mpmath.matrix([[pair("x", s, b, t) for b, t in rows] for s in NEW])
        gain = mpmath.matrix([list(mpmath.lu_solve(K, cross[i, :].T)) for i in range(len(NEW))])
        mean = gain * values
        variance = [cov(0, 0.0) - sum(gain[i, j] * cross[i, j] for j in range(len(rows))) for i in range(len(NEW))]
        return np.array([float(v) for v in mean]), np.array([float(mpmath.sqrt(v)) for v in variance])


def data() -> tuple[np.ndarray, np.ndarray]:
    return np.sin(TIMES) + 0.2, 3 * np.sin(TIMES) + 0.8


def test_mean_and_deviation_against_sixty_digits() -> None:
    system = lk.System("x'' + 4*x = u")
    x, u = data()
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(TIMES, {"x": x, "u": u}, noise_std=NOISE)
    # Nothing is left of a Cholesky factor here.
    assert isinstance(gp.fit_.posterior, SpectralPosterior)
    hyper, units = gp.fit_.hyperparameters, gp.fit_.prior.units
    mean, std = exact_posterior(float(hyper.lengthscales[0]) * units.time_scale, float(hyper.amplitudes[0]))
    found, deviation = gp.predict(NEW, "x", return_std=True, parameters="fixed")
    # Errors are small against the deviation, which itself is a ten-millionth of the prior's.
    assert np.abs(found - mean).max() < 1e-3 * std.min()
    np.testing.assert_allclose(deviation, std, rtol=1e-3)
