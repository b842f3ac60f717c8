"""A covariance of one's own takes part everywhere once it is registered, without a change in any other place.

The toy is ``exp(-u^2/2) cos u`` (`ringing.py`).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.channel_prior.channel_spectrum import prior_spectral_density
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.draws import sample_free_function
from lodekit.prior.kernels import KERNEL_FAMILIES, Kernel, parse_kernel
from tests.inference.fitted import gradient_vector, make_case, series_of, shifted, values_of
from tests.prior.ringing import Ringing


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    latent = Ringing()
    monkeypatch.setitem(KERNEL_FAMILIES, "'toy'", lambda name: latent if name == "toy" else None)
    return latent


def test_a_registered_covariance_has_a_name_and_stands_in_messages(toy: Kernel) -> None:
    assert parse_kernel("toy") is toy
    with pytest.raises(lk.LodekitError, match="or 'toy', got 'tory'"):
        lk.LODEGP(lk.System("x' = u"), latent="tory").fit(np.arange(3.0), np.zeros((3, 2)))


def test_the_evidence_of_a_fit_is_the_textbook_formula() -> None:
    """For ``x' = u`` all covariances are derivatives of k; SymPy takes them, NumPy's determinant does the rest."""
    times = np.linspace(0.0, 6.0, 9)
    table = np.stack([np.sin(times), np.cos(times)], axis=1) + 0.05 * np.random.default_rng(0).standard_normal((9, 2))
    model = lk.LODEGP(lk.System("x' = u"), latent="toy", noise="shared", engine="dense", random_state=0, restarts=1)
    model.fit(times, table)
    hyper, span = model.fit_.hyperparameters, model.fit_.prior.units.time_scale
    tau, ell = sympy.Symbol("tau"), float(hyper.lengthscales[0]) * span
    kernel = sympy.exp(-((tau / ell) ** 2) / 2) * sympy.cos(tau / ell)
    lag = times[:, None] - times[None, :]
    k, slope, bend = (sympy.lambdify(tau, sympy.diff(kernel, tau, m))(lag) for m in range(3))
    K = float(hyper.amplitudes[0]) ** 2 * np.block([[k, -slope], [slope, -bend]])
    K += float(hyper.noise_std[0]) ** 2 * np.eye(18)
    y = table.T.ravel()
    expected = -0.5 * y @ np.linalg.solve(K, y) - 0.5 * np.linalg.slogdet(K)[1] - 9.0 * np.log(2.0 * np.pi)
    assert model.log_evidence_ == pytest.approx(expected, rel=1e-9)
    assert "latent='toy'" in repr(model)
    # Strict as ever: the derivative of x is u.
    assert np.abs(np.diff(model.predict(times, ["x'", "u"]), axis=1)).max() < 1e-9


@pytest.mark.parametrize("name", ["heating", "three_tank", "free_decay"])
def test_both_engines_agree_and_their_gradients_are_those_of_differences(name: str) -> None:
    _, data, _, hyper = make_case(name, count=12, latent="toy", missing=True)
    dense = DenseEngine(data)
    spectral = SpectralEngine(data.prior, Measurements(series_of(data)), 1e-10)
    found = dense.evaluate(hyper)
    gradient = gradient_vector(found)
    scale = np.abs(gradient).max()
    differences = [
        (dense.value(shifted(hyper, k, 1e-5)) - dense.value(shifted(hyper, k, -1e-5))) / 2e-5
        for k in range(len(gradient))
    ]
    np.testing.assert_allclose(gradient, differences, rtol=0, atol=1e-6 * scale)
    other = spectral.evaluate(hyper)
    assert other.value == pytest.approx(found.value, rel=1e-8)
    np.testing.assert_allclose(gradient_vector(other), gradient, rtol=0, atol=1e-6 * scale)
    times = np.linspace(0.0, 5.0, 7)
    means = [engine.posterior(hyper).mean(data.observables, times) for engine in (dense, spectral)]
    np.testing.assert_allclose(means[1], means[0], rtol=0, atol=1e-6 * np.abs(means[0]).max())


def test_it_is_computed_through_pytorch_as_well() -> None:
    pytest.importorskip("torch")
    _, data, _, hyper = make_case("heating", count=12, latent="toy")
    plain, other = DenseEngine(data).evaluate(hyper), DenseEngine(data, "cpu").evaluate(hyper)
    assert other.value == pytest.approx(plain.value, rel=1e-10)
    scale = np.abs(gradient_vector(plain)).max()
    np.testing.assert_allclose(gradient_vector(other), gradient_vector(plain), rtol=0, atol=1e-8 * scale)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["heating", "three_tank"])
def test_the_kernel_for_gpytorch_knows_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("gpytorch")
    from tests.integrations.kernels import make_kernel

    data, hyper, kernel = make_kernel(name, "toy")
    K = kernel(torch.as_tensor(data.times)[:, None]).to_dense().detach().numpy()
    K = K + float(hyper.noise_std[0]) ** 2 * np.eye(len(K))
    means, _ = data.observables.means(data.observables.evaluate(hyper.theta), data.times)
    y = (np.stack(values_of(data), axis=1) - np.stack(means, axis=1) * data.prior.units.scales).ravel()
    expected = -0.5 * y @ np.linalg.solve(K, y) - 0.5 * np.linalg.slogdet(K)[1] - 0.5 * len(y) * np.log(2.0 * np.pi)
    assert DenseEngine(data).value(hyper) == pytest.approx(expected, rel=1e-8)


def test_draws_have_its_covariance(toy: Kernel) -> None:
    times, size = np.array([0.0, 0.4, 1.1]), 20_000
    drawn = sample_free_function(toy, times, 2, 0.6, 1.5, size, np.random.default_rng(0)).reshape(6, size)
    h = list(toy.derivatives(np, (times[:, None] - times[None, :]) / 0.6, 2))
    pairs = [[(-1.0) ** b * 1.5**2 * 0.6 ** -(a + b) * h[a + b] for b in range(2)] for a in range(2)]
    expected = np.block(pairs)
    deviation = np.sqrt(np.diag(expected))
    # Five standard errors of a correlation.
    np.testing.assert_allclose(
        drawn @ drawn.T / size / np.outer(deviation, deviation),
        expected / np.outer(deviation, deviation),
        rtol=0,
        atol=5.0 * math.sqrt(2.0 / size),
    )


def test_a_model_on_waves_samples_and_draws_its_spectrum(toy: Kernel) -> None:
    times = np.linspace(0.0, 6.0, 15)
    table = np.stack([np.sin(times), np.cos(times)], axis=1) + 0.05 * np.random.default_rng(0).standard_normal((15, 2))
    system = lk.System("x' = u")
    model = lk.LODEGP(system, latent="toy", engine="spectral", random_state=0, restarts=1).fit(times, table)
    samples = model.sample(times, 400, 0)
    mean, std = model.predict(times, return_std=True)
    assert np.abs(samples.mean(axis=0) - mean).max() < 5.0 * std.max() / math.sqrt(400)
    prior, hyper = model.fit_.prior, model.fit_.hyperparameters
    plain = prior.observables.__class__(prior.observables.compiled, prior.units.unscaled(2))
    frequencies, density = prior_spectral_density(prior, hyper, plain)
    own = free_function_variance(
        toy, plain.evaluate(hyper.theta).free[:, 0], float(hyper.lengthscales[0]), float(hyper.amplitudes[0])
    )
    # Below the lowest frequency the density is flat.
    area = np.trapezoid(density, frequencies, axis=1) + frequencies[0] * density[:, 0]
    np.testing.assert_allclose(area, own, rtol=1e-3)
    pytest.importorskip("matplotlib")
    assert len(model.plot_spectrum().axes) == 2
