"""Reduction of the measurements of a block to the dimension of the state at its start.

Given this state x, the measurements of a block are whitened, ``y~ = H~ x + e``, and multiplied by the orthonormal Q of
``H~ = Q R``: ``z = Q'y~`` is a sufficient statistic for x, and the rest contributes a sum of squares. Regular blocks
are whitened by the inverse Cholesky factor of their covariance, irregular ones by a Kalman filter inside each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.kalman.block_model import BlockModel, SegmentPlan, invert_cholesky_factors
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout
from lodekit.inference.kalman.discretize import factor_semidefinite
from lodekit.inference.kalman.irregular import IrregularBlocks, filter_irregular_blocks
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class ReducedBlocks:
    """Regular blocks, one for each pattern, reduced to ``z = H x + e``.

    signal_variances: Variances of the measurements without their noise; (u, m).
    whitening_matrix: Inverse of the Cholesky factor of the measurement covariance, given the state at the start;
        (u, m, m).
    half_log_det: Half the log determinant of that covariance; (u,).
    whitened_H: Whitened observation matrix for the state at the start; (u, m, s).
    noise_gain: Gain from whitened measurements to the process noise in the state at the end; (u, n, m).
    basis: Q of the QR factorization of `whitened_H`, padded with zero rows if m <= s; (u, m, s).
    H, Phi, Q_root: R of this factorization; transition to the next block, given the measurements; a root of the
        covariance of its noise; (u, s, s).
    """

    block_model: BlockModel
    signal_variances: Array
    whitening_matrix: Array
    half_log_det: Array
    whitened_H: Array
    noise_gain: Array
    basis: Array
    H: Array
    Phi: Array
    Q_root: Array

    def select(self, where: slice) -> ReducedBlocks:
        """Return some of the patterns; `block_model` stays that of all."""
        parts = {name: value[where] for name, value in vars(self).items() if name != "block_model"}
        return ReducedBlocks(self.block_model, **parts)

    def measurement_scores(self, y: Array, reduced_scores: Array, end_scores: Array) -> Array:
        """Return derivatives of the log evidence in the means of whitened measurements, shape (u, m, k).

        Shapes: y (u, m, k), reduced_scores (u, s, k), end_scores (u, s, k).
        """
        _, residual = self.project(self.whitening_matrix @ y)
        scores = (residual + self.basis @ reduced_scores)[:, : y.shape[1]]
        return scores - self.noise_gain.swapaxes(-1, -2) @ end_scores[:, : self.noise_gain.shape[1]]

    def project(self, z: Array) -> tuple[Array, Array]:
        """Return coefficients of whitened values in the basis, (u, s, k), and the residuals, (u, m, k).

        Shapes: z (u, m, k).
        """
        missing = self.basis.shape[1] - z.shape[1]
        if missing:
            z = np.concatenate([z, np.zeros((len(z), missing, z.shape[2]))], axis=1)
        transposed = self.basis.swapaxes(-1, -2)
        first = transposed @ z
        residual = z - self.basis @ first
        # Twice: exact values are huge in units of their noise, and rounding would leave some of them in the residuals.
        second = transposed @ residual
        return first + second, residual - self.basis @ second


def orthonormalize(whitened_H: Array) -> tuple[Array, Array]:
    """Return Q, padded with zero rows to at least s + 1 rows, and R of the QR factorizations of matrices.

    Shapes: whitened_H (u, m, s).
    """
    count, rows, size = whitened_H.shape
    padded = np.zeros((count, max(rows, size + 1), size))
    padded[:, :rows] = whitened_H
    if not size:
        return padded, np.zeros((count, 0, 0))
    R, order = np.zeros((count, size, size)), _order_by_magnitude(padded.swapaxes(1, 2))
    if order is not None:
        padded = np.take_along_axis(padded, order[:, :, None], axis=1)
    for Q, R_factor in zip(padded, R, strict=True):
        factor, tau, _, _ = lapack.dgeqrf(Q)
        R_factor[:] = factor[:size]
        Q[:] = lapack.dorgqr(factor, tau, overwrite_a=1)[0]
    if order is not None:
        np.put_along_axis(padded, order[:, :, None], padded.copy(), axis=1)
    return padded, R * np.triu(np.ones((size, size)))


def _order_by_magnitude(columns: Array) -> IndexArray | None:
    """Return the order of rows by decreasing size, (u, m); None if they are of similar size.

    Exact values and growing modes lead to some large rows; Householder reflections that begin with a small row lose
    its digits.

    Shapes: columns (u, s, m).
    """
    sizes = np.abs(columns).max(axis=1, initial=0.0)
    first = sizes[:, : columns.shape[1]]
    # Zero rows have no digits to lose.
    smallest = np.where(first > 0, first, np.inf).min(axis=1, initial=np.inf)
    if (sizes.max(axis=1, initial=0.0) <= 100.0 * smallest).all():
        return None
    return np.argsort(-sizes, axis=1, kind="stable")


@dataclass(frozen=True)
class ReducedIrregularBlocks:
    """Irregular blocks, reduced together with their values: the last column of their QR factorization.

    R_factor: R of the QR factorization of whitened observation matrix and measurements; (u, s + 1, s + 1).
    reflectors, tau: Householder reflectors and factors of Q; (u, s + 1, m) and (u, s + 1).
    row_order: The order of rows in the factorization, if they are not of similar size; (u, m).
    """

    irregular_blocks: IrregularBlocks
    R_factor: Array
    reflectors: Array
    tau: Array
    row_order: IndexArray | None = None

    @classmethod
    def of(
        cls, model: StateSpaceModel, layout: BlockLayout, group_index: int, noise_variance: Array, values: Array
    ) -> ReducedIrregularBlocks:
        """Filter and reduce the blocks of a group.

        Shapes: noise_variance (n,), values (b, m, 1).
        """
        own = values[layout.chunk_groups[group_index].single_blocks.blocks.ravel()]
        own = own.reshape(len(own), layout.rows_per_block, -1)
        blocks = filter_irregular_blocks(model, layout.get_irregular_rows(group_index), own, noise_variance)
        reflectors, tau, order = _factor_householder(blocks.whitened_H_and_z)
        return cls(blocks, np.triu(reflectors[:, :, : model.size + 1].swapaxes(1, 2)), reflectors, tau, order)

    @cached_property
    def Q_factor(self) -> Array:
        """Q with zero rows if m <= s, shape (u, m, s + 1); overwrites `reflectors`."""
        for own, tau in zip(self.reflectors, self.tau, strict=True):
            lapack.dorgqr(own.T, tau, overwrite_a=1)
        if self.row_order is not None:
            np.put_along_axis(self.reflectors, self.row_order[:, None], self.reflectors.copy(), axis=2)
        return self.reflectors.swapaxes(1, 2)

    @property
    def basis(self) -> Array:
        """As in `ReducedBlocks`, shape (u, m, s)."""
        return self.Q_factor[:, :, :-1]

    @property
    def H(self) -> Array:
        """As in `ReducedBlocks`, shape (u, s, s)."""
        return self.R_factor[:, :-1, :-1]

    @property
    def z(self) -> Array:
        """The reduced measurements, shape (u, s, 1)."""
        return self.R_factor[:, :-1, -1:]

    @property
    def Phi(self) -> Array:
        """As in `ReducedBlocks`, shape (u, s, s)."""
        return self.irregular_blocks.Phi

    @property
    def Q_root(self) -> Array:
        """As in `ReducedBlocks`, shape (u, s, s)."""
        found, n = np.zeros(self.H.shape), self.irregular_blocks.model.n_stochastic
        found[:, :n, :n] = factor_semidefinite(self.irregular_blocks.Q)
        return found

    @property
    def half_log_det(self) -> Array:
        """As in `ReducedBlocks`, shape (u,)."""
        return self.irregular_blocks.half_log_det

    @property
    def residual_ss(self) -> Array:
        """Sum of squares of the residuals, shape (u, 1)."""
        return self.R_factor[:, -1, -1:] ** 2

    @property
    def residual_error(self) -> float:
        """Squared error of the log evidence from relative errors of measurements, estimated from every fourth row."""
        own = self.irregular_blocks.whitened_H_and_z[::4]
        H, z = own[:, :, :-1], own[:, :, -1]
        residual = z - np.einsum("pwsu,su->pwu", H, _solve_upper_triangular(self.H, self.z[:, :, 0]).T)
        return 4 * float(np.sum((residual * z) ** 2))

    @property
    def n_elements(self) -> int:
        """Approximate number of elements of all arrays."""
        return self.reflectors.size + self.irregular_blocks.n_elements

    def measurement_gradient(self, start_means: Array, reduced_scores: Array, grad_whitened_H: Array) -> Array:
        """Return derivatives in whitened observation matrices and measurements, shape (u, m, s + 1).

        Shapes: start_means (u, s, 1), reduced_scores (u, s, 1), grad_whitened_H (u, s, s).
        """
        # e x' and e, with e the scores in all directions of Q, plus what depends on covariances.
        e = np.concatenate([reduced_scores, self.R_factor[:, -1:, -1:]], axis=1)
        parts = np.concatenate([e * start_means.swapaxes(-1, -2), -e], axis=2)
        parts[:, :-1, :-1] += grad_whitened_H
        return np.asarray(self.Q_factor @ parts)


def _factor_householder(whitened_rows: Array) -> tuple[Array, Array, IndexArray | None]:
    """Factor whitened observation matrices and measurements; return reflectors, tau and row order.

    Shapes: whitened_rows (p, w, s + 1, u).
    """
    places, width, size, count = whitened_rows.shape
    rows, length = places * width, max(places * width, size)
    # Columns that are a power of two apart would push each other out of the cache.
    own = np.zeros((count, size * length + 9))[:, : size * length].reshape(count, size, length)
    flat, tau = whitened_rows.reshape(rows, size, count), np.zeros((count, size))
    # 128 rows are transposed at a time: source and target both stay in the cache.
    for start in range(0, rows, 128):
        part = slice(start, min(start + 128, rows))
        own[:, :, part] = flat[part].transpose(2, 1, 0)
    order = _order_by_magnitude(own[:, :-1])
    if order is not None:
        own[:] = np.take_along_axis(own, order[:, None], axis=2)
    for number, matrix in enumerate(own):
        tau[number] = lapack.dgeqrf(matrix.T, overwrite_a=1)[1]
    return own, tau, order


def _solve_upper_triangular(R_factor: Array, z: Array) -> Array:
    """Solve ``R x = z`` for many upper triangular R, shape (u, s); components that are not determined are zero.

    Shapes: R_factor (u, s, s), z (u, s).
    """
    x = np.zeros_like(z)
    for i in range(z.shape[1] - 1, -1, -1):
        pivot = R_factor[:, i, i]
        rest = z[:, i] - np.einsum("us,us->u", R_factor[:, i, i + 1 :], x[:, i + 1 :])
        is_determined = np.abs(pivot) > 1e-13 * np.abs(R_factor[:, :, i]).max(axis=1, initial=0.0)
        np.divide(rest, pivot, out=x[:, i], where=is_determined)
    return x


def stack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Return arrays of each block, (b, m, k), with the blocks of a pattern side by side as columns: (u, m, often k)."""
    own = values[chunk.blocks].swapaxes(1, 2)
    return own.reshape(*own.shape[:2], own.shape[2] * own.shape[3])


def unstack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Undo `stack_by_pattern`: return (u, often, m, k) from (u, m, often k)."""
    count, size, width = values.shape
    often = chunk.blocks.shape[1]
    return values.reshape(count, size, often, width // often).swapaxes(1, 2)


def whiten_blocks(
    model: StateSpaceModel, layout: BlockLayout, plan: SegmentPlan, noise_variance: Array
) -> ReducedBlocks:
    """Whiten and reduce regular blocks by their covariance matrices.

    Shapes: noise_variance (n,).
    """
    blocks, size, n = plan.blocks, model.size, model.n_stochastic
    inner = BlockModel(layout.discretize_model(model, plan.step_index), plan, layout.observable_index[0].size)
    K = inner.measurement_covariance.copy()
    diagonal = np.einsum("uii->ui", K)
    variances = diagonal.copy()
    numbers = layout.measurement_index[blocks].reshape(len(blocks), -1)
    diagonal += np.where(numbers >= 0, noise_variance[numbers], 1.0)
    # The last block of a record is shorter: it has no measurements after its last one.
    whitening = invert_cholesky_factors(K, numbers.shape[1] - np.argmax(numbers[:, ::-1] >= 0, axis=1))
    half_log_det = -np.log(np.einsum("uii->ui", whitening)).sum(axis=1)
    whitened_H = whitening @ inner.H
    gain = inner.cross_covariance @ whitening.swapaxes(-1, -2)
    Phi, Q_root = inner.Phi.copy(), np.zeros((len(blocks), size, size))
    Phi[:, :n] -= gain @ whitened_H
    Q_root[:, :n, :n] = factor_semidefinite(inner.Q - gain @ gain.swapaxes(-1, -2))
    parts = variances, whitening, half_log_det, whitened_H, gain, *orthonormalize(whitened_H), Phi, Q_root
    return ReducedBlocks(inner, *parts)
