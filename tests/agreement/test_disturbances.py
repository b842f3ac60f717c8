"""What the Markov engine makes of disturbances is what a joint normal distribution says, written down by hand.

Driven systems are not reversible: for t > s, the covariance of x(t) and x(s) is e^(F(t-s)) Q(s), not symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.prior.observables import ObservableCompiler, Observables
from lodekit.prior.prior import Hyperparameters, Prior
from tests.agreement.kalman import Driven
from tests.inference.fitted import gradient_vector, shifted
from tests.inference.textbook import prior_covariance, prior_mean

Array = NDArray[np.float64]
Plant = Callable[[Array], tuple[Array, Array, Array]]
#: Weights of a central difference of sixth order.
DIFFERENCE = {1: 0.75, 2: -0.15, 3: 1.0 / 60.0}
STEP = 4e-3
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class Example:
    """A system with a disturbance w, and the same by hand: x' = F x + G w, and the channels H x, in this order."""

    equations: str
    channels: tuple[str, ...]
    theta: tuple[float, ...]
    plant: Plant
    measured: tuple[str, ...] = ("x1", "x2")


def lags(theta: Array) -> tuple[Array, Array, Array]:
    a, b = theta
    return np.array([[-a, 0.0], [1.0, -b]]), np.array([[1.0], [0.0]]), np.eye(2)


def oscillator(theta: Array) -> tuple[Array, Array, Array]:
    c, k = theta
    # The third state integrates the first.
    F = np.array([[0.0, 1.0, 0.0], [-k, -c, 0.0], [1.0, 0.0, 0.0]])
    return F, np.array([[0.0], [1.0], [0.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def double(theta: Array) -> tuple[Array, Array, Array]:
    (a,) = theta
    return np.array([[0.0, 1.0], [-a * a, -2.0 * a]]), np.array([[0.0], [a * a]]), np.array([[1.0, 0.0], [0.0, 1.0]])


def growing(theta: Array) -> tuple[Array, Array, Array]:
    a, b = theta
    return np.array([[a, 0.0], [1.0, 0.0]]), np.array([[b], [0.3]]), np.eye(2)


EXAMPLES = {
    "two lags": Example("x1' = -a*x1 + w; x2' = -b*x2 + x1", ("x1", "x2"), (0.9, 2.1), lags),
    "hidden": Example("x1' = -a*x1 + w; x2' = -b*x2 + x1", ("x1", "x2"), (0.9, 2.1), lags, ("x2",)),
    "oscillator": Example("x1'' + c*x1' + k*x1 = w; x2' = x1", ("x1", "x2"), (0.4, 9.0), oscillator),
    "double root": Example("x1' = x2; x2' = -2*a*x2 - a^2*x1 + a^2*w", ("x1", "x2"), (1.3,), double),
    "growing": Example("x1' = a*x1 + b*w; x2' = x1 + 0.3*w", ("x1", "x2"), (0.8, 1.7), growing),
}


@dataclass(frozen=True)
class Witness:
    """A joint normal distribution of all measurements, in the user's units of time."""

    example: Example
    prior: Prior
    measurements: Measurements
    kind: str

    def states(self, hyper: Hyperparameters) -> tuple[Array, Array, Array, Array]:
        """F, density, rows of x1, x2, w (zero for white noise) and the covariance at the start."""
        F, G, H = self.example.plant(hyper.theta)
        s, d = len(F), float(hyper.disturbance_amplitudes[0])
        if self.kind == "white":
            return F, d**2 * G @ G.T, np.concatenate([H, np.zeros((1, s))]), np.zeros((s, s))
        ell = float(hyper.disturbance_lengthscales[0]) * self.prior.units.time_scale
        if self.kind == "matern-1/2":
            own, density, start = np.array([[-1.0 / ell]]), np.array([[2.0 * d**2 / ell]]), np.array([[d**2]])
        else:
            k = np.sqrt(3.0) / ell
            own = np.array([[0.0, 1.0], [-(k**2), -2.0 * k]])
            density, start = np.diag([0.0, 4.0 * k**3 * d**2]), np.diag([d**2, k**2 * d**2])
        m = len(own)
        whole, noise, first = np.zeros((s + m, s + m)), np.zeros((s + m, s + m)), np.zeros((s + m, s + m))
        whole[:m, :m], whole[m:, m:], whole[m:, :1] = own, F, G
        noise[:m, :m], first[:m, :m] = density, start
        rows = np.zeros((3, s + m))
        rows[:2, m:], rows[2, 0] = H, 1.0
        return whole, noise, rows, first

    def covariance(self, hyper: Hyperparameters, times: Array, others: Array) -> Array:
        """Of x1, x2 and w at times and at others, shape (3, n, 3, m), in the user's units."""
        F, B, rows, first = self.states(hyper)
        start = self.prior.units.start

        every = np.unique(np.concatenate([times, others]))
        parts = expm(F * (0.5 * (every - start)[:, None] * (1.0 + NODES))[..., None, None])
        weights = 0.5 * (every - start)[:, None] * WEIGHTS
        moved = expm(F * (every - start)[:, None, None])
        known = np.einsum("tn,tnij,jk,tnlk->til", weights, parts, B, parts)
        known += moved @ first @ moved.swapaxes(-1, -2)
        apart = times[:, None] - others
        steps = expm(F * np.abs(apart)[..., None, None])
        later = steps @ known[np.searchsorted(every, others)]
        earlier = known[np.searchsorted(every, times)][:, None] @ steps.swapaxes(-1, -2)
        both = np.where((apart >= 0.0)[..., None, None], later, earlier)
        return np.asarray(np.einsum("ai,tsij,bj->atbs", rows, both, rows))

    def joint(self, hyper: Hyperparameters, times: Array, others: Array, first: Observables, names: list[str]) -> Array:
        """The prior covariance of what is asked for with what was measured, modes and free functions added."""
        own = self.prior.observables
        rest = prior_covariance(self.prior, hyper, first, times, own, others)
        every = self.covariance(hyper, times, others)
        which = [("x1", "x2", "w").index(name) for name in names]
        measured = [("x1", "x2", "w").index(name) for name in self.measurements.names]
        driven = every[which][:, :, measured] / first.units.scales[:, None, None, None]
        driven = driven / own.units.scales[None, None, :, None]
        return rest + driven.reshape(rest.shape)

    def normal(self, hyper: Hyperparameters) -> tuple[Array, Array, NDArray[np.intp], Array]:
        """Covariance of the measurements, their rest, which they are, and all times."""
        names, series = list(self.measurements.names), self.measurements.series
        times = np.unique(np.concatenate([item.times for item in series]))
        places = [np.searchsorted(times, item.times) for item in series]
        chosen = np.concatenate([o * len(times) + index for o, index in enumerate(places)])
        K = self.joint(hyper, times, times, self.prior.observables, names)[np.ix_(chosen, chosen)]
        levels = [
            np.where(item.has_unknown_noise, hyper.noise_std[g], item.std) / scale
            for item, g, scale in zip(series, self.prior.noise.level_indices, self.prior.units.scales, strict=True)
        ]
        K += np.diag(np.concatenate(levels) ** 2)
        values = np.concatenate([v.values / s for v, s in zip(series, self.prior.units.scales, strict=True)])
        return K, values - prior_mean(self.prior.observables, hyper, times).T.ravel()[chosen], chosen, times

    def value(self, hyper: Hyperparameters) -> float:
        K, rest, _, _ = self.normal(hyper)
        log_determinant = np.linalg.slogdet(K)[1]
        scaled = -0.5 * (rest @ np.linalg.solve(K, rest) + log_determinant + len(K) * np.log(2.0 * np.pi))
        return float(scaled + self.prior.units.log_jacobian([len(item.times) for item in self.measurements.series]))

    def slope(self, hyper: Hyperparameters, way: Array) -> float:
        """The derivative of the value along a direction."""
        found = 0.0
        for k, weight in DIFFERENCE.items():
            ends = [self.value(moved(hyper, sign * k * STEP * way)) for sign in (1.0, -1.0)]
            found += weight * (ends[0] - ends[1]) / STEP
        return found

    def posterior(self, hyper: Hyperparameters, asked: Observables, names: list[str], at: Array) -> tuple[Array, Array]:
        """Mean and covariance of what is asked for, in its own units."""
        K, rest, chosen, times = self.normal(hyper)
        cross = self.joint(hyper, at, times, asked, names)[:, chosen]
        which = [("x1", "x2", "w").index(name) for name in names]
        own = prior_covariance(self.prior, hyper, asked, at, asked, at)
        own += self.covariance(hyper, at, at)[which][:, :, which].reshape(own.shape)
        shape = (len(names), len(at), len(names), len(at))
        mean = (cross @ np.linalg.solve(K, rest)).reshape(len(names), len(at)).T + prior_mean(asked, hyper, at)
        covariance = own - cross @ np.linalg.solve(K, cross.T)
        return mean, covariance.reshape(shape).transpose(1, 0, 3, 2)


def moved(hyper: Hyperparameters, step: Array) -> Hyperparameters:
    """All numbers moved at once, each as `shifted` does."""
    for index, own in enumerate(step.tolist()):
        hyper = shifted(hyper, index, own)
    return hyper


def measure(example: Example, *, regular: bool = False, count: int = 8) -> Measurements:
    """Irregular times, two rates, missing values: the second channel is rarer than the first."""
    generator = np.random.default_rng(3)
    times = np.arange(count) * 0.2 if regular else np.sort(generator.uniform(0.0, 3.0, count))
    data = Observations()
    for number, name in enumerate(example.measured):
        own = times if regular or not number else np.append(times[2::3], 1.234)
        data = data.add(own, name, generator.standard_normal(len(own)))
    return Measurements.from_observations(data)


def case(
    example: Example, kind: str, measurements: Measurements, *, noise: float = 0.1, length: int | None = None
) -> tuple[Witness, KalmanEngine, Hyperparameters]:
    names = sorted({"a", "b", "c", "k"} & set(example.equations))
    system = lk.System(example.equations, parameters=names)
    setup = build_setup(system, FitSettings(disturbances={"w": kind}), measurements)
    prior = setup.prior
    modes = np.linspace(0.7, 1.3, len(prior.groups))
    none = np.zeros(0)
    lengths = none if kind == "white" else np.array([0.23])
    levels = noise * prior.noise.level_scales[: prior.noise.n_levels]
    hyper = Hyperparameters(np.array(example.theta), none, none, modes, levels, lengths, np.array([1.4]))
    data = replace(KalmanData.from_series(prior, setup.measurements.series), block_length=length)
    return Witness(example, prior, setup.measurements, kind), KalmanEngine(data), hyper


@pytest.mark.parametrize("kind", ["white", "matern-1/2", "matern-3/2"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_evidence_gradient_and_posterior_are_those_of_a_joint_normal(name: str, kind: str) -> None:
    """Tolerance: rounding times the condition of the covariance, below 1e5; differences of sixth order."""
    example = EXAMPLES[name]
    witness, engine, hyper = case(example, kind, measure(example), length=5)
    found, expected = engine.evaluate(hyper), witness.value(hyper)
    assert found.value == pytest.approx(expected, rel=1e-9)
    # Along a direction that holds all numbers in amounts of their own: errors of one show, as those of several do.
    slopes = gradient_vector(found)
    way = np.random.default_rng(4).uniform(0.4, 1.0, len(slopes)) * (-1.0) ** np.arange(len(slopes))
    assert slopes @ way == pytest.approx(witness.slope(hyper, way), rel=0, abs=1e-9 * np.abs(slopes).max())
    asked = ["x1", "x2"] if kind == "white" else ["x1", "x2", "w"]
    system = lk.System(example.equations, parameters=list(engine.prior.observables.compiled.parameters))
    observables = ObservableCompiler(system, {}, {"w": kind}).compile_unscaled(asked, engine.prior.units)
    at = np.array([witness.prior.units.start, 0.61, 0.6100001, 1.9, 3.3])
    mean, covariance = witness.posterior(hyper, observables, asked, at)
    posterior = engine.posterior(hyper)
    np.testing.assert_allclose(posterior.mean(observables, at), mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    size = np.abs(covariance).max()
    np.testing.assert_allclose(posterior.covariance(observables, at), covariance, rtol=0, atol=1e-9 * size)
    variance = np.einsum("ioio->io", covariance)
    np.testing.assert_allclose(posterior.variance(observables, at), variance, rtol=0, atol=1e-9 * size)


@pytest.mark.parametrize("kind", ["white", "matern-3/2"])
def test_neither_blocks_nor_the_rest_of_the_clock_change_anything(kind: str) -> None:
    """Regular blocks that share a factorization, and others; and a record whose time zero is before its first row."""
    example = EXAMPLES["oscillator"]
    measurements = measure(example, regular=True, count=40)
    first = case(example, kind, measurements, length=6)[1]
    witness, second, hyper = case(example, kind, measurements)
    one, other = first.evaluate(hyper), second.evaluate(hyper)
    assert other.value == pytest.approx(one.value, rel=1e-10)
    slopes = gradient_vector(one)
    np.testing.assert_allclose(gradient_vector(other), slopes, rtol=0, atol=1e-10 * np.abs(slopes).max())
    later = replace(witness.prior, observables=witness.prior.observables.with_time_origin(-0.3, {}))
    moved = replace(witness, prior=later)
    engine = KalmanEngine(KalmanData.from_series(later, witness.measurements.series))
    assert engine.value(hyper) == pytest.approx(moved.value(hyper), rel=1e-9)
    assert engine.value(hyper) != pytest.approx(one.value, rel=1e-6)


def test_two_disturbances_add() -> None:
    """White noise and a coloured disturbance at once, against the sum of their covariances."""
    system = lk.System("x1' = -a*x1 + w; x2' = -b*x2 + x1 + v", parameters=["a", "b"])
    example, none = EXAMPLES["two lags"], np.zeros(0)
    setup = build_setup(system, FitSettings(disturbances={"w": "white", "v": "matern-1/2"}), measure(example))
    prior = setup.prior
    levels = 0.1 * prior.noise.level_scales[: prior.noise.n_levels]
    modes = np.array([0.7, 1.3])
    theta, both = np.array([0.9, 2.1]), np.array([1.4, 0.6])
    hyper = Hyperparameters(theta, none, none, modes, levels, np.array([0.23]), both)
    second = replace(example, plant=lambda theta: (lags(theta)[0], np.array([[0.0], [1.0]]), np.eye(2)))
    first = Witness(example, prior, setup.measurements, "white")
    other = Witness(second, prior, setup.measurements, "matern-1/2")
    (K, rest, chosen, times), scales = first.normal(replace(hyper, disturbance_amplitudes=both[:1])), prior.units.scales
    more = other.covariance(replace(hyper, disturbance_amplitudes=both[1:]), times, times)[:2, :, :2]
    more = (more / scales[:, None, None, None] / scales[:, None]).reshape(2 * len(times), -1)[np.ix_(chosen, chosen)]
    K = K + more
    value = -0.5 * (rest @ np.linalg.solve(K, rest) + np.linalg.slogdet(K)[1] + len(K) * np.log(2.0 * np.pi))
    value += prior.units.log_jacobian([len(item.times) for item in setup.measurements.series])
    engine = KalmanEngine(KalmanData.from_series(prior, setup.measurements.series))
    found = engine.evaluate(hyper)
    assert found.value == pytest.approx(value, rel=1e-9)
    for k in range(sum(map(len, hyper.arrays))):
        ends = [engine.value(shifted(hyper, k, sign * 1e-5)) for sign in (1.0, -1.0)]
        assert gradient_vector(found)[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("noise", [0.1, 1e-6])
def test_a_textbook_filter_in_fifty_digits_says_the_same(noise: float) -> None:
    """White noise drives the first of two lags; modes are states without noise.

    Tolerance: rounding times the condition inside blocks, which are cut shorter where noise is small.
    """
    times, asked = [0.0, 0.07, 0.2, 0.21, 0.5, 0.77, 1.0], [0.33, 0.9]
    x = np.random.default_rng(2).standard_normal((2, 7))
    data = Observations().add(times, "x1", x[0], noise).add(times[1::2], "x2", x[1, 1::2], noise)
    system = lk.System("x1' = -0.75*x1 + w; x2' = -2*x2 + x1")
    setup = build_setup(system, FitSettings(disturbances={"w": "white"}), Measurements.from_observations(data))
    prior, none = setup.prior, np.zeros(0)
    hyper = Hyperparameters(none, none, none, np.array([0.7, 1.3]), none, none, np.array([1.4]))
    basis, _ = prior.observables.mode_basis(
        prior.observables.evaluate(none), prior.groups, np.zeros(1), with_jacobian=False
    )
    readings = np.concatenate(basis) * prior.units.scales[:, None]
    every = sorted([*times, *asked])
    seen = [
        [(o, x[o, times.index(t)], noise) for o in (0, 1) if t in times and (o == 0 or times.index(t) % 2)]
        for t in every
    ]
    with mpmath.workdps(50):
        F, B, start = mpmath.zeros(4), mpmath.zeros(4), mpmath.zeros(4)
        F[0, 0], F[1, 0], F[1, 1], B[0, 0] = mpmath.mpf("-0.75"), 1, -2, mpmath.mpf(1.4) ** 2
        for k, group in enumerate(prior.groups):
            assert group.root is not None
            F[2 + k, 2 + k], start[2 + k, 2 + k] = (
                mpmath.mpf(group.root.real),
                mpmath.mpf(hyper.mode_amplitudes[k]) ** 2,
            )
        rows = [mpmath.matrix([[1 - o, o, *map(mpmath.mpf, readings[o].tolist())]]) for o in (0, 1)]
        # A smoother needs covariances that can be inverted: at rest nothing is known worse than by this.
        start[0, 0] = start[1, 1] = mpmath.mpf(10) ** -40
        filtered = Driven(F, B, start).filter(every, rows, seen)
        value, (mean, deviations) = filtered.value, filtered.smooth()
    posterior = KalmanEngine(KalmanData.from_series(prior, setup.measurements.series)).posterior(hyper)
    assert posterior.value == pytest.approx(float(value), rel=1e-10)
    observables = setup.observable_compiler.compile_unscaled(["x1", "x2"], prior.units)
    found = posterior.mean(observables, np.array(every))
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    found = posterior.variance(observables, np.array(every))
    np.testing.assert_allclose(np.sqrt(found), deviations, rtol=1e-9)


def test_modes_need_no_states_of_their_own_so_the_filter_becomes_steady() -> None:
    example = Example("x'' + c*x' + k*x = w", ("x",), (0.5, 2.0), oscillator, ("x",))
    t = np.linspace(0.0, 200.0, 2001)
    _, engine, hyper = case(example, "white", Measurements.from_observations(Observations().add(t, "x", np.sin(t))))
    found = engine.posterior(hyper).solution.filter
    assert found.model.size == 2
    roots = found.covariances.P_root_predicted
    assert len(np.unique(roots.reshape(len(roots), -1), axis=0)) < 0.5 * len(roots)
