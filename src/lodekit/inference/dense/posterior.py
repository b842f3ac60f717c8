"""Posterior means, covariances and samples of any observable, from the Cholesky factor of the data covariance.

Means and samples are computed for the free functions and their derivatives, and for the weights of the modes;
observables are linear combinations of these. So the equations hold up to rounding errors, however ill-conditioned the
covariance is. Samples follow Matheron's rule: a draw from the prior, corrected by the data as the mean is, so that no
nearly singular matrix is factorized.

Under the channel prior, means and samples are sums of waves and modes. Each wave solves the equations exactly; its
amplitude follows from the covariance of the waves with the data. Covariances with the data are band-limited functions
of time, so variances are interpolated from a few dozen times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from scipy.linalg import lapack, solve_triangular

from lodekit.errors import LodekitError
from lodekit.inference.dense.evidence import CovarianceFactor, DenseData, measurement_prior_variance
from lodekit.inference.stacked_measurements import StackedPosterior
from lodekit.prior.channel_prior.quadrature import FrequencyPanels, build_frequency_panels
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import ObservationPoints, free_function_variance, prior_covariance
from lodekit.prior.draws import group_observables_by_window, sample_free_function
from lodekit.prior.input_response.hold import chebyshev_basis, chebyshev_order, chebyshev_transform
from lodekit.prior.kernels import average_kernel_derivatives
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.prior.spectra import SpectralPoint
from lodekit.support.arguments import Array, ComplexArray, Mask
from lodekit.support.recent import RecentResults

#: A set of s functions: for each free function its derivatives in scaled time, the lowest first, as averages over each
#: of w intervals, (w, order, n, s); and the weights of the basis functions of the modes, (r, s).
FunctionSamples = tuple[list[Array], Array]


@dataclass(frozen=True)
class DensePosterior(StackedPosterior):
    """The posterior at given hyperparameters, from a Cholesky factor of the covariance of the data.

    data: Measurements with their prior.
    factor: The factor of the covariance of the data at these hyperparameters.
    """

    data: DenseData
    hyper: Hyperparameters
    factor: CovarianceFactor

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.factor.value + self.data.log_jacobian

    @property
    def error(self) -> float:
        """The estimated rounding error of the log evidence."""
        return self.factor.error

    @property
    def mean_rounding_error(self) -> float:
        """The estimated rounding error of the mean, relative to the data.

        The mean is a sum of covariances times `alpha`, with errors in proportion to the prior standard deviations.
        """
        state = self.factor
        deviations = np.sqrt(measurement_prior_variance(self.data, self.hyper, state.terms, absolute=False))
        size = float(np.abs(state.terms.residual).max(initial=0.0))
        spread = np.finfo(float).eps * float(deviations.max(initial=0.0) * np.linalg.norm(deviations * state.alpha))
        return spread / size if size > 0 else 0.0

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        values = observables.evaluate(self.hyper.theta)
        paths = self._condition_on_data(self.factor.alpha[:, None], times, values)
        return self._evaluate_observables(observables, values, times, paths)[:, :, 0]

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        points = self._observation_points(observables, times)
        count, n = len(points.basis), len(times)
        prior, reduced = self._prior_covariance(points, points), self._whitened_cross_covariance(observables, points)
        total = prior.reshape(count * n, count * n) - reduced.T @ reduced
        # Rounding errors can leave tiny negative numbers if the variance is zero.
        np.fill_diagonal(total, np.maximum(np.diag(total), 0.0))
        return total.reshape(count, n, count, n).transpose(1, 0, 3, 2)

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        points = self._observation_points(observables, times)
        total = np.zeros((len(points.basis), len(times)))
        for number, latent in enumerate(self.data.prior.kernels):
            ell, deviation = self.hyper.lengthscales[number], self.hyper.amplitudes[number]
            total += free_function_variance(latent, points.free[:, number], ell, deviation, points.windows)[:, None]
        total += np.sum(points.basis**2 * self.mode_variance(), axis=2)
        total -= np.sum(self._whitened_cross_covariance(observables, points) ** 2, axis=0).reshape(total.shape)
        # Rounding errors can leave a tiny negative number if the variance is zero.
        return np.maximum(total, 0.0).T

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        values = observables.evaluate(self.hyper.theta)
        order = max(values.free.shape[-1], self.factor.terms.coefficients.free.shape[-1])
        data = self.data
        sides = [(self.factor.terms.coefficients, data.times), (values, times)]
        # Each averaging interval requires averages at all its times.
        asked = [(window, at) for own, at in sides for window, _ in group_observables_by_window(own)]
        scaled = data.observables.units.scale_times(np.concatenate([at for _, at in asked]))
        windows = np.concatenate([np.full(len(at), window) for window, at in asked])
        count, places = len(data.times), len(group_observables_by_window(self.factor.terms.coefficients))
        draws = []
        for number, latent in enumerate(data.prior.kernels):
            ell, deviation = self.hyper.lengthscales[number], self.hyper.amplitudes[number]
            drawn = sample_free_function(latent, scaled, order, ell, deviation, size, generator, windows)
            parts = zip(np.split(drawn, [count * places], axis=1), (count, len(times)), strict=True)
            draws.append([part.reshape(order, -1, n, size).swapaxes(0, 1) for part, n in parts])
        weights = generator.standard_normal((len(self.mode_variance()), size)) * np.sqrt(self.mode_variance())[:, None]
        at_data = [first for first, _ in draws], weights
        seen = self._evaluate_without_mean(self.factor.terms.coefficients, self.factor.terms.basis, at_data)
        drawn = data.gather_rows(list(seen.swapaxes(0, 1)))
        noise = np.sqrt(data.noise.variance(self.hyper.noise_std))
        rest = self.factor.terms.residual[:, None] - drawn - noise[:, None] * generator.standard_normal(drawn.shape)
        alpha, _ = lapack.dpotrs(self.factor.cholesky, rest, lower=1)
        (updates, weight_update), length = self._condition_on_data(alpha, times, values), values.free.shape[-1]
        stacks = [draw[:, :length] + update for (_, draw), update in zip(draws, updates, strict=True)]
        total = stacks, weights + weight_update
        return self._evaluate_observables(observables, values, times, total).transpose(2, 0, 1)

    def mode_variance(self) -> Array:
        """Return the prior variance of the weight of each basis function of the modes, shape (r,)."""
        return self.data.prior.mode_variance(self.hyper.mode_amplitudes)

    def _condition_on_data(self, alpha: Array, times: Array, coefficients: Coefficients) -> FunctionSamples:
        """Return ``cov(latent, data) alpha``: the correction of free functions and mode weights by the data.

        Shapes: alpha (data, s), times (n,).
        """
        data, hyper, order = self.data, self.hyper, coefficients.free.shape[-1]
        measured, scattered = self.factor.terms.coefficients, data.scatter_add(alpha)
        units = data.observables.units
        lag = units.scale_times(times)[:, None] - units.scale_times(data.times)[None, :]
        stacks = []
        for number, latent in enumerate(data.prior.kernels):
            own = measured.free[:, number]
            length = own.shape[-1]
            ell, deviation = hyper.lengthscales[number], hyper.amplitudes[number]
            latent.check_order(2 * (order - 1))
            stack = np.zeros((len(group_observables_by_window(coefficients)), order, len(times), alpha.shape[1]))
            for place, (asked, _) in enumerate(group_observables_by_window(coefficients)):
                for window, rows in group_observables_by_window(measured):
                    h = average_kernel_derivatives(latent, lag, float(ell), (asked, window), order + length - 2)
                    for b in range(length):
                        folded = (-1.0) ** b * np.tensordot(own[rows, b], scattered[rows], axes=1)
                        for a in range(order):
                            stack[place, a] += deviation**2 * ell ** (-(a + b)) * (h[a + b] @ folded)
            stacks.append(stack)
        return stacks, self.condition_modes(scattered)

    def condition_modes(self, scattered: Array) -> Array:
        """Return ``cov(weights of the modes, data) alpha``, shape (r, s), from alpha at all times, (o, n, s)."""
        pairs = zip(self.factor.terms.basis, scattered, strict=True)
        weights = sum((part.T @ alpha for part, alpha in pairs), np.zeros((1, 1)))
        return np.asarray(self.mode_variance()[:, None] * weights)

    def _evaluate_observables(
        self, observables: Observables, coefficients: Coefficients, times: Array, samples: FunctionSamples
    ) -> Array:
        """Return observables of functions in their units, with the particular solution, shape (n, o, s)."""
        scaled = observables.units.scale_times(times)
        basis, _ = observables.mode_basis(coefficients, self.data.prior.groups, scaled, with_jacobian=False)
        means, _ = observables.means(coefficients, times, with_jacobian=False)
        total = self._evaluate_without_mean(coefficients, basis, samples)
        return total + np.stack(means, axis=1)[:, :, None]

    @staticmethod
    def _evaluate_without_mean(coefficients: Coefficients, basis: list[Array], samples: FunctionSamples) -> Array:
        """Return observables of functions without the particular solution, shape (n, o, s)."""
        stacks, weights = samples
        total = np.stack([part @ weights for part in basis], axis=1)
        for number, stack in enumerate(stacks):
            own = coefficients.free[:, number]
            for place, (_, rows) in enumerate(group_observables_by_window(coefficients)):
                total[:, rows] += np.einsum("oa,ans->nos", own[rows], stack[place, : own.shape[-1]])
        return np.asarray(total)

    def _observation_points(self, observables: Observables, times: Array) -> ObservationPoints:
        """Return observables with their mode basis at some times."""
        values, scaled = observables.evaluate(self.hyper.theta), observables.units.scale_times(times)
        basis, _ = observables.mode_basis(values, self.data.prior.groups, scaled, with_jacobian=False)
        return ObservationPoints(scaled, values.free, np.stack(basis), values.windows)

    def _prior_covariance(self, first: ObservationPoints, second: ObservationPoints) -> Array:
        """Return the prior covariance of two sets of observables, shape (o1, n1, o2, n2)."""
        hyper, prior = self.hyper, self.data.prior
        scales = hyper.lengthscales, hyper.amplitudes, prior.mode_std(hyper.mode_amplitudes)
        return np.asarray(prior_covariance(np, prior.kernels, first, second, scales))

    def _whitened_cross_covariance(self, observables: Observables, points: ObservationPoints) -> Array:
        """Return ``L^-1 cov(data, observables)``, shape (data, o * n)."""
        data, own, basis = self.data, self.factor.terms.coefficients, np.stack(self.factor.terms.basis)
        measured = ObservationPoints(observables.units.scale_times(data.times), own.free, basis, own.windows)
        flat = data.gather_rows(list(self._prior_covariance(measured, points))).reshape(data.size, -1)
        return np.asarray(solve_triangular(self.factor.cholesky, flat, lower=True, check_finite=False))


#: Number of times that are evaluated together, which limits memory.
_CHUNK_TIMES = 4096


@dataclass(frozen=True)
class ChannelPosterior(DensePosterior):
    """The posterior under the channel prior at given hyperparameters; curves are sums of waves and modes.

    data, hyper, factor: As in `DensePosterior`.
    """

    _views: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)

    @property
    def mean_rounding_error(self) -> float:
        """The estimated rounding error of the mean, relative to the data: the amplitudes of waves do not cancel."""
        return float(np.finfo(float).eps)

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        view = self._cached_view(observables, times)
        amplitudes, weights = view.condition_on_data(self.factor.alpha[:, None])
        return view.evaluate_observables(times, amplitudes, weights)[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        view = self._cached_view(observables, times)
        scaled = observables.units.scale_times(times)
        basis = view.mode_basis(scaled)
        prior_variance = np.sum(np.abs(view.requested_coefficients) ** 2, axis=1) @ view.panels.weights
        total = prior_variance[:, None] + np.sum(basis**2 * self.mode_variance(), axis=-1)
        for start in range(0, len(times), _CHUNK_TIMES):
            part = slice(start, start + _CHUNK_TIMES)
            reduced = view.whitened_cross_covariance(scaled[part], basis[:, part])
            total[:, part] -= np.einsum("don,don->on", reduced, reduced)
        # Rounding errors can leave a tiny negative number if the variance is zero.
        return np.asarray(np.maximum(total, 0.0).T)

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        view = self._cached_view(observables, times)
        scaled = observables.units.scale_times(times)
        basis = view.mode_basis(scaled)
        count, n = len(basis), len(times)
        D = view.design_matrix(scaled)
        total = (D @ D.T).reshape(count, n, count, n)
        if view.correlation_range < np.inf:
            reach = view.correlation_range + observables.longest_window
            total *= (np.abs(scaled[:, None] - scaled[None, :]) <= reach)[None, :, None, :]
        flat = basis.reshape(count * n, -1)
        reduced = view.whitened_cross_covariance(scaled, basis).reshape(-1, count * n)
        found = total.reshape(count * n, count * n) + (flat * self.mode_variance()) @ flat.T - reduced.T @ reduced
        np.fill_diagonal(found, np.maximum(np.diag(found), 0.0))
        return found.reshape(count, n, count, n).transpose(1, 0, 3, 2)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        view, data = self._cached_view(observables, times, whole_range=True), self.data
        shape = (*view.measured_coefficients.shape[1:], size)
        drawn = generator.standard_normal(shape) - 1j * generator.standard_normal(shape)
        drawn *= np.sqrt(view.panels.weights)[:, None]
        weights = generator.standard_normal((len(self.mode_variance()), size))
        weights *= np.sqrt(self.mode_variance())[:, None]
        seen = view.evaluate_at_data(drawn) + data.gather_rows(self.factor.terms.basis) @ weights
        noise = np.sqrt(data.noise.variance(self.hyper.noise_std) + self.factor.jitter)
        rest = self.factor.terms.residual[:, None] - seen - noise[:, None] * generator.standard_normal(seen.shape)
        alpha, _ = lapack.dpotrs(self.factor.cholesky, rest, lower=1)
        amplitudes, more = view.condition_on_data(alpha)
        return view.evaluate_observables(times, drawn + amplitudes, weights + more).transpose(2, 0, 1)

    def _cached_view(self, observables: Observables, times: Array, *, whole_range: bool = False) -> _FourierView:
        """Return the result of `_build_view` for all lags between times and data; the last one is cached."""
        coefficients = observables.evaluate(self.hyper.theta)
        scaled, at_data = observables.units.scale_times(times), self.data.scaled_times
        low, high = float(at_data.min()) - self.data.observables.longest_window, float(at_data.max())
        back, windows = observables.longest_window, _averaging_windows(coefficients)
        left, right = min(low, float(scaled.min(initial=low + back)) - back), max(high, float(scaled.max(initial=high)))
        key = (left, right, coefficients.free.tobytes(), coefficients.free.shape, windows.tobytes(), whole_range)
        build = partial(self._build_view, observables, coefficients, right - left, whole_range=whole_range)
        return self._views.find(key, build)

    def _build_view(
        self, observables: Observables, coefficients: Coefficients, max_lag: float, *, whole_range: bool
    ) -> _FourierView:
        """Return observables on waves that represent all lags up to `max_lag`, or up to the correlation range.

        Samples need all lags, `whole_range`: they are not zero where the prior is uncorrelated with the data.
        """
        data, hyper = self.data, self.hyper
        measured, asked = self.factor.terms.coefficients.free, coefficients.free
        orders = max(measured.shape[-1], asked.shape[-1])
        both = [np.pad(part, ((0, 0), (0, 0), (0, orders - part.shape[-1]))) for part in (measured, asked)]
        channels = data.channel_coefficients(hyper.theta)
        assert channels is not None  # noqa: S101
        windows = np.concatenate([_averaging_windows(self.factor.terms.coefficients), _averaging_windows(coefficients)])
        intervals = windows if windows.any() else None
        point = SpectralPoint(np.concatenate(both), channels.free, hyper.lengthscales, hyper.amplitudes, intervals)
        window = data.lag_grid.length
        # Beyond four windows, the prior may be uncorrelated.
        length = max_lag if whole_range else min(max_lag, 4.0 * window)
        while True:
            with np.errstate(all="ignore"):
                panels = build_frequency_panels(point, max(length, window))
            if panels is None or len(panels.frequencies) * asked.shape[1] > 20_000:
                raise LodekitError(
                    "expected times closer to the data: the prior needs too many Fourier features for these times"
                )
            spectrum = ConditionedDensity(panels.frequencies, point)
            if length >= max_lag or _is_uncorrelated(spectrum, panels, length):
                break
            length = min(max_lag, 2.0 * length)
        at_data, requested = np.split(spectrum.coefficients, [len(measured)])
        correlation_range = np.inf if length >= max_lag else 0.5 * length
        return _FourierView(self, observables, coefficients, panels, at_data, requested, correlation_range)


def _is_uncorrelated(spectrum: ConditionedDensity, panels: FrequencyPanels, length: float) -> bool:
    """Return whether all covariances vanish in the second half of a length."""
    # Multiples of the golden ratio have no common period, so that no oscillation is zero at all of these lags.
    lags = length * (0.5 + 0.5 * np.modf(np.arange(1, 257) * 0.5 * (np.sqrt(5.0) - 1.0))[0])
    power = np.sum(np.abs(spectrum.coefficients) ** 2, axis=1) * panels.weights
    total = power.sum(axis=1)
    shares = power[total > 0] / total[total > 0, None]
    waves = np.exp(1j * np.outer(panels.frequencies, lags))
    return bool(np.abs((shares @ waves).real).max(initial=0.0) < 1e-11)


def _averaging_windows(coefficients: Coefficients) -> Array:
    """Return the intervals over which observables are averaged, zero if they are not."""
    return np.zeros(len(coefficients.free)) if coefficients.windows is None else coefficients.windows


@dataclass(frozen=True)
class _FourierView:
    """Requested and measured observables on the waves of some frequency panels.

    measured_coefficients, requested_coefficients: Coefficients of the observables on whitened waves; (o, q, f).
    correlation_range: The distance from the data up to which the prior is correlated with them.
    """

    posterior: ChannelPosterior
    observables: Observables
    coefficients: Coefficients
    panels: FrequencyPanels
    measured_coefficients: ComplexArray
    requested_coefficients: ComplexArray
    correlation_range: float

    def mode_basis(self, scaled: Array) -> Array:
        """Return the basis functions of the modes at scaled times, shape (o, n, r)."""
        groups = self.posterior.data.prior.groups
        return np.stack(self.observables.mode_basis(self.coefficients, groups, scaled, with_jacobian=False)[0])

    def _is_beyond_range(self, scaled: Array) -> Mask:
        at_data = self.posterior.data.scaled_times
        data, back = self.posterior.data.observables.longest_window, self.observables.longest_window
        distance = np.maximum(at_data.min() - data - scaled, scaled - back - at_data.max())
        return np.asarray(distance > self.correlation_range)

    @cached_property
    def _data_fourier_basis(self) -> ComplexArray:
        """Waves at the times of the data, shape (n, f)."""
        return np.asarray(np.exp(1j * np.outer(self.posterior.data.scaled_times, self.panels.frequencies)))

    def condition_on_data(self, alpha: Array) -> tuple[ComplexArray, Array]:
        """Return ``cov(amplitudes, data) alpha``, shape (q, f, s), and the same for the weights of the modes, (r, s).

        Shapes: alpha (data, s).
        """
        posterior, scattered = self.posterior, self.posterior.data.scatter_add(alpha)
        on_waves = np.conj(self._data_fourier_basis).T @ scattered
        amplitudes = np.einsum("oqf,ofs->qfs", np.conj(self.measured_coefficients), on_waves)
        amplitudes *= self.panels.weights[:, None]
        return amplitudes, posterior.condition_modes(scattered)

    def evaluate_at_data(self, amplitudes: ComplexArray) -> Array:
        """Return the measured observables of waves with some amplitudes, shape (data, s) from (q, f, s)."""
        data = self.posterior.data
        turned = np.einsum("oqf,qfs->ofs", self.measured_coefficients, amplitudes)
        pairs = zip(turned, data.index, strict=True)
        return np.concatenate([(self._data_fourier_basis[index] @ own).real for own, index in pairs])

    def evaluate_observables(self, times: Array, amplitudes: ComplexArray, weights: Array) -> Array:
        """Return observables of functions in their units, with the particular solution, shape (n, o, s).

        Shapes: times (n,), amplitudes (q, f, s), weights (r, s).
        """
        means, _ = self.observables.means(self.coefficients, times, with_jacobian=False)
        turned = np.einsum("oqf,qfs->fos", self.requested_coefficients, amplitudes)
        f, o, s = turned.shape
        real, imaginary = turned.real.reshape(f, -1), turned.imag.reshape(f, -1)
        found = []
        for start in range(0, len(times), _CHUNK_TIMES):
            part = self.observables.units.scale_times(times[start : start + _CHUNK_TIMES])
            angle = np.outer(part, self.panels.frequencies)
            waves = np.cos(angle) @ real - np.sin(angle) @ imaginary
            waves[self._is_beyond_range(part)] = 0.0
            found.append(waves.reshape(-1, o, s) + np.einsum("onr,rs->nos", self.mode_basis(part), weights))
        total = np.concatenate(found) if found else np.zeros((0, o, s))
        return np.asarray(total + np.stack(means, axis=1)[:, :, None])

    def design_matrix(self, scaled: Array) -> Array:
        """Return the requested observables of whitened cosines and sines, shape (o n, 2 q f)."""
        waves = np.exp(1j * np.outer(scaled, self.panels.frequencies)) * np.sqrt(self.panels.weights)
        found = waves[None, :, None, :] * self.requested_coefficients[:, None]
        return np.ascontiguousarray(found).view(float).reshape(found.shape[0] * found.shape[1], -1)

    def _cross_covariance(self, scaled: Array) -> Array:
        """Return the covariance of the data with the requested observables, without modes, shape (data, o, n)."""
        data = self.posterior.data
        P = np.einsum("dqf,oqf->dof", self.measured_coefficients, np.conj(self.requested_coefficients))
        P *= self.panels.weights
        waves = np.exp(-1j * np.outer(self.panels.frequencies, scaled))
        own = np.concatenate([self._data_fourier_basis.real, -self._data_fourier_basis.imag], axis=1)
        found = np.empty((data.size, P.shape[1], len(scaled)))
        for d, index in enumerate(data.index):
            for o in range(P.shape[1]):
                turned = P[d, o][:, None] * waves
                block = own @ np.concatenate([turned.real, turned.imag])
                found[data.offsets[d] : data.offsets[d + 1], o] = block[index]
        return found

    def whitened_cross_covariance(self, scaled: Array, basis: Array) -> Array:
        """Return ``L^-1 cov(data, observables)``, shape (data, o, n).

        If there are many times, it is computed at Chebyshev nodes and interpolated.

        Shapes: scaled (n,), basis (o, n, r).
        """
        posterior, n = self.posterior, len(scaled)
        low, high = float(scaled.min(initial=np.inf)), float(scaled.max(initial=-np.inf))
        size = chebyshev_order(0.5 * float(self.panels.highs[-1]) * max(high - low, 0.0)) if n else 0
        if self.correlation_range < np.inf or n <= size:
            near = ~self._is_beyond_range(scaled)
            found = np.zeros((posterior.data.size, len(basis), n))
            found[:, :, near] = self._solve_triangular(self._cross_covariance(scaled[near]))
        else:
            points, matrix = chebyshev_transform(size)
            # Equal times form an interval of length zero.
            middle, half = 0.5 * (low + high), max(0.5 * (high - low), float(np.finfo(float).tiny))
            known = self._solve_triangular(self._cross_covariance(middle + half * points))
            terms = chebyshev_basis(np.clip((scaled - middle) / half, -1.0, 1.0), size)
            found = (known.reshape(-1, size) @ matrix.T @ terms).reshape(*known.shape[:2], n)
        if basis.shape[-1]:
            stacked = posterior.data.gather_rows(posterior.factor.terms.basis)
            reduced = self._solve_triangular((stacked * posterior.mode_variance())[:, :, None])[:, :, 0]
            found += np.einsum("dr,onr->don", reduced, basis)
        return found

    def _solve_triangular(self, values: Array) -> Array:
        flat = values.reshape(len(values), -1)
        found = solve_triangular(self.posterior.factor.cholesky, flat, lower=True, check_finite=False)
        return np.asarray(found).reshape(values.shape)
