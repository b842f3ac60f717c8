"""The spectral engine: exact to a tolerance, at a cost that does not depend on the number of measurements.

Frequencies and nodes follow from the tolerance and the hyperparameters. Gram matrices of the Fourier features over the
data do not depend on hyperparameters and are cached, so that most evaluations of a search only use small matrices. If
the noise is so low that normal equations would lose digits, the regression uses a QR factorization of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from lodekit.data.records import Measurements
from lodekit.data.statistics import CHEBYSHEV_DEGREE
from lodekit.errors import LodekitError
from lodekit.inference.engine import (
    DENSE_CROSSOVER,
    BaseEngine,
    EngineTask,
    Evidence,
    SearchLimits,
    channel_search_limits,
)
from lodekit.inference.spectral.nodes import (
    NodeFactor,
    NodeStatistics,
    chebyshev_factors,
    chebyshev_statistics,
    point_factors,
    point_statistics,
)
from lodekit.inference.spectral.posterior import SpectralPosterior
from lodekit.inference.spectral.regression import (
    GramTerm,
    RegressionSolution,
    RegressionTerm,
    compute_gram_matrices,
    solve_dual,
    solve_normal_equations,
    solve_qr,
)
from lodekit.prior.channel_prior.channel_spectrum import ChannelSpectrum
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.prior.spectra import MAX_FOURIER_WAVES, FourierFrequencies, FreeFunctionSpectrum, SpectralPoint
from lodekit.support.arguments import Array
from lodekit.support.recent import RecentResults

#: Up to this many measurements each one is a node; sums over Chebyshev nodes would not be shorter.
_MAX_POINT_MEASUREMENTS = 4096
#: The same with known inputs: the response is not band-limited, so every evaluation needs all measurements.
_MAX_INPUT_MEASUREMENTS = 100_000
#: The largest rounding error of the evidence, relative to itself or to the number of measurements.
_MAX_RELATIVE_EVIDENCE_ERROR = 2e-9
#: The dual form is used if the design has fewer rows than this share of its columns.
_MAX_DUAL_ROW_RATIO = 0.7

#: For one term: modes times their prior standard deviations, (q, r), and their Jacobian, (p, q, r); mean, (q,), and its
#: Jacobian, (p, q).
ModesAndMean = tuple[Array, Array, Array, Array]


class SpectralToleranceError(LodekitError):
    """Raised for hyperparameters at which the spectral engine cannot meet its tolerance."""


@dataclass(frozen=True)
class SpectralEngine(BaseEngine):
    """Log evidence and posterior in Fourier features, with a cache of their Gram matrices.

    prior: The prior of the measured observables.
    measurements: Measurements in memory, or sums over them.
    tolerance: The largest error of the covariance, relative to itself and to the noise.
    """

    name: ClassVar[str] = "spectral"
    approximates_channel_prior: ClassVar[bool] = True
    benefits_from_threads: ClassVar[bool] = False
    prior: Prior
    measurements: Measurements
    tolerance: float = 1e-10
    _grams: RecentResults = field(default_factory=lambda: RecentResults(24), init=False, compare=False, repr=False)
    _sums: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        fields = {name: self.__dict__[name] for name in ("prior", "measurements", "tolerance")}
        return {**fields, "_grams": RecentResults(24), "_sums": {}}

    @cached_property
    def size(self) -> int:
        """The number of measurements."""
        return self.measurements.size

    @cached_property
    def log_jacobian(self) -> float:
        """The number that converts a log density from scaled units to the user's, by addition."""
        counts = {item.observable: item.count for item in self.measurements.observable_statistics}
        return self.prior.units.log_jacobian([counts.get(name, 0) for name in self.prior.noise.observables])

    @cached_property
    def is_pointwise(self) -> bool:
        """Whether each measurement is a node; otherwise measurements are summarised on Chebyshev nodes."""
        measurements = self.measurements
        start, stop = measurements.window
        limit = _MAX_INPUT_MEASUREMENTS if measurements.inputs else _MAX_POINT_MEASUREMENTS
        return measurements.sufficient_statistics is None and (measurements.size <= limit or start == stop)

    @cached_property
    def window(self) -> tuple[float, float]:
        """The first and last scaled time of the measurements."""
        if self.is_pointwise:
            times = np.concatenate([item.times for item in self.measurements.series])
        else:
            times = np.array([self.measurements.statistics.start, self.measurements.statistics.stop])
        scaled = self.prior.units.scale_times(times)
        return float(scaled.min()), float(scaled.max())

    @property
    def max_nodes(self) -> int:
        """The largest number of nodes that sums over the data allow."""
        return 1 << 30 if self.is_pointwise else 2 * CHEBYSHEV_DEGREE + 1

    def node_statistics(self, count: int) -> list[NodeStatistics]:
        """Return sums over the measurements, or over `count` Chebyshev nodes."""
        key = 0 if self.is_pointwise else count
        if key not in self._sums:
            data, units, names = self.measurements, self.prior.units, self.prior.noise.observables
            if self.is_pointwise:
                self._sums[key] = point_statistics(data.series, units)
            else:
                self._sums[key] = chebyshev_statistics(data.statistics, units, names, count)
        return list(self._sums[key])

    def node_factors(self, count: int) -> list[NodeFactor]:
        """Return factors over the measurements, or over `count` Chebyshev nodes."""
        if self.is_pointwise:
            return point_factors(self.node_statistics(count))
        if ("factors", count) not in self._sums:
            data, units, names = self.measurements.statistics, self.prior.units, self.prior.noise.observables
            self._sums["factors", count] = chebyshev_factors(data, units, names, count)
        return list(self._sums["factors", count])

    @cached_property
    def spectrum(self) -> FreeFunctionSpectrum | ChannelSpectrum:
        """The spectral representation of the prior."""
        if self.prior.channels is None:
            return FreeFunctionSpectrum(self.prior.kernels)
        return ChannelSpectrum(self.tolerance)

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of a search: the nodes resolve the waves of the shortest lengthscale."""
        prior, (low, high) = self.prior, self.window
        # The window of a single time has unit length.
        length = high - low or 1.0
        band = self.spectrum.bandwidth(prior.observables.compiled.free_shape[-1], 1e-16)
        # `count_nodes` and `choose_resolution` solved for the lengthscale, with room for what they add.
        by_nodes = band * length / (0.9 * self.max_nodes - 120.0)
        by_waves = band * length * max(prior.n_processes, 1) / (2.0 * np.pi * 0.5 * MAX_FOURIER_WAVES)
        make = SearchLimits if prior.channels is None else channel_search_limits
        # 1.3 is a margin. One search may shorten a lengthscale by a factor of 6, which makes evaluations slower.
        return make(1.3 * max(by_nodes, by_waves), 6.0)

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        with suppress(SpectralToleranceError), np.errstate(all="ignore"):
            if result := SpectralEvaluation(self, hyper).solve(with_gradient=True):
                return result[0]
        return Evidence.infeasible(hyper)

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""
        with suppress(SpectralToleranceError), np.errstate(all="ignore"):
            if result := SpectralEvaluation(self, hyper).solve():
                return result[0].value, result[0].error
        return -np.inf, 0.0

    def posterior(self, hyper: Hyperparameters) -> SpectralPosterior:
        """Return the posterior at given hyperparameters; if it is not finite, its first query raises."""
        return SpectralPosterior(self, hyper)

    def solve_amplitudes(
        self, hyper: Hyperparameters, length: float | None = None, order: int = 0
    ) -> tuple[Array, Array, FourierFrequencies]:
        """Return mean and covariance root of the amplitudes, (d,) and (d, d), and the frequencies of their waves.

        They represent a window of a given scaled length, by default that of the data, and derivatives up to an order.
        Raises if the posterior is not finite.
        """
        with np.errstate(all="ignore"):
            result = SpectralEvaluation(self, hyper, length=length, order=order).solve(needs_covariance=True)
        if result is None:
            raise LodekitError(
                "the covariance of the data is not finite at these values; check units and starting values"
            )
        _, solution, frequencies = result
        return solution.mean, solution.covariance_root, frequencies

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return scaled mean squares: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        prior, observables = self.prior, self.prior.observables
        total, weight = np.zeros(observables.count), np.zeros(observables.count)
        modes: dict[int, Array] = {}
        try:
            nodes = self.count_nodes(coefficients, 0.0)
        except SpectralToleranceError:
            # Approximate values are sufficient here.
            nodes = 1024
        for item in self.node_statistics(nodes):
            times = prior.units.unscale_times(item.nodes) if item.times is None else item.times
            means, _ = observables.means(coefficients, times, with_jacobian=False)
            m = means[item.observable]
            squares = item.sum_of_squares - 2.0 * float(item.weighted_values @ m) + float(item.weights @ m**2)
            total[item.observable] += squares
            weight[item.observable] += float(item.weights.sum())
            basis, _ = observables.mode_basis(coefficients, prior.groups, item.nodes, with_jacobian=False)
            modes[item.observable] = np.mean(basis[item.observable] ** 2, axis=0)
        target = np.maximum(total, 0.0) / np.where(weight > 0, weight, 1.0)
        power = np.mean(list(modes.values()), axis=0) if prior.groups else np.zeros(0)
        return np.where(target > 0, target, 1.0), power

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why the engine cannot represent given hyperparameters, as a sentence; empty if it can."""
        try:
            with np.errstate(all="ignore"):
                SpectralEvaluation(self, hyper).choose_resolution()
        except SpectralToleranceError as problem:
            return str(problem)
        return ""

    def is_precise(self, error: float, deviance: float) -> bool:
        """Return whether a solution of the regression is accurate enough for the log evidence."""
        return bool(error <= _MAX_RELATIVE_EVIDENCE_ERROR * max(self.size, abs(deviance)))

    def count_nodes(self, coefficients: Coefficients, band: float) -> int:
        """Return the number of nodes that resolve products of waves, modes and means; raise if there are too many."""
        if self.is_pointwise:
            return 1
        low, high = self.window
        exponents = self.prior.observables.exponents(coefficients, self.prior.groups)
        if not np.isfinite(exponents).all():
            raise SpectralToleranceError("the modes are not finite at these values; check units and starting values")
        fastest = max(band, float(np.max(np.abs(exponents.imag), initial=0.0))) * (high - low)
        steepest = float(np.max(np.abs(exponents.real), initial=0.0)) * (high - low)
        # Chebyshev series of products of two waves end a little above their phase over half the window, those of
        # decays at the root of the decay times 37, which is -log(1e-16).
        needed = fastest + 14.0 * fastest ** (1 / 3) + 40.0 + 2.0 * np.sqrt(37.0 * steepest)
        if needed > self.max_nodes:
            raise SpectralToleranceError(
                f"sums over the data resolve {fastest / np.pi:.0f} half oscillations or a decay by {steepest:.0f} "
                "e-foldings in the window only in part; take a shorter window, at most a few thousand measurements, or "
                "engine='markov' with latent='matern-7/2'"
            )
        # Few distinct numbers, so that neighbouring points of a search share their nodes.
        rounded = 64.0 * 2.0 ** (np.ceil(4.0 * np.log2(max(needed, 128.0) / 64.0)) / 4.0)
        return int(min(np.ceil(rounded), self.max_nodes))

    def gram_matrices(self, frequencies: FourierFrequencies, nodes: int, *, factored: bool) -> list[GramTerm]:
        """Return the features and their Gram matrices over the data; the last 24 are cached."""

        def compute() -> list[GramTerm]:
            # Single functions need half the nodes of products.
            sums = self.node_factors(nodes // 2 + 1) if factored else self.node_statistics(nodes)
            return compute_gram_matrices(frequencies, sums)

        return self._grams.find((frequencies.cache_key, nodes, factored), compute)

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.channel_prior and any(latent != CHANNEL_KERNEL for latent in task.latents):
            return f"prior='channels' has its own covariance; use latent={CHANNEL_KERNEL.name!r}"
        rough = next((latent.name for latent in task.latents if not latent.is_band_limited), None)
        if rough:
            return f"{rough} has a spectrum too wide for Fourier features; use latent='se'"
        if task.has_inputs and not task.in_memory:
            return "responses to known inputs are not sums of Fourier features, and need all rows in memory"
        if task.has_inputs and task.size > _MAX_INPUT_MEASUREMENTS:
            count = f"{task.size:,}".replace(",", " ")
            return (
                f"responses to known inputs are not sums of Fourier features, so all {count} measurements would be in "
                f"memory (at most {_MAX_INPUT_MEASUREMENTS}); use engine='auto', which selects the modal engine if "
                "there are no free functions, or every k-th measurement, or a part of the record"
            )
        if task.has_exact_values:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return the approximate number of operations of an evaluation, the same for any number of measurements."""
        return (DENSE_CROSSOVER + 0.5) ** 3

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return f"more than {DENSE_CROSSOVER}"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> SpectralEngine:
        """Return an engine on measurements in memory, or on sums over them."""
        return cls(prior, measurements, task.tolerance)


class SpectralEvaluation:
    """One evaluation of the log evidence: everything that depends on the hyperparameters.

    engine: Prior and data.
    hyper: The hyperparameters.
    length: Scaled length of the window that the waves represent; by default that of the data.
    order: The highest derivative of free functions that will be needed, besides those of the data.
    """

    def __init__(
        self, engine: SpectralEngine, hyper: Hyperparameters, *, length: float | None = None, order: int = 0
    ) -> None:
        self.engine, self.hyper, self.prior = engine, hyper, engine.prior
        self.coefficients = self.prior.observables.evaluate(hyper.theta)
        self.channels = None if self.prior.channels is None else self.prior.channels.evaluate(hyper.theta)
        self.point = SpectralPoint.from_hyperparameters(self.coefficients, self.channels, hyper)
        self._length, self._order = length, order

    def precision(self, sums: NodeStatistics | NodeFactor) -> float:
        """Return the factor of the weights of measurements: one over the estimated variance, scaled; or one."""
        return self.prior.noise.precision(sums.observable, self.hyper.noise_std, learned=sums.learned)

    def choose_resolution(self, max_frequencies: int = MAX_FOURIER_WAVES) -> tuple[FourierFrequencies, int]:
        """Return the frequencies and the number of nodes; raise if the engine cannot represent the hyperparameters."""
        engine, coefficients, point, noise = self.engine, self.coefficients, self.point, self.hyper.noise_std
        numbers = (point.free, point.channels, point.lengthscales, point.deviations, noise, *coefficients.factors)
        if not all(np.isfinite(part).all() for part in numbers) or (noise <= 0).any():
            raise SpectralToleranceError("the prior is not finite at these values; check units and starting values")
        frequencies = FourierFrequencies((), (), ())
        if point.free.shape[1]:
            frequencies = self._choose_frequencies()
        if sum(frequencies.counts) > max_frequencies:
            other = "latent='matern-7/2'" if self.prior.channels is None else "prior='latent'"
            raise SpectralToleranceError(
                f"the spectral engine would need more than {max_frequencies} Fourier features: the window is very long "
                f"compared with the lengthscales; use a shorter window, or {other}"
            )
        return frequencies, engine.count_nodes(coefficients, float(np.max(frequencies.values, initial=0.0)))

    def _choose_frequencies(self) -> FourierFrequencies:
        """Return frequencies that represent the covariance to the tolerance, or state their truncation error."""
        engine, hyper, free, point = self.engine, self.hyper, self.coefficients.free, self.point
        low, high = engine.window
        # Averaging intervals begin before their times.
        length = (high - low if self._length is None else self._length) + self.prior.observables.longest_window
        if (missing := self._order + 1 - free.shape[-1]) > 0:
            point = replace(point, free=np.pad(point.free, ((0, 0), (0, 0), (0, missing))))
        noise_variance = np.full(self.prior.observables.count, np.inf)
        # Few nodes are enough: the sum of the weights is the same on any number of them.
        for sums in engine.node_statistics(128):
            noise = max(sums.count, 1) / float(sums.weights.sum())
            if sums.learned:
                noise = self.prior.noise.variance(sums.observable, hyper.noise_std)
            noise_variance[sums.observable] = min(noise_variance[sums.observable], noise)
        if isinstance(engine.spectrum, ChannelSpectrum):
            return engine.spectrum.frequencies(point, noise_variance, length)
        prior_variance = np.zeros(len(free))
        for number, latent in enumerate(self.prior.kernels):
            ell, deviation = float(hyper.lengthscales[number]), float(hyper.amplitudes[number])
            prior_variance += free_function_variance(latent, free[:, number], ell, deviation, self.coefficients.windows)
        ratio = float(np.min(noise_variance / np.maximum(prior_variance, 1e-300), initial=1.0))
        exact = engine.tolerance * max(ratio, 1e-30)
        # In even powers of ten, so that neighbouring points of a search share their frequencies.
        eps = float(10.0 ** (2.0 * np.floor(0.5 * np.log10(exact)))) if exact > 0 else 1e-40
        return engine.spectrum.frequencies(point, eps, length)

    def _modes_and_means(self, grams: Sequence[GramTerm], *, with_gradient: bool) -> list[ModesAndMean]:
        """Return modes and mean of the observable of each term on its nodes; computed once for each set of nodes."""
        observables, groups = self.prior.observables, self.prior.groups
        roots = self.prior.mode_std(self.hyper.mode_amplitudes)
        on_nodes: list[tuple[list[Array], list[Array], list[Array], list[Array]]] = []
        functions: list[ModesAndMean] = []
        for sums, node_set, *_ in grams:
            if node_set == len(on_nodes):
                both = observables.mode_basis(self.coefficients, groups, sums.nodes, with_jacobian=with_gradient)
                basis, d_basis = ([part * roots for part in parts] for parts in both)
                times = sums.times if sums.times is not None else self.prior.units.unscale_times(sums.nodes)
                means, d_means = observables.means(self.coefficients, times, with_jacobian=with_gradient)
                on_nodes.append((basis, d_basis, means, d_means))
            (basis, d_basis, means, d_means), o = on_nodes[node_set], sums.observable
            functions.append((basis[o], d_basis[o], means[o], d_means[o]))
        return functions

    def _terms(self, grams: Sequence[GramTerm], functions: Sequence[ModesAndMean]) -> list[RegressionTerm]:
        """Return the contributions of all observables to the normal equations, or to the design of the QR form."""
        terms = []
        for (sums, _, basis, product, on_data), (modes, _, mean, _) in zip(grams, functions, strict=True):
            level = self.prior.noise.level_index(sums.observable, learned=sums.learned)
            common = sums.observable, level, sums.count, self.precision(sums)
            if isinstance(sums, NodeFactor):
                target = sums.target - sums.apply(mean)
                terms.append(RegressionTerm(*common, product, sums.apply(modes), target, sums.residual_ss))
                continue
            target, on_waves, square = sums.weighted_values, on_data, sums.sum_of_squares
            if self.prior.observables.has_mean:
                target = sums.weighted_values - sums.weights * mean
                on_waves = basis.T @ target
                square += -2.0 * float(sums.weighted_values @ mean) + float(sums.weights @ mean**2)
            terms.append(RegressionTerm(*common, basis, modes, target, square, sums.weights, product, on_waves))
        return terms

    def solve(
        self, *, with_gradient: bool = False, needs_covariance: bool = False
    ) -> tuple[Evidence, RegressionSolution, FourierFrequencies] | None:
        """Return the log evidence, the solved regression and its frequencies; None if something is not finite.

        If the design has few rows compared with its columns, the dual form is cheapest, but has no covariance.
        Otherwise normal equations are, unless they would lose too many digits: then a QR factorization is used.
        """
        # A search stays below the limit, so that its result can be evaluated again on newly chosen frequencies.
        most = int(0.7 * MAX_FOURIER_WAVES) if with_gradient else MAX_FOURIER_WAVES
        frequencies, nodes = self.choose_resolution(most)
        engine, coefficients = self.engine, self.engine.spectrum.coefficients(frequencies, self.point)
        if not np.isfinite(coefficients).all():
            return None
        rounding = 2e-16 if engine.is_pointwise else 2e-15
        solution = None
        for method in self._methods(nodes, coefficients.shape[1], rounding, needs_covariance=needs_covariance):
            grams = engine.gram_matrices(frequencies, nodes, factored=method != "normal")
            functions = self._modes_and_means(grams, with_gradient=with_gradient)
            shared = coefficients.real, coefficients.imag, self._terms(grams, functions), len(self.hyper.noise_std)
            if method == "normal":
                solution = solve_normal_equations(*shared, rounding)
            else:
                solution = solve_qr(*shared) if method == "qr" else solve_dual(*shared)
            if solution is not None and engine.is_precise(solution.error, solution.deviance):
                break
        if solution is None or not np.isfinite(solution.deviance) or not np.isfinite(solution.mean).all():
            return None
        # The part of the deviance that depends on counts and noise only.
        normalization = sum(
            sums.count * np.log(2.0 * np.pi / self.precision(sums)) - sums.log_weight_sum for sums, *_ in grams
        )
        value = -0.5 * (solution.deviance + float(normalization))
        # Omitted frequencies change the log evidence by their variance over that of the noise, for each measurement.
        error = 0.5 * solution.error + frequencies.truncation_error * (engine.size + abs(value))
        gradient = self._gradient(grams, functions, frequencies, solution) if with_gradient else self.hyper
        return Evidence(value + engine.log_jacobian, gradient, error), solution, frequencies

    def _methods(self, nodes: int, n_frequencies: int, rounding: float, *, needs_covariance: bool) -> list[str]:
        """Return the ways to solve the regression, the cheapest first: "dual", "normal", "qr"."""
        engine, count = self.engine, nodes // 2 + 1
        size = 2 * n_frequencies + sum(group.size for group in self.prior.groups)
        # Factors on more than 1200 Chebyshev nodes would be too expensive.
        has_factors = engine.is_pointwise or count <= 1200
        rows = engine.size if engine.is_pointwise else count * len(engine.measurements.statistics.cells)
        if not needs_covariance and has_factors and rows <= _MAX_DUAL_ROW_RATIO * size:
            return ["dual", "qr"]
        squares = sum(self.precision(sums) * sums.sum_of_squares for sums in engine.node_statistics(nodes))
        # Normal equations are inaccurate if rounding errors of sums are too large for a deviance of 30 per measurement.
        if has_factors and not engine.is_precise(rounding * squares, 30.0 * engine.size):
            return ["qr"]
        return ["normal", "qr"] if has_factors else ["normal"]

    def _gradient(
        self,
        grams: Sequence[GramTerm],
        functions: Sequence[ModesAndMean],
        frequencies: FourierFrequencies,
        solution: RegressionSolution,
    ) -> Hyperparameters:
        """Return the gradient of the log evidence: derivatives in waves, modes and means, by the chain rule."""
        deviance = solution.gradient()
        theta = np.zeros(len(self.hyper.theta))
        in_modes = np.zeros(sum(group.size for group in self.prior.groups))
        for number, ((sums, *_), (modes, d_modes, _, d_mean)) in enumerate(zip(grams, functions, strict=True)):
            Y, on_mean = deviance.modes[number], deviance.means[number]
            if isinstance(sums, NodeFactor):
                Y, on_mean = sums.apply_transposed(Y), sums.apply_transposed(on_mean)
            in_modes += np.sum(Y * modes, axis=0)
            theta += np.einsum("pqr,qr->p", d_modes, Y)
            if self.prior.observables.has_mean:
                theta += d_mean @ on_mean
        pulled = self.engine.spectrum.vjp(frequencies, self.point, deviance.fourier_coefficients)
        theta += np.einsum("polk,olk->p", self.coefficients.free_jacobian, pulled.free)
        if self.channels is not None:
            theta += np.einsum("polk,olk->p", self.channels.free_jacobian, pulled.channels)
        amplitudes = self.prior.sum_over_groups(in_modes)
        gradient = Hyperparameters(theta, pulled.log_lengthscales, pulled.log_amplitudes, amplitudes, deviance.noise)
        return gradient.map(np.negative)
