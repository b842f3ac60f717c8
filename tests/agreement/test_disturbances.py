"""What the Markov engine makes of disturbances is what a joint normal distribution says, written down by hand.

Driven systems are not reversible: for t > s, the covariance of x(t) and x(s) is e^(F(t-s)) Q(s), which is not symmetric.
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
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.inference.markov.engine import MarkovEngine
from lodekit.inference.markov.layout import MarkovData
from lodekit.preparing import prepare
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior
from lodekit.settings import Arguments
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
        s, d = len(F), float(hyper.disturbance_deviations[0])
        if self.kind == "white":
            return F, d**2 * G @ G.T, np.concatenate([H, np.zeros((1, s))]), np.zeros((s, s))
        ell = float(hyper.disturbance_lengthscales[0]) * self.prior.units.span
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
        found = np.einsum("ai,tsij,bj->atbs", rows, both, rows)
        return found

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
            np.where(item.learned, hyper.noise[g], item.std) / scale
            for item, g, scale in zip(series, self.prior.noise.groups, self.prior.units.scales, strict=True)
        ]
        K += np.diag(np.concatenate(levels) ** 2)
        values = np.concatenate([v.values / s for v, s in zip(series, self.prior.units.scales, strict=True)])
        return K, values - prior_mean(self.prior.observables, hyper, times).T.ravel()[chosen], chosen, times

    def value(self, hyper: Hyperparameters) -> float:
        K, rest, _, _ = self.normal(hyper)
        log_determinant = np.linalg.slogdet(K)[1]
        scaled = -0.5 * (rest @ np.linalg.solve(K, rest) + log_determinant + len(K) * np.log(2.0 * np.pi))
        return float(scaled + self.prior.units.log_jacobian([len(item.times) for item in self.measurements.series]))

    def gradient(self, hyper: Hyperparameters) -> Array:
        count = sum(map(len, hyper.parts))
        found = np.zeros(count)
        for index in range(count):
            for k, weight in DIFFERENCE.items():
                ends = [self.value(shifted(hyper, index, sign * k * STEP)) for sign in (1.0, -1.0)]
                found[index] += weight * (ends[0] - ends[1]) / STEP
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


def measure(example: Example, *, regular: bool = False, count: int = 8) -> Measurements:
    """Irregular times, two rates, missing values: the second channel is rarer than the first."""
    generator = np.random.default_rng(3)
    times = np.arange(count) * 0.2 if regular else np.sort(generator.uniform(0.0, 3.0, count))
    data = Observations()
    for number, name in enumerate(example.measured):
        own = times if regular or not number else np.append(times[2::3], 1.234)
        data = data.add(own, name, generator.standard_normal(len(own)))
    return Measurements.of(data)


def case(
    example: Example, kind: str, measurements: Measurements, *, noise: float = 0.1, length: int | None = None
) -> tuple[Witness, MarkovEngine, Hyperparameters]:
    names = sorted({"a", "b", "c", "k"} & set(example.equations))
    system = lk.System(example.equations, parameters=names)
    setup = prepare(system, Arguments(disturbances={"w": kind}), measurements)
    prior = setup.prior
    modes = np.linspace(0.7, 1.3, len(prior.groups))
    none = np.zeros(0)
    lengths = none if kind == "white" else np.array([0.23])
    levels = noise * prior.noise.units[: prior.noise.count]
    hyper = Hyperparameters(np.array(example.theta), none, none, modes, levels, lengths, np.array([1.4]))
    data = replace(MarkovData.of(prior, setup.measurements.series), length=length)
    return Witness(example, prior, setup.measurements, kind), MarkovEngine(data), hyper


@pytest.mark.parametrize("kind", ["white", "matern-1/2", "matern-3/2"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_evidence_gradient_and_posterior_are_those_of_a_joint_normal(name: str, kind: str) -> None:
    """Tolerance: rounding times the condition of the covariance, below 1e5; differences of sixth order."""
    example = EXAMPLES[name]
    witness, engine, hyper = case(example, kind, measure(example), length=5)
    found, expected = engine.evaluate(hyper), witness.value(hyper)
    assert found.value == pytest.approx(expected, rel=1e-9)
    slopes = witness.gradient(hyper)
    np.testing.assert_allclose(gradient_vector(found), slopes, rtol=0, atol=1e-9 * np.abs(slopes).max())
    asked = ["x1", "x2"] if kind == "white" else ["x1", "x2", "w"]
    reader_names = dict.fromkeys(asked)
    system = lk.System(example.equations, parameters=list(engine.prior.observables.compiled.parameters))
    setup = prepare(system, Arguments(disturbances={"w": kind}), witness.measurements)
    observables = setup.reader.compile_plain(list(reader_names), engine.prior.units)
    at = np.array([witness.prior.units.start, 0.61, 0.6100001, 1.9, 3.3])
    mean, covariance = witness.posterior(hyper, observables, asked, at)
    posterior = engine.posterior(hyper)
    np.testing.assert_allclose(posterior.mean(observables, at), mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    size = np.abs(covariance).max()
    np.testing.assert_allclose(posterior.covariance(observables, at), covariance, rtol=0, atol=1e-9 * size)
    variance = np.einsum("ioio->io", covariance)
    np.testing.assert_allclose(posterior.variance(observables, at), variance, rtol=0, atol=1e-9 * size)
