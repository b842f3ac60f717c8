"""The exact log evidence of a Gaussian: covariance of the measurements, gradient in closed form and rounding error.

With ``K = L L^T``, ``alpha = K^-1 (y - mu)`` and ``G = (alpha alpha^T - K^-1)/2``, contract G once with the stack of
derivatives, ``S_ijm = sum G_ij o h_m``. Every gradient is then a small contraction; there is no second n x n pass for
any parameter (Rasmussen and Williams 2006, equation 5.9, with the structure of the covariance used).

No jitter is added to the diagonal to make a factorization succeed: that would be another evidence, with other optima.
The channel prior is the exception, because its covariance is an integral with an error of its own; the effect of jitter
is added to the error of the log evidence. Entries of K have rounding errors in proportion to the prior standard
deviations of both measurements; every evaluation estimates the resulting error of the log evidence, from G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import combinations_with_replacement
from typing import Self

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.records import check_consistent_exact_values
from lodekit.errors import LodekitError
from lodekit.inference.engine import Evidence
from lodekit.inference.stacked_measurements import StackedMeasurements
from lodekit.prior.channel_prior.lag_covariance import LagCovariance, TimeLags
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import derivative_sign_matrix, free_function_variance, pair_coefficients
from lodekit.prior.kernels import Kernel, average_kernel_with_lag
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.prior.spectra import SpectralPoint
from lodekit.support.arguments import Array, IndexArray, Mask
from lodekit.support.recent import RecentResults

#: Coefficients; basis functions of the modes and means, each with derivatives in the parameters.
DesignWithJacobians = tuple[Coefficients, tuple[list[Array], list[Array]], tuple[list[Array], list[Array]]]


@dataclass(frozen=True)
class DenseData(StackedMeasurements):
    """Measurements in memory with their prior, as the dense engine uses them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `StackedMeasurements`.
    """

    _channels: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)
    _designs: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)

    @classmethod
    def from_series(cls, prior: Prior, series: Sequence[TimeSeries]) -> Self:
        """Return measurements in memory with their prior."""
        if prior.disturbances:
            raise LodekitError("the dense engine does not support disturbances; use engine='markov'")
        check_consistent_exact_values(series)
        return super().from_series(prior, series)

    def scatter_add(self, values: Array) -> Array:
        """Return values of all measurements, (m, s), added up at the times of each observable: shape (o, n, s)."""
        found = np.zeros((len(self.index), len(self.times), values.shape[1]))
        for o, index in enumerate(self.index):
            np.add.at(found[o], index, values[self.offsets[o] : self.offsets[o + 1]])
        return found

    @cached_property
    def is_complete_grid(self) -> bool:
        """Whether every observable was measured exactly once at every time."""
        every = np.arange(len(self.times))
        return all(np.array_equal(index, every) for index in self.index)

    @cached_property
    def time_differences(self) -> Array:
        """Differences of scaled times, shape (n, n)."""
        return self.scaled_times[:, None] - self.scaled_times[None, :]

    @cached_property
    def unique_lags(self) -> tuple[Array, IndexArray]:
        """The distinct lags, shape (k,), and the index of the lag of each pair of times, (n, n); few if regular."""
        found, places = np.unique(self.time_differences, return_inverse=True)
        return found, places.reshape(self.time_differences.shape)

    @cached_property
    def lag_grid(self) -> TimeLags:
        """All pairs of times, for the channel prior."""
        return TimeLags(self.scaled_times, self.observables.longest_window)

    def channel_covariance(
        self, coefficients: Coefficients, hyper: Hyperparameters, noise_variance: Array
    ) -> LagCovariance | None:
        """Return the covariance of the channel prior over all pairs of times; None if it is not finite.

        Shapes: noise_variance (n,).
        """
        parts = np.split(noise_variance, self.offsets[1:-1])
        least = np.array([np.min(part, initial=np.inf) for part in parts])
        channels = self.channel_coefficients(hyper.theta)
        return self.lag_grid.covariance(SpectralPoint.from_hyperparameters(coefficients, channels, hyper), least)

    def channel_coefficients(self, theta: Array) -> Coefficients | None:
        """Return the coefficients of all channels under the channel prior, otherwise None; the last result is cached.

        Shapes: theta (p,).
        """
        if self.prior.channels is None:
            return None
        return self._channels.find(theta.tobytes(), partial(self.prior.channels.evaluate, theta))

    def evaluate_design(self, theta: Array, *, with_gradient: bool) -> DesignWithJacobians:
        """Return coefficients, basis functions of the modes, and means at all times, scaled, with derivatives.

        The last result is cached, because many consecutive evaluations only change hyperparameters.

        Shapes: theta (p,).
        """

        def compute() -> DesignWithJacobians:
            values, own = self.observables.evaluate(theta), self.observables
            basis = own.mode_basis(values, self.prior.groups, self.scaled_times, with_jacobian=with_gradient)
            return values, basis, own.means(values, self.times, with_jacobian=with_gradient)

        return self._designs.find((theta.tobytes(), with_gradient), compute)


@dataclass(frozen=True)
class CovarianceTerms:
    """The terms of the covariance of the data, except the derivatives of kernels over pairs of times.

    coefficients: Coefficients of the measured observables.
    basis, basis_jacobian: Basis functions of the modes for each observable, (n, r), and their derivatives, (p, n, r).
    means_jacobian: Derivatives of the particular solution; (p, n).
    pair_weights: For each free function, the coefficients of the derivatives of its covariance; (o, o, m).
    mode_variance: Prior variance of the weight of each basis function; (r,).
    residual: The data minus the particular solution, in scaled units; (n,).
    noise_variance: Noise variances in scaled units; (n,).
    """

    coefficients: Coefficients
    basis: list[Array]
    basis_jacobian: list[Array]
    means_jacobian: list[Array]
    pair_weights: list[Array]
    mode_variance: Array
    residual: Array
    noise_variance: Array

    @property
    def kernel_order(self) -> int:
        """The highest derivative of a covariance that is needed."""
        return 2 * (int(self.coefficients.free.shape[-1]) - 1)


#: The derivatives of a kernel over all pairs of times, (m, n, n). If observables are averages: these for each pair of
#: observables, and these times the scaled lag, if they are needed.
PairDerivatives = dict[tuple[int, int], Array]
KernelDerivatives = Array | tuple[PairDerivatives, PairDerivatives]


def evaluate_kernel_derivatives(
    data: DenseData, latent: Kernel, lengthscale: float, order: int, windows: Array | None, *, with_gradient: bool
) -> KernelDerivatives:
    """Return the derivatives of a covariance over all pairs of times, up to an order.

    Shapes: windows (o,).
    """
    order += latent.extra_derivatives if with_gradient else 0
    if windows is None:
        u = data.time_differences / lengthscale
        stack = np.empty((order + 1, *u.shape))
        for m, part in enumerate(latent.derivatives(np, u, order)):
            stack[m] = part
        return stack
    lengths, inverse = np.unique(windows, return_inverse=True)
    by_length: tuple[PairDerivatives, PairDerivatives] = {}, {}
    lags, places = data.unique_lags
    signs, with_lag = (-1.0) ** np.arange(order + 1)[:, None, None], with_gradient and latent.needs_lag_products
    for b, a in combinations_with_replacement(range(len(lengths)), 2):
        pair = float(lengths[a]), float(lengths[b])
        stacks = average_kernel_with_lag(latent, lags, lengthscale, pair, order, with_lag=with_lag)
        # Exchanging the observables changes the sign of the lag.
        for parts, stack, sign in zip(by_length, stacks, (signs, -signs), strict=False):
            parts[b, a] = sign * stack[:, places].swapaxes(1, 2)
            parts[a, b] = stack[:, places]
    pairs = [(i, j, int(a), int(b)) for i, a in enumerate(inverse) for j, b in enumerate(inverse)]
    derivatives, lag_weighted = ({(i, j): parts[a, b] for i, j, a, b in pairs if parts} for parts in by_length)
    return derivatives, lag_weighted


def assemble_covariance(
    data: DenseData,
    kernel_derivatives: Sequence[KernelDerivatives],
    terms: CovarianceTerms,
    channel_blocks: Array | None = None,
) -> Array:
    """Return the covariance of the data without noise, for LAPACK; only the lower triangle is valid.

    Shapes: kernel_derivatives (m, n, n), channel_blocks (o o, n n).
    """
    weights, basis, variance = terms.pair_weights, terms.basis, terms.mode_variance
    edges, count, n = data.offsets, len(data.index), len(data.times)
    plain = [stack for stack in kernel_derivatives if not isinstance(stack, tuple)]
    if data.is_complete_grid and len(plain) == len(kernel_derivatives):
        total = np.zeros((count * count, n * n)) if channel_blocks is None else channel_blocks
        for stack, weight in zip(plain, weights, strict=True):
            orders = weight.shape[-1]
            total += weight.reshape(-1, orders) @ stack[:orders].reshape(orders, -1)
        # Transposed: the covariance is symmetric, and LAPACK expects column-major order.
        K = total.reshape(count, count, n, n).transpose(0, 2, 1, 3).reshape(count * n, count * n).T
        if count == 1 and channel_blocks is not None:
            # Without reordering, K would share memory with the caller's blocks, and it will be overwritten.
            K = K.copy(order="F")
        if len(variance):
            stacked = np.concatenate(basis)
            K += ((stacked * variance) @ stacked.T).T
        return K
    K = np.zeros((edges[-1], edges[-1]), order="F")
    for i in range(count):
        for j in range(i + 1):
            block = (basis[i] * variance) @ basis[j].T
            for each, weight in zip(kernel_derivatives, weights, strict=True):
                stack = each[0][i, j] if isinstance(each, tuple) else each
                block += np.tensordot(weight[i, j], stack[: weight.shape[-1]], axes=1)
            if channel_blocks is not None:
                block += channel_blocks[i * count + j].reshape(n, n)
            block = block[np.ix_(data.index[i], data.index[j])]
            K[edges[i] : edges[i + 1], edges[j] : edges[j + 1]] = block
    return K


def contract_kernel_gradient(
    data: DenseData, derivatives: KernelDerivatives, blocks: Array, kernel_index: int, lengthscale: float
) -> tuple[Array, Array]:
    """Return ``S_ijm = sum G_ij o h_m`` and the same with the lengthscale derivative of the stack.

    Shapes: derivatives (m, n, n), blocks (o o, n n).
    """
    count, latent = len(data.index), data.prior.kernels[kernel_index]
    if isinstance(derivatives, tuple):
        sums = [
            np.array([stack.reshape(len(stack), -1) @ blocks[i * count + j] for (i, j), stack in parts.items()])
            for parts in derivatives
        ]
        S = sums[0].reshape(count, count, -1)
        return S, latent.lengthscale_derivative(S, sums[1].reshape(S.shape) if len(sums[1]) else None)
    S = (blocks @ derivatives.reshape(len(derivatives), -1).T).reshape(count, count, -1)
    lagged = None
    if latent.needs_lag_products:
        on_lag = (derivatives * (data.time_differences / lengthscale)).reshape(len(derivatives), -1)
        lagged = (blocks @ on_lag.T).reshape(count, count, -1)
    return S, latent.lengthscale_derivative(S, lagged)


@lru_cache(maxsize=8)
def _strict_upper_mask(size: int) -> Mask:
    # In column-major order, as LAPACK expects.
    return np.asfortranarray(np.triu(np.ones((size, size), dtype=bool), 1))


def symmetrize(matrix: Array) -> None:
    """Copy the lower triangle to the upper one, in place and in panels, so that no second matrix is needed."""
    size, panel = len(matrix), 256
    if size <= panel:
        np.copyto(matrix, matrix.T, where=_strict_upper_mask(size))
        return
    for start in range(0, size, panel):
        stop = min(start + panel, size)
        block = np.tril(matrix[start:stop, start:stop], -1)
        matrix[start:stop, start:stop] = np.tril(matrix[start:stop, start:stop]) + block.T
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T


def split_observable_pairs(data: DenseData, G: Array) -> Array:
    """Return a symmetric matrix over all measurements with one row for each pair of observables, shape (o o, n n)."""
    edges, count, n = data.offsets, len(data.index), len(data.times)
    if data.is_complete_grid:
        # G is symmetric; its transpose has the memory order that is cheap to split.
        return G.T.reshape(count, n, count, n).transpose(0, 2, 1, 3).reshape(count * count, n * n)
    blocks = np.zeros((count * count, n * n))
    for i in range(count):
        for j in range(count):
            spread = blocks[i * count + j].reshape(n, n)
            part = G[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            np.add.at(spread, np.ix_(data.index[i], data.index[j]), part)
    return blocks


def measurement_prior_variance(
    data: DenseData, hyper: Hyperparameters, terms: CovarianceTerms, *, absolute: bool
) -> Array:
    """Return the prior variance of each measurement, shape (n,); with `absolute`, the sum of absolute terms."""
    coefficients, free = terms.coefficients, np.zeros(len(data.index))
    for number, latent in enumerate(data.prior.kernels):
        own = coefficients.free[:, number]
        if absolute:
            # Derivatives two orders apart have a negative covariance: with these signs all terms are positive.
            own = np.abs(own) * np.array([(1.0, 1.0, -1.0, -1.0)[k % 4] for k in range(own.shape[-1])])
        ell, deviation = float(hyper.lengthscales[number]), float(hyper.amplitudes[number])
        free += free_function_variance(latent, own, ell, deviation, coefficients.windows)
    return data.gather_rows([own + part**2 @ terms.mode_variance for own, part in zip(free, terms.basis, strict=True)])


def rounding_error(
    variances: Array, alpha: Array, inverse_diagonal: Array, truncation_error: float | None = None
) -> float:
    """Return the estimated rounding error of the log evidence; infinite if it is not finite.

    Entries of the covariance have errors in proportion to the square roots of `variances`; the derivative of the log
    evidence in the covariance is half of ``alpha alpha^T - K^-1``.

    Shapes: variances (n,), alpha (n,), inverse_diagonal (n,).
    """
    # The relative error of an entry and of its factorization, in practice; larger if it is a sum over many waves.
    relative = 2e-15 if truncation_error is None else 1e-14 + truncation_error
    error = relative * (0.5 * float(variances @ (alpha**2 + inverse_diagonal)) + len(variances))
    return error if np.isfinite(error) else np.inf


@dataclass(frozen=True)
class CovarianceFactor:
    """The Cholesky factor of the data covariance, with intermediate results.

    terms: The terms of the covariance.
    cholesky: Lower triangular; the upper triangle is not valid. Empty on a device; (n, n).
    alpha: ``K^-1 (y - mu)``; (n,).
    value: The log evidence in scaled units.
    error: The estimated error of the log evidence, from rounding and from jitter.
    kernel_derivatives: For each free function, the derivatives of its covariance over all pairs of times; empty on a
        device; (m, n, n).
    channel_covariance: The covariance over all pairs of times under the channel prior.
    jitter: The number added to the diagonal under the channel prior, in scaled units.
    """

    terms: CovarianceTerms
    cholesky: Array
    alpha: Array
    value: float
    error: float
    kernel_derivatives: list[KernelDerivatives]
    channel_covariance: LagCovariance | None = None
    jitter: float = 0.0


def build_covariance_terms(data: DenseData, hyper: Hyperparameters, *, with_gradient: bool) -> CovarianceTerms | None:
    """Return the terms of the covariance of the data; None if they are not finite."""
    found, (basis, d_basis), (means, d_means) = data.evaluate_design(hyper.theta, with_gradient=with_gradient)
    weights = []
    for number, latent in enumerate(data.prior.kernels if data.prior.channels is None else ()):
        latent.check_order(2 * (found.free.shape[-1] - 1))
        own = found.free[:, number]
        weights.append(pair_coefficients(np, own, own, hyper.lengthscales[number], hyper.amplitudes[number]))
    residual = data.values
    if data.observables.has_mean:
        residual = residual - data.gather_rows(means)
    noise = data.noise.variance(hyper.noise_std)
    # At times where an average was not measured, its interval may begin long before the record.
    measured = data.gather_rows(basis)
    # Checking the sum is cheaper than checking each number.
    if not np.isfinite(sum(float(part.sum()) for part in (found.free, residual, noise, measured) if part.size)):
        return None
    variance = data.prior.mode_variance(hyper.mode_amplitudes)
    return CovarianceTerms(found, basis, d_basis, d_means, weights, variance, residual, noise)


def gaussian_log_density(quadratic_form: float, half_log_det: float, count: int) -> float:
    """Return the log density of a normal distribution, from half the log determinant of its covariance."""
    return -(0.5 * quadratic_form + half_log_det + 0.5 * count * float(np.log(2 * np.pi)))


def assemble_gradient(
    data: DenseData,
    hyper: Hyperparameters,
    factor: CovarianceFactor,
    kernel_gradients: list[tuple[Array, Array]],
    mode_gradient: Array,
    diagonal: Array,
) -> Evidence:
    """Return the evidence with its gradient from the contractions of ``G = (alpha alpha^T - K^-1)/2``.

    Shapes: mode_gradient (n, r), diagonal (n,).
    """
    sizes = [len(part) for part in hyper.arrays]
    theta = np.zeros(sizes[0])
    lengthscales, deviations = np.zeros(sizes[1]), np.zeros(sizes[2])
    for number, (S, tilted) in enumerate(kernel_gradients):
        weight = factor.terms.pair_weights[number]
        orders = weight.shape[-1]
        deviations[number] = 2.0 * float(np.sum(weight * S[..., :orders]))
        lengthscales[number] = float(np.sum(weight * tilted))
        if sizes[0]:
            scale = hyper.amplitudes[number] ** 2 * hyper.lengthscales[number] ** -np.arange(orders, dtype=float)
            own = factor.terms.coefficients.free[:, number]
            count, length = own.shape
            # d/dW_ia = 2 sum_jb (-1)^b W_jb S_ij,a+b: unfold orders into pairs (a, b), then contract with W.
            pairs = (S[..., :orders] * scale) @ derivative_sign_matrix(length, length).T
            slope = 2.0 * np.tensordot(pairs.reshape(count, count, length, length), own, axes=([1, 3], [0, 1]))
            theta += factor.terms.coefficients.free_jacobian[:, :, number].reshape(sizes[0], -1) @ slope.ravel()
    mode_deviations = np.zeros(sizes[3])
    if data.prior.groups:
        variance = factor.terms.mode_variance
        quadratic = variance * np.sum(data.gather_rows(factor.terms.basis) * mode_gradient, axis=0)
        mode_deviations = 2.0 * data.prior.sum_over_groups(quadratic)
        if sizes[0]:
            pairs = zip(factor.terms.basis_jacobian, data.index, strict=True)
            d_stacked = np.concatenate([d[:, i] for d, i in pairs], axis=1)
            theta += 2.0 * d_stacked.reshape(sizes[0], -1) @ (mode_gradient * variance).ravel()
    if sizes[0] and data.observables.has_mean:
        d_mean = np.concatenate([d[:, i] for d, i in zip(factor.terms.means_jacobian, data.index, strict=True)], axis=1)
        theta += d_mean @ factor.alpha
    noise = data.noise.level_gradient(diagonal, hyper.noise_std)
    gradient = Hyperparameters(theta, lengthscales, deviations, mode_deviations, noise)
    return Evidence(factor.value + data.log_jacobian, gradient, factor.error)
