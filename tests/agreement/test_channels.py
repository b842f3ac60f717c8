"""The channel prior: its covariance is the integral of its density, its engines agree, its posterior is strict."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.fitting.starts.candidates import VarianceTargets, match_variances
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import Engine
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.channel_prior.lag_covariance import TimeLags
from lodekit.prior.channel_prior.quadrature import build_frequency_panels
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.prior.spectra import SpectralPoint
from tests.inference.fitted import EXAMPLES, Array, gradient_vector, keep_model, make_case, prior_of, series_of, shifted

CASES = [name for name, example in EXAMPLES.items() if example.system.free_functions]


def both_engines(
    name: str, *, missing: bool = False, lengthscale: float = 0.3
) -> tuple[DenseEngine, SpectralEngine, Hyperparameters]:
    """Both engines on the same data, and hyperparameters that differ between channels."""
    reader, data, layout, hyper = make_case(name, count=20, lengthscale=lengthscale, missing=missing, noise="channel")
    measurements = Measurements(series_of(data))
    prior = prior_of(reader.system, measurements, channels=True, noise="channel")
    dense = DenseEngine(DenseData.from_series(prior, measurements.series))
    layout = replace(layout, n_processes=prior.n_processes)
    own = match_variances(
        dense, layout, VarianceTargets.evaluate_at(dense, hyper.theta), lengthscale, 0.1 * prior.noise.level_scales
    )
    assert own is not None
    own = replace(own, lengthscales=own.lengthscales * np.linspace(1.0, 1.3, prior.n_processes))
    return dense, SpectralEngine(prior, measurements, 1e-10), own


def point_of(prior: Prior, hyper: Hyperparameters) -> SpectralPoint:
    assert prior.channels is not None
    return SpectralPoint.from_hyperparameters(
        prior.observables.evaluate(hyper.theta), prior.channels.evaluate(hyper.theta), hyper
    )


@pytest.mark.parametrize("lengthscale", [0.3, 0.8])
@pytest.mark.parametrize("name", ["heating", "spring_mass_damper", "bipendulum"])
def test_the_covariance_is_the_integral_of_the_density(name: str, lengthscale: float) -> None:
    """Against adaptive quadrature of the density by its formula, for one free function, piece by piece."""
    dense, _, hyper = both_engines(name, lengthscale=lengthscale)
    point, times = point_of(dense.prior, hyper), np.array([0.0, 0.37, 1.0])
    found = TimeLags(times).covariance(point, np.ones(len(point.free)))
    assert found is not None
    count = len(point.free)
    blocks = found.blocks().reshape(count, count, 3, 3)
    scales = np.sqrt(np.einsum("iiaa->ia", blocks)[:, 0])

    def density(w: float, i: int, j: int, lag: float) -> float:
        b = [np.polyval(row[0][::-1], 1j * w) for row in point.channels]
        S = hyper.amplitudes**2 * hyper.lengthscales * np.sqrt(2 * np.pi)
        S *= np.exp(-0.5 * (w * hyper.lengthscales) ** 2)
        on = [np.polyval(row[0][::-1], 1j * w) for row in point.free]
        total = on[i] * np.conj(on[j]) / np.sum(np.abs(b) ** 2 / S) * np.exp(1j * w * lag)
        return float(total.real) / np.pi / float(scales[i] * scales[j])

    edges = np.linspace(0.0, 11.0 / hyper.lengthscales.min(), 60)
    for i, j, a, b in ((0, 0, 0, 0), (0, 0, 1, 0), (0, count - 1, 0, 2), (count - 1, 0, 1, 2)):
        lag = float(times[a] - times[b])
        parts = [quad(density, *pair, args=(i, j, lag), epsabs=1e-14, epsrel=1e-12)[0] for pair in pairwise(edges)]
        assert blocks[i, j, a, b] / scales[i] / scales[j] == pytest.approx(sum(parts), abs=1e-11)


@pytest.mark.parametrize("lengthscale", [0.6, 0.8, 1.0])
def test_a_peak_far_narrower_than_the_panels_is_found(lengthscale: float) -> None:
    """An undamped oscillator whose input hardly reaches its frequency: the variance of the peak in closed form."""
    omega, prior_variance = 9.0, 4.0
    # x'' + 81 x = u in scaled time: B = (1, 81 - w^2) for x and u.
    channels = np.array([[[1.0, 0.0, 0.0]], [[omega**2, 0.0, 1.0]]])
    point = SpectralPoint(channels, channels, np.array([0.05, lengthscale]), np.array([np.sqrt(prior_variance), 1.0]))
    panels = build_frequency_panels(point, 1.0)
    assert panels is not None
    own = ConditionedDensity(panels.frequencies, point)
    near = np.abs(panels.frequencies - omega) < 0.5
    found = float(own.observable_density[0][near] @ panels.weights[near])
    S_x = float(np.exp(own.log_density[0][near]).max())
    S_u = float(np.exp(-0.5 * (omega * lengthscale) ** 2) * lengthscale * np.sqrt(2 * np.pi))
    width = np.sqrt(S_u / S_x) / (2 * omega)
    # The flanks beyond the window, and the bend of the density within it, are of the order of the width.
    assert found == pytest.approx(S_x * width, rel=max(5 * width, 0.01))
    assert len(panels.frequencies) < 2000


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_both_engines_have_the_same_evidence_and_gradient(name: str, missing: bool) -> None:
    """Tolerance: that of the spectral engine, times the condition of the noise."""
    dense, spectral, hyper = both_engines(name, missing=missing)
    a, b = dense.evaluate(hyper), spectral.evaluate(hyper)
    assert a.value == pytest.approx(b.value, rel=1e-8, abs=1e-5)
    assert dense.value(hyper) == pytest.approx(a.value, rel=1e-12)
    first, second = gradient_vector(a), gradient_vector(b)
    assert np.abs(first - second).max() < 1e-7 * np.abs(first).max()


@pytest.mark.parametrize("kind", ["dense", "spectral"])
def test_derivatives_in_a_channel_that_is_all_but_zero_keep_their_digits(kind: str) -> None:
    """A long lengthscale makes the density of one channel vanish where those of others do not."""
    dense, spectral, hyper = both_engines("three_tank")
    hyper = replace(hyper, lengthscales=np.array([0.33, 0.6, 0.22, 0.14, 0.23]))
    engine: Engine = dense if kind == "dense" else spectral
    gradient = gradient_vector(engine.evaluate(hyper))
    for k in range(len(gradient)):
        difference = (engine.value(shifted(hyper, k, 1e-4)) - engine.value(shifted(hyper, k, -1e-4))) / 2e-4
        assert gradient[k] == pytest.approx(difference, abs=1e-4 * np.abs(gradient).max())


@pytest.mark.parametrize("name", ["bipendulum", "two_mass", "three_tank", "heating"])
def test_the_gradient_is_that_of_differences_over_waves_that_serve_again(name: str) -> None:
    """Panels are those of an earlier point: the gradient is that of the evidence all the same."""
    dense, _, hyper = both_engines(name)
    moved = replace(hyper, lengthscales=hyper.lengthscales * 1.04, theta=hyper.theta * 1.01)
    gradient = gradient_vector(dense.evaluate(moved))
    for k in range(len(gradient)):
        step = 1e-4 * max(1.0, abs(moved.theta[k])) if k < len(moved.theta) else 1e-4
        difference = (dense.value(shifted(moved, k, step)) - dense.value(shifted(moved, k, -step))) / (2 * step)
        assert gradient[k] == pytest.approx(difference, abs=1e-5 * np.abs(gradient).max())


@pytest.mark.parametrize("name", ["bipendulum", "heating", "three_tank", "two_room", "cart_pendulum"])
def test_both_posteriors_agree_near_and_far(name: str) -> None:
    dense, spectral, hyper = both_engines(name, missing=True)
    observables = dense.prior.observables
    first, second = dense.posterior(hyper), spectral.posterior(hyper)
    # Many times, few of them, and times one window away on both sides.
    for times in (np.linspace(0.3, 4.2, 400), np.array([0.7, 3.9]), np.linspace(-3.0, 8.0, 30)):
        a, b = first.mean(observables, times), second.mean(observables, times)
        np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max())
        v, w = first.variance(observables, times), second.variance(observables, times)
        np.testing.assert_allclose(v, w, atol=1e-7 * np.abs(w).max())
    C, D = first.covariance(observables, times), second.covariance(observables, times)
    np.testing.assert_allclose(C, D, atol=1e-7 * np.abs(D).max())
    np.testing.assert_allclose(np.einsum("nono->no", C), v, atol=1e-7 * np.abs(v).max())


def fitted(text: str, times: Array, data: dict[str, Array], **options: object) -> lk.LODEGP:
    model = lk.LODEGP(lk.System(text), prior="channels", restarts=1, random_state=0, **options)  # type: ignore[arg-type]
    return model.fit(times, data, noise_std=0.05)


def test_very_far_from_the_data_a_damped_system_keeps_its_prior() -> None:
    times = np.linspace(0.0, 5.0, 15)
    model = fitted("x' = -2*x + u", times, {"x": np.sin(times), "u": np.cos(times) + 2 * np.sin(times)})
    assert model.engine_.startswith("dense")
    mean, deviation = model.predict([1e3, 2e3, 1e6], return_std=True)
    assert np.abs(mean).max() == 0.0
    np.testing.assert_allclose(deviation[0], deviation[2], rtol=1e-9)
    near = model.predict([5.0, 5.5], return_std=True)[1]
    assert (near < deviation[:2]).all()


def test_an_undamped_system_refuses_times_that_its_memory_cannot_reach() -> None:
    times = np.linspace(0.0, 5.0, 15)
    model = fitted("x'' + 4*x = u", times, {"x": np.sin(2 * times)})
    assert np.isfinite(model.predict([40.0])).all()
    with pytest.raises(lk.LodekitError, match="closer to the data"):
        model.predict([1e7])


@pytest.mark.parametrize("name", ["bipendulum", "three_tank", "heating"])
def test_mean_and_samples_solve_the_equations(name: str) -> None:
    """Samples at parameters and hyperparameters that are drawn with them; tolerance: some units of rounding."""
    model = keep_model(EXAMPLES[name], np.linspace(0.5, 4.0, 20), 0.01, level=0.05, prior="channels")
    assert model.engine_.startswith("dense")
    everywhere = np.linspace(-3.0, 9.0, 60)
    assert np.abs(model.residual(everywhere, relative=True)).max() < 1e-11
    assert np.abs(model.residual(everywhere, samples=3, random_state=1, relative=True)).max() < 1e-11


def test_samples_have_the_moments_of_the_posterior() -> None:
    """4000 draws: moments are known to about two percent of a deviation."""
    times = np.linspace(0.0, 5.0, 8)
    model = fitted("x' = -2*x + u", times, {"x": np.sin(times)})
    asked = np.array([0.2, 2.5, 6.0])
    posterior = model.fit_.posterior
    observables = model.fit_.observables(["x", "u"])
    drawn = posterior.sample(observables, asked, 4000, np.random.default_rng(0))
    deviation = np.sqrt(posterior.variance(observables, asked))
    mean = posterior.mean(observables, asked)
    assert np.abs((drawn.mean(axis=0) - mean) / deviation).max() < 0.08
    expected = posterior.covariance(observables, asked).reshape(6, 6)
    error = np.cov(drawn.reshape(4000, 6).T) - expected
    assert np.abs(error / deviation.ravel()[:, None] / deviation.ravel()[None, :]).max() < 0.1


def test_exact_values_are_met_under_the_channel_prior() -> None:
    times = np.linspace(0.0, 3.0, 6)
    model = lk.LODEGP(lk.System("x' = -x + u"), prior="channels", restarts=1, random_state=0)
    model.fit(times, {"x": np.sin(times)}, noise_std=0.0)
    np.testing.assert_allclose(model.predict(times)[:, 0], np.sin(times), atol=1e-5)


def test_series_at_different_times_and_repeated_ones() -> None:
    """Against the spectral engine: observables at their own times, some of them twice, and a derivative."""
    generator = np.random.default_rng(0)
    system = lk.System("x'' + x' + 4*x = u")
    series = [
        TimeSeries("x", np.array([0.0, 0.5, 0.5, 2.0]), generator.standard_normal(4), np.full(4, np.nan)),
        TimeSeries("x'", np.array([0.1, 2.0, 3.0]), generator.standard_normal(3), np.full(3, np.nan)),
    ]
    measurements = Measurements(series)
    prior = prior_of(system, measurements, channels=True)
    hyper = Hyperparameters(np.zeros(0), np.array([0.4, 0.2]), np.array([1.0, 3.0]), np.zeros(0), np.array([0.3]))
    a = DenseEngine(DenseData.from_series(prior, series)).evaluate(hyper)
    b = SpectralEngine(prior, measurements, 1e-10).evaluate(hyper)
    assert a.value == pytest.approx(b.value, rel=1e-9)
    np.testing.assert_allclose(gradient_vector(a), gradient_vector(b), atol=1e-8 * np.abs(gradient_vector(b)).max())


def test_pieces_of_all_pairs_are_the_same_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, _, hyper = both_engines("heating")
    whole = dense.evaluate(hyper)
    monkeypatch.setattr("lodekit.prior.channel_prior.lag_covariance.MAX_CACHED_BASIS_ENTRIES", 500)
    pieces = DenseEngine(DenseData.from_series(dense.prior, Measurements(series_of(dense.data)).series)).evaluate(hyper)
    assert pieces.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(gradient_vector(pieces), gradient_vector(whole), rtol=1e-7)


def test_deviations_keep_the_size_of_the_data() -> None:
    """Where one channel binds another the evidence is flat: no search may follow it to infinity."""
    generator = np.random.default_rng(0)
    times = np.linspace(0.0, 10.0, 25)
    data = {"x": np.sin(times), "u": 3.0 * np.sin(times)}
    noisy = {name: values + 0.05 * generator.standard_normal(25) for name, values in data.items()}
    model = lk.LODEGP(lk.System("x'' + 4*x = u"), prior="channels", random_state=0).fit(times, noisy)
    found = [value for name, value in model.hyperparameters_.items() if name.startswith("amplitude")]
    assert max(found) < 1e4


def test_the_dense_engine_says_what_rounding_and_jitter_do_to_the_evidence() -> None:
    """The spectral engine keeps its digits here: its noise is not added to a covariance, but divided by."""
    dense, spectral, hyper = both_engines("bipendulum")
    added = []
    for power in (0, -2, -4, -6, -7):
        moved = replace(hyper, noise_std=hyper.noise_std * 10.0**power)
        value, error = dense.value_with_error(moved)
        posterior = dense.posterior(moved)
        assert abs(value - spectral.value(moved)) < 3.0 * error + 1e-8 * abs(value)
        added.append(posterior.factor.jitter)
    assert added[0] == 0 < added[-1]


def test_one_observable_alone_gets_jitter_as_several_do() -> None:
    """A second try begins with the covariance again, not with what the first one left of it."""
    times = np.linspace(0.0, 1.0, 12)
    measurements = Measurements([TimeSeries("x", times, np.sin(3 * times), np.full(12, 1e-8))])
    prior = prior_of(lk.System("x' + x = u"), measurements, channels=True)
    dense = DenseEngine(DenseData.from_series(prior, measurements.series))
    none, two = np.zeros(0), np.ones(2)
    hyper = Hyperparameters(none, 1.5 * two, two, np.ones(len(prior.groups)), none)
    found = dense.posterior(hyper)
    expected = SpectralEngine(prior, measurements, 1e-10).value(hyper)
    assert found.factor.jitter > 0
    assert abs(found.value - expected) < 3.0 * found.error


def test_the_same_time_over_and_over_is_answered_as_once() -> None:
    dense, _, hyper = both_engines("heating")
    posterior, observables = dense.posterior(hyper), dense.prior.observables
    once, often = (posterior.variance(observables, np.full(count, 2.0)) for count in (1, 60))
    np.testing.assert_allclose(often, np.tile(once, (60, 1)), rtol=1e-9)
