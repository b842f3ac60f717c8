"""Reduction of the measurements of a block to the dimension of the state at its start.

Given this state x, the measurements of a block are whitened, ``y~ = H~ x + e``, and multiplied by the orthonormal basis
B of the QR factorization ``H~ = B H``: ``z = B'y~ = H x + e`` is a sufficient statistic for x, and the residual
contributes a sum of squares. Regular blocks are whitened by the inverse Cholesky factor of their covariance, irregular
ones by a Kalman filter inside each (`irregular`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from lodekit.inference.kalman.block_model import BlockModel, SegmentPlan, invert_cholesky_factors
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout
from lodekit.inference.kalman.discretize import factor_semidefinite
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.support.arguments import Array, IndexArray


@dataclass(frozen=True)
class ReducedBlocks:
    """Regular blocks, one for each pattern, reduced to ``z = H x + e``.

    signal_variances: Variances of the measurements without their noise; (u, m).
    whitening_matrix: Inverse of the Cholesky factor of the measurement covariance, given the state at the start;
        (u, m, m).
    half_log_det: Half the log determinant of that covariance; (u,).
    whitened_H: Whitened observation matrix for the state at the start; (u, m, s).
    noise_gain: Gain from whitened measurements to the process noise in the state at the end; (u, n, m).
    basis, H: QR factorization of `whitened_H`, padded with zero rows if m <= s; (u, m, s) and (u, s, s).
    Phi, Q_root: Transition to the next block, given the measurements, and a root of the covariance of its noise;
        (u, s, s).
    noise_std: Standard deviation of this noise without the measurements; (u, n).
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
    noise_std: Array

    def select(self, where: slice) -> ReducedBlocks:
        """Return some of the patterns; `block_model` remains that of all patterns."""
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
        # Twice: exact values are huge in units of their noise, and rounding errors would remain in the residuals.
        second = transposed @ residual
        return first + second, residual - self.basis @ second


def orthonormalize(whitened_H: Array) -> tuple[Array, Array]:
    """Return basis, padded with zero rows to at least s + 1 rows, and H of the QR factorizations of matrices.

    Shapes: whitened_H (u, m, s).
    """
    count, rows, size = whitened_H.shape
    padded = np.zeros((count, max(rows, size + 1), size))
    padded[:, :rows] = whitened_H
    if not size:
        return padded, np.zeros((count, 0, 0))
    H, order = np.zeros((count, size, size)), order_by_magnitude(padded.swapaxes(1, 2))
    if order is not None:
        padded = np.take_along_axis(padded, order[:, :, None], axis=1)
    for basis, triangular in zip(padded, H, strict=True):
        factor, tau, _, _ = lapack.dgeqrf(basis)
        triangular[:] = factor[:size]
        basis[:] = lapack.dorgqr(factor, tau, overwrite_a=1)[0]
    if order is not None:
        np.put_along_axis(padded, order[:, :, None], padded.copy(), axis=1)
    return padded, H * np.triu(np.ones((size, size)))


def order_by_magnitude(columns: Array) -> IndexArray | None:
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


def stack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Return arrays of each block, (b, m, k), with the blocks of a pattern side by side as columns: (u, m, often k)."""
    columns = values[chunk.blocks].swapaxes(1, 2)
    return columns.reshape(*columns.shape[:2], columns.shape[2] * columns.shape[3])


def unstack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Undo `stack_by_pattern`: return (u, often, m, k) from (u, m, often k)."""
    count, size, width = values.shape
    often = chunk.blocks.shape[1]
    return values.reshape(count, size, often, width // often).swapaxes(1, 2)


def whiten_blocks(model: StateSpaceModel, layout: BlockLayout, plan: SegmentPlan, R: Array) -> ReducedBlocks:
    """Whiten and reduce regular blocks by their covariance matrices, with noise variances R, shape (n,)."""
    blocks, size, n = plan.blocks, model.size, model.n_stochastic
    inner = BlockModel(layout.discretize_model(model, plan.step_index), plan, layout.observable_index[0].size)
    S = inner.measurement_covariance.copy()
    diagonal = np.einsum("uii->ui", S)
    variances = diagonal.copy()
    numbers = layout.measurement_index[blocks].reshape(len(blocks), -1)
    diagonal += np.where(numbers >= 0, R[numbers], 1.0)
    # The last block of a record is shorter: it has no measurements after its last one.
    whitening = invert_cholesky_factors(S, numbers.shape[1] - np.argmax(numbers[:, ::-1] >= 0, axis=1))
    half_log_det = -np.log(np.einsum("uii->ui", whitening)).sum(axis=1)
    whitened_H = whitening @ inner.H
    gain = inner.cross_covariance @ whitening.swapaxes(-1, -2)
    Phi, Q_root = inner.Phi.copy(), np.zeros((len(blocks), size, size))
    Phi[:, :n] -= gain @ whitened_H
    Q_root[:, :n, :n] = factor_semidefinite(inner.Q - gain @ gain.swapaxes(-1, -2))
    noise_std = np.sqrt(np.einsum("uii->ui", inner.Q))
    parts = variances, whitening, half_log_det, whitened_H, gain, *orthonormalize(whitened_H), Phi, Q_root, noise_std
    return ReducedBlocks(inner, *parts)
