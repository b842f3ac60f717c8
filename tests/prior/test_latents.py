"""A covariance is one thing in all its faces: derivatives, spectral density, state space and lengthscale."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.linalg import expm, solve_continuous_lyapunov

import lodekit as lk
from lodekit.prior.kernels import Kernel, Matern, SquaredExponential, parse_kernel

Array = NDArray[np.float64]
ELL = 0.7
LATENTS = [SquaredExponential(), Matern(1), Matern(2), Matern(4)]


def named(latent: Kernel) -> str:
    return latent.name


def derivatives(latent: Kernel, lag: float, count: int) -> Array:
    """``(-1)^j k^(i+j)(lag)``: the covariance of the i-th derivative with the j-th one, earlier by the lag."""
    stack = [float(part[0]) for part in latent.derivatives(np, np.array([lag / ELL]), 2 * (count - 1))]
    return np.array([[(-1.0) ** j * stack[i + j] * ELL ** -(i + j) for j in range(count)] for i in range(count)])


@pytest.mark.parametrize("p", [0, 1, 2, 3, 5])
def test_a_matern_is_its_state_space(p: int) -> None:
    """The stationary covariance solves the Lyapunov equation; the transition takes it to a lag."""
    latent = Matern(p)
    space = latent.state_space(ELL)
    assert space is not None
    noise = np.zeros((p + 1, p + 1))
    F, noise[-1, -1] = space
    stationary = solve_continuous_lyapunov(F, -noise)
    scale = np.sqrt(np.outer(np.diag(stationary), np.diag(stationary)))
    np.testing.assert_allclose(stationary / scale, derivatives(latent, 0.0, p + 1) / scale, rtol=0, atol=1e-9)
    for lag in (0.1, 0.9):
        moved = expm(F * lag) @ stationary
        np.testing.assert_allclose(moved / scale, derivatives(latent, lag, p + 1) / scale, rtol=0, atol=1e-9)


def test_an_infinitely_smooth_process_has_no_state_space() -> None:
    assert SquaredExponential().state_space(ELL) is None


@pytest.mark.parametrize("latent", LATENTS, ids=named)
def test_the_spectral_density_is_the_fourier_transform(latent: Kernel) -> None:
    def covariance(lag: float) -> float:
        return float(next(iter(latent.derivatives(np, np.array([lag / ELL]), 0)))[0])

    def density(w: float) -> float:
        return float(np.exp(latent.log_density(np.array([w]), ELL))[0])

    area = 2.0 * sum(quad(density, a, b, epsabs=1e-12, limit=200)[0] for a, b in ((0.0, 20.0), (20.0, np.inf)))
    assert area / (2.0 * math.pi) == pytest.approx(1.0, rel=1e-7)
    for w in (0.0, 0.8, 3.0):
        # Beyond forty lengthscales nothing is left.
        half = quad(lambda lag, w=w: covariance(lag) * math.cos(w * lag), 0.0, 40.0 * ELL, epsabs=1e-12, limit=400)[0]
        assert density(w) == pytest.approx(2.0 * half, rel=1e-7)


@pytest.mark.parametrize("latent", LATENTS, ids=named)
def test_the_slope_of_the_log_density_is_right(latent: Kernel) -> None:
    w, step = np.linspace(0.0, 8.0, 9), 1e-5
    above, below = (latent.log_density(w, ELL * math.exp(h)) for h in (step, -step))
    np.testing.assert_allclose(
        latent.log_density_lengthscale_derivative(w, ELL), (above - below) / (2 * step), rtol=0, atol=1e-7
    )
    # Lengthscales may be many.
    both = latent.log_density(w[:, None], np.array([ELL, 2.0]))
    np.testing.assert_allclose(both[:, 0], latent.log_density(w, ELL), rtol=1e-14)


def test_derivatives_of_the_squared_exponential_are_hermite_functions() -> None:
    points = (-2.3, 0.0, 0.4, 1.0, 5.0)
    stack = list(SquaredExponential().derivatives(np, np.array(points), 9))
    assert len(stack) == 10
    for number, point in enumerate(points):
        for m, part in enumerate(stack):
            u = mpmath.mpf(point)
            exact = (-1) ** m * mpmath.hermite(m, u / mpmath.sqrt(2)) / mpmath.sqrt(2) ** m * mpmath.exp(-(u**2) / 2)
            # Rounding, against the size of the terms that cancel.
            assert part[number] == pytest.approx(float(exact), rel=1e-12, abs=1e-13 * math.factorial(m))


@pytest.mark.parametrize("latent", [SquaredExponential(), Matern(2), Matern(4)], ids=named)
def test_the_tilt_is_the_derivative_in_the_logarithm_of_the_lengthscale(latent: Kernel) -> None:
    generator, order, step = np.random.default_rng(0), 4, 1e-5
    lags, weights = generator.uniform(-1.0, 1.0, 12), generator.standard_normal(12)

    def sums(ell: float) -> Array:
        return np.array(
            [ell**-m * (part @ weights) for m, part in enumerate(latent.derivatives(np, lags / ell, order))]
        )

    stack = np.array(list(latent.derivatives(np, lags / ELL, order + latent.extra_derivatives)))
    lagged = stack @ (weights * lags / ELL) if latent.needs_lag_products else None
    found = latent.lengthscale_derivative(stack @ weights, lagged) * ELL ** -np.arange(order + 1.0)
    expected = (sums(ELL * math.exp(step)) - sums(ELL * math.exp(-step))) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("order", [0, 1, 3])
def test_nothing_is_left_beyond_band_and_reach(order: int) -> None:
    latent, eps = SquaredExponential(), 1e-6
    band, reach = latent.bandwidth(order, eps), latent.correlation_range(order, eps)

    def power(w: float) -> float:
        return float(w ** (2 * order) * np.exp(latent.log_density(np.array([w]), 1.0))[0])

    outside, inside = quad(power, band, 40.0, epsabs=0.0)[0], quad(power, 0.0, band)[0]
    assert outside / (outside + inside) == pytest.approx(eps, rel=1e-5)
    at_zero = [float(part[0]) for part in latent.derivatives(np, np.zeros(1), 2 * order)]
    # The reach is found on a grid of steps of 0.005.
    largest = [
        max(
            abs(float(part[0]) / at_zero[m])
            for m, part in enumerate(latent.derivatives(np, np.array([u]), 2 * order))
            if m % 2 == 0
        )
        for u in (reach, reach - 0.01)
    ]
    assert largest[0] <= eps < largest[1]
    assert math.isinf(Matern(2).bandwidth(order, eps))
    assert math.isinf(Matern(2).correlation_range(order, eps))


@pytest.mark.parametrize("name", ["matern-4/2", "matern-133/2", "matern", "SE", 3])
def test_texts_that_name_no_covariance_are_refused(name: str) -> None:
    with pytest.raises(lk.LodekitError, match=r"expected latent='se' or 'matern-p/2'"):
        parse_kernel(name)


def test_the_smoothest_matern_is_taken_and_a_rough_one_says_what_is_needed() -> None:
    assert parse_kernel("matern-131/2") == Matern(65)
    Matern(1).check_order(2)
    # Half the order, rounded up: the third derivative of the covariance is that of a function with two.
    for order, needed in ((3, 2), (4, 2), (5, 3)):
        with pytest.raises(lk.LodekitError, match=rf"need {needed} derivatives .* matern-{2 * needed + 1}/2 or"):
            Matern(1).check_order(order)
