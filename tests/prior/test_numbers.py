"""Exact becomes float: constants in coefficients, exponents of known functions, residuals and densities."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import trapezoid

import lodekit as lk
from lodekit.algebra.scalars import NamedConstant, ScalarRing
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, Scaling
from lodekit.prior.channel_prior.channel_spectrum import prior_spectral_density
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.observables import EquationResiduals, ObservableCompiler
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import prior_of

Array = NDArray[np.float64]
NONE = np.zeros(0)


def test_constants_and_parameters_are_multiplied() -> None:
    root, euler = NamedConstant("sqrt", Fraction(2)), NamedConstant("exp", Fraction(1))
    ring = ScalarRing(("a",), (euler, root))
    a, e, s = ring.parameter("a"), ring.constant(euler), ring.constant(root)
    table = ScalarFunctions(ring, [ring.rational(3) * e * e * s * a - s, (a + e) / (ring.rational(5) * s)])
    values, slopes = table.evaluate(np.array([0.7]))
    np.testing.assert_allclose(values, [(3 * np.e**2 * 0.7 - 1) * 2**0.5, (0.7 + np.e) / (5 * 2**0.5)], rtol=1e-14)
    np.testing.assert_allclose(slopes, [[3 * np.e**2 * 2**0.5, 1 / (5 * 2**0.5)]], rtol=1e-14)


def test_known_functions_have_their_exponents_in_scaled_time() -> None:
    """``exp(-2 t) sin(3 t)`` beside the mode ``exp(-5 t)``, in units of half a second."""
    system = lk.System("x' + a*x = exp(-b*t)*sin(w*t)", parameters=["a", "b", "w"])
    observables = ObservableCompiler(system).compile(["x"], Scaling(0.0, 0.5, np.ones(1)))
    values = observables.evaluate(np.array([5.0, 2.0, 3.0]))
    found = observables.exponents(values, observables.compiled.groups)
    # Cosine and sine, whichever signs their frequencies have.
    known = {(round(z.real, 12), round(abs(z.imag), 12)) for z in found}
    assert known == {(-2.5, 0.0), (-1.0, 1.5)}


def test_a_relative_residual_is_a_share_of_the_terms() -> None:
    """Of ``x' + 2 x = sin(t)``; nothing is left of nothing."""
    terms = EquationResiduals(lk.System("x' + 2*x = sin(t)"))
    times, small = np.array([0.0, 0.3]), 1e-3
    by_name = {"x": np.array([0.0, small]), "D(x, 1)": np.array([0.0, -small])}
    values = np.stack([by_name[name] for name in terms.observables], axis=-1)[None]
    plain = terms.residual(NONE, times, values, relative=False)[0, :, 0]
    share = terms.residual(NONE, times, values, relative=True)[0, :, 0]
    np.testing.assert_allclose(plain, [0.0, small - np.sin(0.3)], rtol=1e-14)
    np.testing.assert_allclose(share, [0.0, (small - np.sin(0.3)) / (3.0 * small + np.sin(0.3))], rtol=1e-14)


@pytest.mark.parametrize(("latent", "lengthscale"), [("se", 0.05), ("se", 20.0), ("matern-3/2", 0.4)])
def test_densities_reach_as_far_as_there_is_something_to_see(latent: str, lengthscale: float) -> None:
    times = np.linspace(0.0, 7.0, 5)
    system = lk.System("y = 2*x")
    measurements = Measurements([TimeSeries("x", times, np.cos(times), np.full(5, np.nan))])
    prior = prior_of(system, measurements, latent=latent)
    hyper = Hyperparameters(NONE, np.full(1, lengthscale), np.full(1, 1.3), NONE, np.full(1, 0.1))
    observables = ObservableCompiler(system).compile_unscaled(["x", "y"], prior.units)
    frequencies, density = prior_spectral_density(prior, hyper, observables)
    rows = observables.evaluate(NONE).free[:, 0]
    expected = free_function_variance(prior.kernels[0], rows, lengthscale, 1.3)
    area = trapezoid(density, frequencies, axis=1) + density[:, 0] * frequencies[0]
    np.testing.assert_allclose(area, expected, rtol=3e-3)
    # What falls by a power only is shown further out.
    assert (density[:, -1] < 1e-5 * density.max(axis=1)).all()
    np.testing.assert_allclose(density[1], 4.0 * density[0], rtol=1e-12)
