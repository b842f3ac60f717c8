"""What the covariance of the data is made of: stacks of derivatives over pairs of times, and sums of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.dense.data import DenseData
from lodekit.prior.compile import Coefficients
from lodekit.prior.latents import Latent
from lodekit.prior.windows import window_stacks

__all__ = ["PairStacks", "Prepared", "Stack", "assemble", "contract", "make_stack"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prepared:
    """All that the covariance of the data is made of, but the derivatives of the covariances over pairs of times.

    Parameters
    ----------
    coefficients : Coefficients
    basis, d_basis : lists of arrays
        Basis functions of the modes for each observable, (n, r), and their derivatives, (p, n, r).
    d_means : list of arrays, shape (p, n)
        Derivatives of the particular solution.
    weights : list of arrays, shape (o, o, m)
        For each free function, the coefficients of the derivatives of its covariance.
    mode_variance : array, shape (r,)
    residual : array, shape (n,)
        The data without the particular solution, in scaled units.
    noise : array, shape (n,)
        Variances in scaled units.
    """

    coefficients: Coefficients
    basis: list[Array]
    d_basis: list[Array]
    d_means: list[Array]
    weights: list[Array]
    mode_variance: Array
    residual: Array
    noise: Array

    @property
    def order(self) -> int:
        """The highest derivative of a covariance that is needed."""
        return 2 * (int(self.coefficients.free.shape[-1]) - 1)


@dataclass(frozen=True)
class PairStacks:
    """Derivatives of a covariance over all pairs of times, for averages: other ones for each pair of intervals.

    Parameters
    ----------
    group : array of int, shape (o,)
        The number of the interval of each observable.
    stacks : dict of (int, int) to array, shape (m, n, n)
        By the numbers of two intervals.
    lagged : dict of (int, int) to array, shape (m, n, n)
        Averages of the same times the scaled lag, where these are needed.
    """

    group: NDArray[np.intp]
    stacks: dict[tuple[int, int], Array]
    lagged: dict[tuple[int, int], Array]

    def of(self, i: int, j: int) -> Array:
        """Return those of two observables.

        Parameters
        ----------
        i, j : int
            Their numbers.
        """
        return self.stacks[int(self.group[i]), int(self.group[j])]

    def contract(self, blocks: Array) -> tuple[Array, Array | None]:
        """Return sums of blocks times the derivatives for each pair of observables, and times those with the lag.

        Parameters
        ----------
        blocks : array, shape (o o, n n)
        """
        count, found = len(self.group), []
        for parts in (self.stacks, self.lagged):
            total = np.zeros((count, count, len(next(iter(self.stacks.values())))))
            for i, j in np.ndindex(count, count) if parts else ():
                own = parts[int(self.group[i]), int(self.group[j])]
                total[i, j] = own.reshape(len(own), -1) @ blocks[i * count + j]
            found.append(total)
        return found[0], found[1] if self.lagged else None


Stack = Array | PairStacks


def make_stack(
    data: DenseData, latent: Latent, lengthscale: float, order: int, windows: Array | None, *, slopes: bool
) -> Stack:
    """Return the derivatives of a covariance over all pairs of times, up to an order.

    Parameters
    ----------
    data : DenseData
    latent : Latent
    lengthscale : float
    order : int
    windows : array, shape (o,), or None
        The intervals over which the observables are averaged.
    slopes : bool
        Whether a gradient will be wanted.
    """
    order += latent.extra if slopes else 0
    if windows is None:
        u = data.lag / lengthscale
        stack = np.empty((order + 1, *u.shape))
        for m, part in enumerate(latent.stack(np, u, order)):
            stack[m] = part
        return stack
    lengths, group = np.unique(windows, return_inverse=True)
    found: list[dict[tuple[int, int], Array]] = [{}, {}]
    lags, places = data.different_lags
    signs = (-1.0) ** np.arange(order + 1)[:, None, None]
    for a, b in zip(*np.tril_indices(len(lengths)), strict=True):
        pair = float(lengths[a]), float(lengths[b])
        own = window_stacks(latent, lags, lengthscale, pair, order, lagged=slopes and latent.needs_lag)
        # In the other order the lag has the other sign.
        for parts, stack, sign in zip(found, own, (signs, -signs), strict=False):
            parts[int(b), int(a)] = sign * stack[:, places].swapaxes(1, 2)
            parts[int(a), int(b)] = stack[:, places]
    return PairStacks(group, *found)


def assemble(data: DenseData, stacks: Sequence[Stack], prepared: Prepared, blocks: Array | None = None) -> Array:
    """Return the covariance of the data without noise, for LAPACK; only the lower triangle is meant.

    Parameters
    ----------
    data : DenseData
    stacks : sequence of arrays, shape (m, n, n), or of PairStacks
        For each free function, the derivatives of its covariance over all pairs of times.
    prepared : Prepared
    blocks : array, shape (o o, n n), optional
        The covariance over all pairs of times without the modes, where there are no stacks.
    """
    weights, basis, variance = prepared.weights, prepared.basis, prepared.mode_variance
    edges, count, n = data.edges, len(data.index), len(data.times)
    plain = [stack for stack in stacks if not isinstance(stack, PairStacks)]
    if data.is_full and len(plain) == len(stacks):
        total = np.zeros((count * count, n * n)) if blocks is None else blocks
        for stack, weight in zip(plain, weights, strict=True):
            orders = weight.shape[-1]
            total += weight.reshape(-1, orders) @ stack[:orders].reshape(orders, -1)
        # Rows and columns change places: the covariance is symmetric, and LAPACK wants its columns together.
        K = total.reshape(count, count, n, n).transpose(0, 2, 1, 3).reshape(count * n, count * n).T
        if count == 1 and blocks is not None:
            # Nothing has changed places then: K would be the caller's blocks, and it will be written over.
            K = K.copy(order="F")
        if len(variance):
            stacked = np.concatenate(basis)
            K += ((stacked * variance) @ stacked.T).T
        return K
    K = np.zeros((edges[-1], edges[-1]), order="F")
    for i in range(count):
        for j in range(i + 1):
            block = (basis[i] * variance) @ basis[j].T
            for each, weight in zip(stacks, weights, strict=True):
                own = each.of(i, j) if isinstance(each, PairStacks) else each
                block += np.tensordot(weight[i, j], own[: weight.shape[-1]], axes=1)
            if blocks is not None:
                block += blocks[i * count + j].reshape(n, n)
            block = block[np.ix_(data.index[i], data.index[j])]
            K[edges[i] : edges[i + 1], edges[j] : edges[j + 1]] = block
    return K


def contract(data: DenseData, stack: Stack, blocks: Array, number: int, lengthscale: float) -> tuple[Array, Array]:
    """Return ``S_ijm = sum G_ij o h_m`` and the same with the lengthscale derivative of the stack.

    Parameters
    ----------
    data : DenseData
    stack : array, shape (m, n, n), or PairStacks
        Of a free function.
    blocks : array, shape (o o, n n)
        G, one row for each pair of observables.
    number : int
        Which free function.
    lengthscale : float
        Its own.
    """
    count, latent = len(data.index), data.latents[number]
    if isinstance(stack, PairStacks):
        S, lagged = stack.contract(blocks)
        return S, latent.tilt(S, lagged)
    S = (blocks @ stack.reshape(len(stack), -1).T).reshape(count, count, -1)
    lagged = None
    if latent.needs_lag:
        on_lag = (stack * (data.lag / lengthscale)).reshape(len(stack), -1)
        lagged = (blocks @ on_lag.T).reshape(count, count, -1)
    return S, latent.tilt(S, lagged)
