"""An engine straight from the textbook: one covariance matrix and ``numpy.linalg.solve``, gradients by differences.

It is slow and loses digits early, and it knows nothing of the other engines: a witness, and a proof that one more
engine needs one more `EngineFactory` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.noise import MeasurementNoise
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.inference.engine import EngineTask, Evidence, SearchLimits
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_covariance
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from tests.inference.fitted import shifted

Array = NDArray[np.float64]
STEP = 1e-5


def prior_covariance(
    prior: Prior, hyper: Hyperparameters, first: Observables, times1: Array, second: Observables, times2: Array
) -> Array:
    """Return the prior covariance of observables at times, shape (o1 n1, o2 n2)."""
    s1, s2 = first.units.scale_times(times1), second.units.scale_times(times2)
    a, b = first.evaluate(hyper.theta), second.evaluate(hyper.theta)
    total = np.zeros((first.count, len(s1), second.count, len(s2)))
    for k, latent in enumerate(prior.kernels):
        ell, deviation = hyper.lengthscales[k], hyper.amplitudes[k]
        total += free_function_covariance(np, latent, s1, s2, a.free[:, k], b.free[:, k], ell, deviation)
    left, _ = first.mode_basis(a, prior.groups, s1, with_jacobian=False)
    right, _ = second.mode_basis(b, prior.groups, s2, with_jacobian=False)
    variance = prior.mode_variance(hyper.mode_amplitudes)
    total += np.einsum("air,r,bjr->aibj", np.stack(left), variance, np.stack(right))
    return total.reshape(first.count * len(s1), -1)


def prior_mean(observables: Observables, hyper: Hyperparameters, times: Array) -> Array:
    means, _ = observables.means(observables.evaluate(hyper.theta), times)
    return np.stack(means, axis=1)


@dataclass(frozen=True)
class TextbookEngine:
    """All measurements in one normal distribution."""

    prior: Prior
    series: list[TimeSeries]

    @property
    def size(self) -> int:
        return sum(len(item.times) for item in self.series)

    @property
    def search_limits(self) -> SearchLimits:
        return SearchLimits(1e-2)

    @property
    def benefits_from_threads(self) -> bool:
        return False

    @cached_property
    def times(self) -> Array:
        return np.unique(np.concatenate([item.times for item in self.series]))

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        """Which of all observables at all times were measured."""
        places = [np.searchsorted(self.times, item.times) for item in self.series]
        return np.concatenate([o * len(self.times) + index for o, index in enumerate(places)])

    def moments(self, hyper: Hyperparameters) -> tuple[Array, Array]:
        """Return the covariance of the measurements, noise included, and what they have beside their prior mean."""
        own = self.prior.observables
        K = prior_covariance(self.prior, hyper, own, self.times, own, self.times)[np.ix_(self.chosen, self.chosen)]
        K += np.diag(MeasurementNoise.from_series(self.prior.noise, self.series).variance(hyper.noise_std))
        values = np.concatenate([item.values / s for item, s in zip(self.series, own.units.scales, strict=True)])
        return K, values - prior_mean(own, hyper, self.times).T.ravel()[self.chosen]

    def value(self, hyper: Hyperparameters) -> float:
        K, rest = self.moments(hyper)
        sign, log_determinant = np.linalg.slogdet(K)
        if not sign > 0:
            return -np.inf
        scaled = -0.5 * (rest @ np.linalg.solve(K, rest) + log_determinant + len(K) * np.log(2 * np.pi))
        return float(scaled + self.prior.units.log_jacobian([len(item.times) for item in self.series]))

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        slopes, offset = [], 0
        for number, part in enumerate(hyper.arrays):
            own = np.zeros(len(part))
            for k in range(len(part)):
                step = STEP * (max(1.0, abs(part[k])) if number == 0 else 1.0)
                ends = [self.value(shifted(hyper, offset + k, sign * step)) for sign in (1, -1)]
                own[k] = (ends[0] - ends[1]) / (2 * step)
            slopes.append(own)
            offset += len(part)
        return Evidence(self.value(hyper), Hyperparameters(*slopes))

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        return self.value(hyper), 0.0

    def posterior(self, hyper: Hyperparameters) -> TextbookPosterior:
        return TextbookPosterior(self, hyper)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        scales = self.prior.units.scales
        target = np.array([np.mean((item.values / s) ** 2) for item, s in zip(self.series, scales, strict=True)])
        return target, np.ones(sum(group.size for group in self.prior.groups))

    def explain_failure(self, hyper: Hyperparameters) -> str:
        return ""


@dataclass(frozen=True)
class TextbookPosterior:
    """A joint normal distribution, conditioned."""

    engine: TextbookEngine
    hyper: Hyperparameters

    @property
    def value(self) -> float:
        return self.engine.value(self.hyper)

    @property
    def error(self) -> float:
        return 0.0

    @property
    def mean_rounding_error(self) -> float:
        return 0.0

    def warnings(self) -> list[str]:
        return []

    def check_exact_values(self) -> None:
        """Accept."""

    def _gain(self, observables: Observables, times: Array) -> tuple[Array, Array]:
        engine, own = self.engine, self.engine.prior.observables
        K, rest = engine.moments(self.hyper)
        cross = prior_covariance(engine.prior, self.hyper, observables, times, own, engine.times)[:, engine.chosen]
        return np.asarray(np.linalg.solve(K, cross.T).T, dtype=float), rest

    def mean(self, observables: Observables, times: Array) -> Array:
        gain, rest = self._gain(observables, times)
        return (gain @ rest).reshape(observables.count, -1).T + prior_mean(observables, self.hyper, times)

    def variance(self, observables: Observables, times: Array) -> Array:
        return np.asarray(np.einsum("ioio->io", self.covariance(observables, times)))

    def covariance(self, observables: Observables, times: Array) -> Array:
        engine, own = self.engine, self.engine.prior.observables
        gain, _ = self._gain(observables, times)
        prior = prior_covariance(engine.prior, self.hyper, observables, times, observables, times)
        cross = prior_covariance(engine.prior, self.hyper, own, engine.times, observables, times)[engine.chosen]
        shape = (observables.count, len(times), observables.count, len(times))
        return (prior - gain @ cross).reshape(shape).transpose(1, 0, 3, 2)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        mean, cov = self.mean(observables, times), self.covariance(observables, times)
        flat = cov.reshape(mean.size, mean.size)
        return generator.multivariate_normal(mean.ravel(), flat, size, method="eigh").reshape(size, *mean.shape)


@dataclass(frozen=True)
class TextbookFactory:
    """The toy, for those who ask for it."""

    name: str = "textbook"
    uses_device: bool = False
    has_states: bool = False
    approximates_channel_prior: bool = False

    def rejection_reason(self, task: EngineTask) -> str:
        return "a textbook has few pages" if task.size > 100 or task.channel_prior else ""

    def cost(self, task: EngineTask) -> float:
        return np.inf

    def selection_reason(self, task: EngineTask) -> str:
        return "nothing speaks for it"

    def create(self, prior: Prior, measurements: Measurements, task: EngineTask) -> TextbookEngine:
        return TextbookEngine(prior, list(measurements.series))
