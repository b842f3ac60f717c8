"""Covariance matrix of the measurements: kernel derivatives over pairs of times, and their weighted sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from typing import Any, Self, cast

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.records import check_consistent_exact_values
from lodekit.errors import LodekitError
from lodekit.inference.stacked_measurements import StackedMeasurements
from lodekit.prior.channel_prior.lag_covariance import LagCovariance, TimeLags
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import Kernel, average_kernel_with_lag
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.prior.spectra import SpectralPoint
from lodekit.support.arguments import Array, IndexArray, Mask

#: Coefficients; basis functions of the modes and means, each with derivatives in the parameters.
DesignWithJacobians = tuple[Coefficients, tuple[list[Array], list[Array]], tuple[list[Array], list[Array]]]


@dataclass(frozen=True)
class DenseData(StackedMeasurements):
    """Measurements in memory with their prior, as the dense engine uses them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `StackedMeasurements`.
    """

    @classmethod
    def from_series(cls, prior: Prior, series: Sequence[TimeSeries]) -> Self:
        """Return measurements in memory with their prior."""
        if prior.disturbances:
            raise LodekitError("a matrix has no disturbances, which are processes with states; use engine='markov'")
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
        key = theta.tobytes()
        if self._cache.get("channels", (None,))[0] != key:
            self._cache["channels"] = (key, self.prior.channels.evaluate(theta))
        return cast(Coefficients, self._cache["channels"][1])

    @cached_property
    def _cache(self) -> dict[str, tuple[Any, Any]]:
        return {}

    def evaluate_design(self, theta: Array, *, with_gradient: bool) -> DesignWithJacobians:
        """Return coefficients, basis functions of the modes, and means at all times, scaled, with derivatives.

        The last result is cached, because many consecutive evaluations only change hyperparameters.

        Shapes: theta (p,).
        """
        key = (theta.tobytes(), with_gradient)
        if self._cache.get("design", (None,))[0] != key:
            values, own = self.observables.evaluate(theta), self.observables
            basis = own.mode_basis(values, self.prior.groups, self.scaled_times, with_jacobian=with_gradient)
            means = own.means(values, self.times, with_jacobian=with_gradient)
            self._cache["design"] = key, (values, basis, means)
        return cast(DesignWithJacobians, self._cache["design"][1])


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
