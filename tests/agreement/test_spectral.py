"""The spectral engine agrees with the dense one on every catalog system, and is as strict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.fitting.starts.candidates import VarianceTargets, match_variances
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.observables import EquationResiduals
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, prior_of, series_of, shifted, witness_of

CASES = [*EXAMPLES, *EXTRA]
#: From a fiftieth of the window to ten windows.
LENGTHSCALES = (0.02, 0.3, 10.0)


@pytest.fixture(params=["measurements", "sums"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Data as nodes of their own, or as sums over them."""
    if request.param == "sums":
        monkeypatch.setattr("lodekit.inference.spectral.engine._MAX_POINT_MEASUREMENTS", 0)
    return request.param  # type: ignore[no-any-return]


def both_engines(name: str, lengthscale: float, **options: Any) -> tuple[Any, DenseEngine, SpectralEngine, Any]:
    """Return a model, both engines on the same data, and hyperparameters whose largest channel is that of the data."""
    reader, data, _, hyper = make_case(name, count=25, lengthscale=lengthscale, missing=True, **options)
    rows = data.observables.evaluate(hyper.theta)
    total = np.zeros(len(data.index))
    for number, latent in enumerate(data.prior.kernels):
        total += free_function_variance(latent, rows.free[:, number], lengthscale, float(hyper.amplitudes[number]))
    hyper = replace(hyper, amplitudes=hyper.amplitudes / np.sqrt(max(total.max(), 1e-300)))
    measurements = Measurements(series_of(data))
    return reader, DenseEngine(data), SpectralEngine(data.prior, measurements, 1e-10), hyper


@pytest.mark.parametrize("name", CASES)
def test_evidence_gradient_and_posterior_agree_with_the_dense_engine(name: str, form: str) -> None:
    for lengthscale in LENGTHSCALES:
        reader, dense, engine, hyper = both_engines(name, lengthscale)
        a, b = dense.evaluate(hyper), engine.evaluate(hyper)
        assert b.value == pytest.approx(a.value, rel=1e-8)
        scale = np.abs(gradient_vector(a)).max()
        assert np.abs(gradient_vector(a) - gradient_vector(b)).max() < 1e-6 * scale
        assert engine.value(hyper) == pytest.approx(b.value, rel=1e-12)
        times = np.linspace(dense.data.times[0] - 1.0, dense.data.times[-1] + 1.0, 30)
        observables = reader.compile(reader.system.channels, dense.prior.units)
        first, second = dense.posterior(hyper), engine.posterior(hyper)
        np.testing.assert_allclose(second.mean(observables, times), first.mean(observables, times), rtol=0, atol=1e-7)
        deviations = [np.sqrt(posterior.variance(observables, times)) for posterior in (first, second)]
        np.testing.assert_allclose(deviations[1], deviations[0], rtol=0, atol=1e-7)
        covariances = [posterior.covariance(observables, times[::3]) for posterior in (first, second)]
        np.testing.assert_allclose(covariances[1], covariances[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_root_of_the_design_agrees_with_the_dense_engine(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is precise enough for this: every regression is done by QR, never over the rows.
    monkeypatch.setattr("lodekit.inference.spectral.engine._MAX_RELATIVE_EVIDENCE_ERROR", 0.0)
    monkeypatch.setattr("lodekit.inference.spectral.engine._MAX_DUAL_ROW_RATIO", 0.0)
    _, dense, engine, hyper = both_engines(name, 0.3)
    a, b = dense.evaluate(hyper), engine.evaluate(hyper)
    assert b.value == pytest.approx(a.value, rel=1e-8)
    assert np.abs(gradient_vector(a) - gradient_vector(b)).max() < 1e-6 * np.abs(gradient_vector(a)).max()


@pytest.mark.parametrize("name", ["heating", "free_decay", "two_room", "growth"])
def test_evidence_agrees_with_mpmath(name: str) -> None:
    _, data, _, hyper = make_case(name, count=6)
    engine = SpectralEngine(data.prior, Measurements(series_of(data)), 1e-10)
    assert engine.value(hyper) == pytest.approx(witness_of(name, data).evidence(hyper), rel=1e-9)


@pytest.mark.parametrize("name", ["heating", "three_tank", "two_room"])
def test_known_noise_and_learned_noise_mix(name: str, form: str) -> None:
    reader, data, _, hyper = make_case(name, count=24, noise="channel")
    generator = np.random.default_rng(0)
    series = []
    for item in series_of(data):
        known = 10.0 ** generator.uniform(-2, 1, len(item.times)) * item.values.std()
        series.append(
            TimeSeries(item.observable, item.times, item.values, np.where(generator.random(24) < 0.5, known, np.nan))
        )
    measurements = Measurements(series)
    prior = prior_of(reader.system, measurements, noise="channel")
    dense = DenseEngine(DenseData.from_series(prior, series))
    engine = SpectralEngine(prior, measurements, 1e-10)
    a, b = dense.evaluate(hyper), engine.evaluate(hyper)
    assert b.value == pytest.approx(a.value, rel=1e-8)
    assert np.abs(gradient_vector(a) - gradient_vector(b)).max() < 1e-6 * np.abs(gradient_vector(a)).max()


@pytest.mark.parametrize("level", [1e-2, 1e-4, 1e-6])
def test_low_noise_keeps_its_digits(level: float) -> None:
    """Against mpmath: the dense engine itself loses digits here."""
    _, data, _, hyper = make_case("heating", count=14, lengthscale=0.2)
    hyper = replace(hyper, noise_std=level * data.prior.noise.level_scales)
    engine = SpectralEngine(data.prior, Measurements(series_of(data)), 1e-10)
    assert engine.value(hyper) == pytest.approx(witness_of("heating", data).evidence(hyper, 60), rel=1e-8)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("name", ["bipendulum", "heating", "three_tank", "two_room"])
def test_truncation_never_breaks_the_equations(name: str, channels: bool) -> None:
    """Waves that are far too few for the evidence still solve the equations, each of them."""
    reader, data, layout, hyper = make_case(name, count=25)
    measurements = Measurements(series_of(data))
    prior = prior_of(reader.system, measurements, channels=channels)
    few, many = (SpectralEngine(prior, measurements, tolerance) for tolerance in (100.0, 1e-10))
    sizes = VarianceTargets.evaluate_at(many, hyper.theta)
    own = match_variances(
        many, replace(layout, n_processes=prior.n_processes), sizes, 0.3, 0.1 * prior.noise.level_scales
    )
    assert own is not None
    assert abs(few.value(own) - many.value(own)) > 1e-3
    posterior, times = few.posterior(own), np.linspace(-3.0, 9.0, 60)
    terms = EquationResiduals(reader.system)
    observables = reader.compile_unscaled(terms.observables, prior.units)
    drawn = posterior.sample(observables, times, 3, np.random.default_rng(0))
    for curves in (posterior.mean(observables, times)[None], drawn):
        assert np.abs(terms.residual(own.theta, times, curves, relative=True)).max() < 1e-11


@pytest.mark.parametrize("name", [name for name in CASES if name != "mass_chain"])
def test_gradient_of_the_channel_prior_is_that_of_differences(name: str, form: str) -> None:
    reader, data, layout, hyper = make_case(name, count=20, lengthscale=0.3)
    measurements = Measurements(series_of(data))
    prior = prior_of(reader.system, measurements, channels=True)
    engine = SpectralEngine(prior, measurements, 1e-10)
    sizes = VarianceTargets.evaluate_at(engine, hyper.theta)
    own = match_variances(
        engine, replace(layout, n_processes=prior.n_processes), sizes, 0.3, 0.1 * prior.noise.level_scales
    )
    assert own is not None
    stretched = own.lengthscales * np.linspace(1.0, 1.3, prior.n_processes)
    own = replace(own, lengthscales=stretched)
    gradient = gradient_vector(engine.evaluate(own))
    for k in range(len(gradient)):
        step = 1e-5 * max(1.0, abs(own.theta[k])) if k < len(own.theta) else 1e-5
        difference = (engine.value(shifted(own, k, step)) - engine.value(shifted(own, k, -step))) / (2 * step)
        assert gradient[k] == pytest.approx(difference, abs=3e-6 * np.abs(gradient).max())


def channel_evidence(text: str, channels: list[str], order: list[int]) -> float:
    """The evidence of the same data under a system written in one way, its channels in some order."""
    system = lk.System(text, channels=channels)
    generator = np.random.default_rng(0)
    times = np.linspace(0.0, 3.0, 15)
    names = ["x", "y", "u"]
    data = {name: np.sin(times + k) + 0.1 * generator.standard_normal(15) for k, name in enumerate(names)}
    series = [TimeSeries(name, times, data[name], np.full(15, np.nan)) for name in channels]
    measurements = Measurements(series)
    prior = prior_of(system, measurements, channels=True)
    engine = SpectralEngine(prior, measurements, 1e-10)
    lengthscales, deviations = np.array([0.3, 0.4, 0.5])[order], np.array([1.0, 2.0, 0.5])[order]
    hyper = Hyperparameters(np.zeros(0), lengthscales, deviations, np.zeros(0), np.array([0.1]))
    return engine.value(hyper)


def test_the_channel_prior_depends_on_no_basis_row_operation_or_order() -> None:
    plain = channel_evidence("x' = y - x; y' = u - 2*x", ["x", "y", "u"], [0, 1, 2])
    mixed = channel_evidence("3*x' + y' = 3*y - 5*x + u; y' = u - 2*x", ["x", "y", "u"], [0, 1, 2])
    turned = channel_evidence("y' = u - 2*x; x' = y - x", ["u", "x", "y"], [2, 0, 1])
    assert mixed == pytest.approx(plain, rel=1e-10)
    assert turned == pytest.approx(plain, rel=1e-10)


def test_the_channel_prior_of_free_channels_is_that_of_independent_processes() -> None:
    """Without equations that bind them, channels keep their own processes: the textbook covariance."""
    system = lk.System("v = w'", channels=["v", "w", "x"])
    times = np.linspace(0.0, 2.0, 12)
    values = np.cos(times)
    measurements = Measurements([TimeSeries("x", times, values, np.full(12, np.nan))])
    prior = prior_of(system, measurements, channels=True)
    engine = SpectralEngine(prior, measurements, 1e-10)
    hyper = Hyperparameters(
        np.zeros(0), np.array([0.5, 0.5, 0.4]), np.array([1.0, 1.0, 0.7]), np.zeros(0), np.array([0.1])
    )
    lag = (times[:, None] - times[None, :]) / 2.0
    K = 0.7**2 * np.exp(-0.5 * (lag / 0.4) ** 2) + 0.01 * np.eye(12)
    expected = -0.5 * values @ np.linalg.solve(K, values) - 0.5 * np.linalg.slogdet(K)[1] - 6 * np.log(2 * np.pi)
    assert engine.value(hyper) == pytest.approx(expected, rel=1e-9)
