"""Interval means and totals: all engines say what quadrature over values at single times says, with its gradient."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.noise import MeasurementNoise
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.spectral.engine import SpectralEngine, SpectralEvaluation
from lodekit.prior.prior import Hyperparameters
from lodekit.support.interval_means import parse_interval
from tests.inference.fitted import gradient_vector, shifted
from tests.inference.textbook import prior_covariance, prior_mean

Array = NDArray[np.float64]
TIMES = np.linspace(0.3, 11.0, 7)
ASKED = ("mean({0}, 0.7)", "{0}", "total({0}', 2.5)")


@dataclass(frozen=True)
class Case:
    """A system, what is measured, and values of its parameters in the order of their names."""

    equations: str
    measured: tuple[str, ...]
    values: dict[str, float]
    engines: tuple[str, ...] = ("dense", "spectral")
    inputs: dict[str, str] = field(default_factory=dict)
    channel: str = "x"
    lengthscale: float = 0.3


CASES = {
    "free functions": Case("x'' + c*x' + k*x = u", ("mean(x, 0.7)", "total(u, 2.5)", "x"), {"c": 0.3, "k": 4.0}),
    "windows long against a lengthscale": Case(
        "x' = v", ("mean(x, 9)", "mean(v, 6.5)", "mean(v, 0.01)"), {}, lengthscale=0.1
    ),
    "parameters inside the modes": Case(
        "x'' + c*x' + k*x = 0; y' = x - u", ("mean(x, 1.5)", "mean(y', 0.2)"), {"c": 0.3, "k": 4.0}
    ),
    "modes alone, a total among them": Case(
        "x'' + c*x' + k*x = 0",
        ("mean(x, 1.5)", "total(x', 2)", "x"),
        {"c": 0.3, "k": 4.0},
        ("dense", "modal", "spectral"),
    ),
    "repeated roots without parameters": Case(
        "x^(4) + 2*x'' + x = 0; y'' = u + x", ("mean(y, 0.8)", "mean(x', 2)", "u"), {}, channel="y"
    ),
    "a singular matrix, and a mode that grows": Case(
        "x'' = a*x'; y' = 0.3*y + x", ("mean(x, 0.8)", "mean(y, 1.1)"), {"a": -0.4}, ("dense", "modal")
    ),
    "known functions of time": Case(
        "x' + a*x = t*sin(3*t) + t^2 + b*exp(-a*t/2); y' = x - y + u",
        ("mean(x, 0.8)", "total(y, 1.1)", "mean(y - sin(t), 2)"),
        {"a": 0.7, "b": 1.2},
    ),
    "held and linear inputs, a dead time": Case(
        "x' = -a*x + b*delay(u, T); z' = -c*(z - x) + w; y = z + e*w",
        ("mean(y, 0.8)", "total(x, 1.1)", "mean(w', 1.3)"),
        {"a": 0.7, "b": 1.3, "T": 0.4137, "c": 0.4, "e": 0.5},
        ("dense", "modal"),
        {"u": "hold", "w": "linear"},
    ),
    "a free function beside an input": Case(
        "x'' + c*x' + k*x = b*u + f; y = x + f",
        ("mean(x, 0.8)", "y"),
        {"c": 0.3, "k": 4.0, "b": 2.0},
        ("dense", "spectral"),
        {"u": "hold"},
    ),
}


def make(case: Case, engine: str, *, latent: str = "se", prior: str = "latent") -> tuple[FitSetup, Hyperparameters]:
    """Measurements that are noise, at irregular times, of which averages have fewer."""
    generator = np.random.default_rng(3)
    data = Observations()
    for name in case.measured:
        times = np.sort(generator.uniform(0.0, 10.0, 9 if name.isalpha() else 7))
        data = data.add(times, name, generator.normal(size=len(times)))
    for name in case.inputs:
        data = data.add(np.sort(generator.uniform(-1.0, 9.0, 6)), name, generator.normal(size=6))
    system = lk.System(case.equations, parameters=list(case.values))
    arguments = FitSettings(inputs=case.inputs, engine=engine, latent=latent, prior=prior)
    setup = build_setup(system, arguments, Measurements.from_observations(data))
    theta = np.array([case.values[name] for name in setup.layout.names])
    sizes = setup.prior.n_processes, len(setup.prior.groups), setup.prior.noise.n_levels
    lengthscales = np.full(sizes[0], case.lengthscale)
    hyper = Hyperparameters(
        theta, lengthscales, np.full(sizes[0], 0.7), np.linspace(0.5, 1.5, sizes[1]), np.full(sizes[2], 0.3)
    )
    return setup, hyper


def rule(setup: FitSetup, hyper: Hyperparameters, name: str, times: Array) -> tuple[str, Array, Array]:
    """Return what is averaged, nodes, shape (m,), and weights, (n, m): broken where an input jumps or has a kink."""
    found = parse_interval(name)
    if found is None:
        return name, times, np.eye(len(times))
    expression, window, is_total = found
    length = float(window)
    driven, nodes, weights = setup.prior.observables.input_response, [], []
    breaks = np.zeros(0) if driven is None else driven.breakpoints(hyper.theta)
    x, w = np.polynomial.legendre.leggauss(24 if driven is None else 12)
    for number, t in enumerate(times):
        inside = breaks[(breaks > t - length) & (breaks < t)]
        edges = np.sort([t - length, *inside, t])
        low, width = edges[:-1, None], np.diff(edges)[:, None]
        nodes.append((low + width * 0.5 * (1.0 + x)).ravel())
        own = np.zeros((len(times), nodes[-1].size))
        own[number] = (0.5 * width * w).ravel() / (1.0 if is_total else length)
        weights.append(own)
    return expression, np.concatenate(nodes), np.concatenate(weights, axis=1)


def joint(setup: FitSetup, hyper: Hyperparameters, asked: list[tuple[str, Array]]) -> tuple[Array, Array]:
    """Return the prior mean and covariance of averages in the user's units, from values at single times."""
    parts = []
    for name, times in asked:
        text, nodes, weights = rule(setup, hyper, name, times)
        parts.append((setup.observable_compiler.compile_unscaled([text], setup.prior.units), nodes, weights))
    means = [weights @ prior_mean(own, hyper, nodes)[:, 0] for own, nodes, weights in parts]
    rows = [
        [a @ prior_covariance(setup.prior, hyper, first, s, second, t) @ b.T for second, t, b in parts]
        for first, s, a in parts
    ]
    return np.concatenate(means), np.block(rows)


def expected(setup: FitSetup, hyper: Hyperparameters, asked: list[tuple[str, Array]]) -> tuple[float, Array, Array]:
    """Return the log evidence, and the posterior mean and covariance of what is asked for, in the user's units."""
    series = list(setup.measurements.series)
    mean, K = joint(setup, hyper, [*((item.observable, item.times) for item in series), *asked])
    count = sum(len(item.times) for item in series)
    scales = np.repeat(setup.prior.units.scales, [len(item.times) for item in series])
    noise = MeasurementNoise.from_series(setup.prior.noise, series).variance(hyper.noise_std) * scales**2
    data, rest = K[:count, :count] + np.diag(noise), np.concatenate([i.values for i in series]) - mean[:count]
    value = -0.5 * (rest @ np.linalg.solve(data, rest) + np.linalg.slogdet(data)[1] + count * np.log(2 * np.pi))
    gain = np.linalg.solve(data, K[:count, count:]).T
    return float(value), mean[count:] + gain @ rest, K[count:, count:] - gain @ K[:count, count:]


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n, c in CASES.items() for e in c.engines])
def test_evidence_and_posterior_are_those_of_quadrature(name: str, engine: str) -> None:
    """Tolerance: the covariance, of noise of 30 %, is well conditioned; the engines are exact to 1e-10.

    The gradient is that of differences.
    """
    case = CASES[name]
    setup, hyper = make(case, engine)
    names = [text.format(case.channel) for text in ASKED]
    value, mean, covariance = expected(setup, hyper, [(text, TIMES) for text in names])
    assert setup.engine.value(hyper) == pytest.approx(value, rel=1e-9)
    observables = setup.observable_compiler.compile_unscaled(names, setup.prior.units)
    posterior = setup.engine.posterior(hyper)
    found = posterior.mean(observables, TIMES).T.ravel()
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-8 * np.abs(mean).max())
    own = posterior.covariance(observables, TIMES).transpose(1, 0, 3, 2).reshape(covariance.shape)
    np.testing.assert_allclose(own, covariance, rtol=0, atol=1e-8 * np.abs(covariance).max())
    variance = posterior.variance(observables, TIMES).T.ravel()
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=0, atol=1e-8 * np.abs(covariance).max())
    check_gradient(setup, hyper)


def check_gradient(setup: FitSetup, hyper: Hyperparameters) -> None:
    """Tolerance: central differences with steps of 1e-5 err by about 1e-6 of the largest entry."""
    found = gradient_vector(setup.engine.evaluate(hyper))
    for k in range(len(found)):
        ends = [setup.engine.value(shifted(hyper, k, sign * 1e-5)) for sign in (1, -1)]
        assert found[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("lengthscale", [0.3, 0.04])
def test_rough_covariances_have_the_gradient_of_differences(lengthscale: float) -> None:
    """Windows that are short, and long, against the lengthscale."""
    case = CASES["free functions"]
    setup, hyper = make(case, "dense", latent="matern-7/2")
    check_gradient(setup, Hyperparameters(hyper.theta, np.full(1, lengthscale), *hyper.arrays[2:]))


def test_the_channel_prior_averages_too() -> None:
    """Two ways through frequency agree; tolerance: panels and waves are exact to 1e-10 of a variance."""
    case = CASES["free functions"]
    found = []
    for engine in ("dense", "spectral"):
        setup, hyper = make(case, engine, prior="channels")
        value = setup.engine.value(hyper)
        posterior = setup.engine.posterior(hyper)
        names = [text.format("x") for text in ASKED]
        observables = setup.observable_compiler.compile_unscaled(names, setup.prior.units)
        found.append((value, posterior.mean(observables, TIMES), posterior.variance(observables, TIMES)))
        x = posterior.mean(
            setup.observable_compiler.compile_unscaled(["x"], setup.prior.units), np.concatenate([TIMES, TIMES - 2.5])
        )
        np.testing.assert_allclose(found[-1][1][:, 2], (x[:7] - x[7:])[:, 0], rtol=0, atol=1e-8)
    check_gradient(setup, hyper)
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-7, atol=1e-7)


def test_the_channel_prior_averages_at_narrow_peaks_too() -> None:
    """Without damping few waves stand for many, and averages make of them what the dense engine says."""
    case = Case("x'' + k*x = u", ("mean(x, 0.7)", "total(u, 2.5)", "x"), {"k": 9.0})
    setup, hyper = make(case, "dense", prior="channels")
    # The input hardly reaches the resonance, which x itself could follow: a narrow peak.
    hyper = replace(hyper, lengthscales=np.array([0.06, 0.25]))
    spectral = SpectralEngine(setup.prior, setup.measurements, 1e-10)
    assert SpectralEvaluation(spectral, hyper).choose_resolution()[0].gauss_rule is not None
    assert spectral.value(hyper) == pytest.approx(setup.engine.value(hyper), abs=1e-7)


@pytest.mark.parametrize(("engine", "latent"), [("dense", "se"), ("spectral", "se"), ("dense", "matern-7/2")])
def test_samples_average_themselves(engine: str, latent: str) -> None:
    """The mean of a derivative is a difference quotient, for every function that is drawn.

    Tolerance: draws from a matrix are as exact as the root of the rounding of its eigenvalues.
    """
    setup, hyper = make(CASES["free functions"], engine, latent=latent)
    posterior = setup.engine.posterior(hyper)
    observables = setup.observable_compiler.compile_unscaled(["x", "mean(x', 2.5)"], setup.prior.units)
    times = np.concatenate([TIMES, TIMES - 2.5])
    drawn = posterior.sample(observables, times, 3, np.random.default_rng(0))
    slope = (drawn[:, :7, 0] - drawn[:, 7:, 0]) / 2.5
    np.testing.assert_allclose(drawn[:, :7, 1], slope, rtol=0, atol=1e-5 * np.abs(slope).max())


@pytest.mark.parametrize("prior", ["latent", "channels"])
def test_an_average_far_from_the_data_knows_them_where_its_interval_does(prior: str) -> None:
    """The stamp is many lengthscales away, and the interval reaches back to the data, or beyond them."""
    times = np.array([-9.0, 14.0, 24.0, 60.0])
    found = []
    for engine in ("dense", "spectral"):
        setup, hyper = make(replace(CASES["free functions"], lengthscale=0.08), engine, prior=prior)
        observables = setup.observable_compiler.compile_unscaled(["mean(x, 20)", "x", "mean(u, 3)"], setup.prior.units)
        posterior = setup.engine.posterior(hyper)
        covariance = posterior.covariance(observables, times)
        found.append((posterior.mean(observables, times), posterior.variance(observables, times), covariance))
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-7 * np.abs(second).max())
    assert abs(found[0][0][2, 0]) > 1e-3 * np.abs(found[0][0]).max()  # the mean over [4, 24] is not its prior


@pytest.mark.parametrize("prior", ["latent", "channels"])
def test_intervals_that_exceed_the_record_by_far(prior: str) -> None:
    """Stamps within one unit of time, intervals of thirty: what was long before the first stamp is known a little."""
    system = lk.System("x' = -x + u")
    t, asked = np.linspace(0.0, 1.0, 5), np.array([-70.0, -25.0, -15.0, 0.5])
    data = Measurements.from_observations(Observations().add(t, "x", np.sin(t)).add(t, "mean(x, 30)", np.cos(t)))
    found = []
    for engine in ("dense", "spectral"):
        setup = build_setup(system, FitSettings(engine=engine, prior=prior), data)
        assert setup.prior.units.start == -30.0
        count, modes = setup.prior.n_processes, np.ones(len(setup.prior.groups))
        hyper = Hyperparameters(np.zeros(0), np.full(count, 0.03), np.full(count, 0.3), modes, np.full(2, 0.1))
        observables = setup.observable_compiler.compile_unscaled(["x", "mean(x, 5)"], setup.prior.units)
        posterior = setup.engine.posterior(hyper)
        answers = posterior.mean(observables, asked), posterior.variance(observables, asked)
        found.append((np.array(setup.engine.value(hyper)), *answers))
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-8 * np.abs(second).max())
    assert abs(found[0][1][2, 0]) > 1e-3
    assert abs(found[0][1][0, 0]) < 1e-9


@pytest.mark.parametrize("engine", ["dense", "modal"])
def test_a_mode_that_dies_within_an_interval_is_in_its_mean(engine: str) -> None:
    """It is gone when the first mean is stamped; and two thousand e-foldings overflow where no mean was measured."""
    system = lk.System("x' = -a*x", parameters=["a"])
    first, later = np.array([0.0, 0.01, 0.05]), np.array([5.0, 5.02, 5.1])
    data = Observations().add(first, "x", np.exp(-20.0 * first)).add(later, "mean(x, 5)", np.full(3, 0.01))
    setup = build_setup(system, FitSettings(engine=engine), Measurements.from_observations(data))
    for a in (20.0, 400.0):
        hyper = Hyperparameters(np.array([a]), np.zeros(0), np.zeros(0), np.ones(1), np.full(2, 0.05))
        basis = [np.exp(-a * first), np.exp(-a * (later - 5.0)) * -np.expm1(-5.0 * a) / (5.0 * a)]
        own = np.concatenate([part / scale for part, scale in zip(basis, setup.prior.units.scales, strict=True)])
        noise = MeasurementNoise.from_series(setup.prior.noise, list(setup.measurements.series)).variance(
            hyper.noise_std
        )
        K = np.outer(own, own) + np.diag(noise)
        y = np.concatenate(
            [i.values / s for i, s in zip(setup.measurements.series, setup.prior.units.scales, strict=True)]
        )
        value = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + 6 * np.log(2 * np.pi))
        assert setup.engine.value(hyper) == pytest.approx(value + setup.prior.units.log_jacobian([3, 3]), rel=1e-9)
        assert np.isfinite(gradient_vector(setup.engine.evaluate(hyper))).all()
