"""Measurements inside blocks, whitened given the state at the start of their block: by a matrix, or one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.kalman.block_model import BlockModel, SegmentPlan, build_block_models, invert_cholesky_factors
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout
from lodekit.inference.kalman.irregular import IrregularBlocks, filter_irregular_blocks
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
#: So many rows are turned around at the same time: what is read and what is written both stay in the cache.
_CHUNK_ROWS = 128
#: Of so many places one tells how large measurements are.
_SAMPLING_STRIDE = 4
#: States that are told by less than this share of what is said of them together with others are not told.
_RANK_TOLERANCE = 1e-13
#: Where some rows are so many times as large as one of the first, they come first.
_MAX_ROW_RATIO = 100.0


@dataclass(frozen=True)
class ReducedBlocks:
    """Blocks of different patterns with their measurements whitened, given the state at the start of each.

    signal_variances: Of the measurements without their noise; (u, m).
    whitening_matrix: The inverse of the Cholesky factor of the covariance with noise; (u, m, m).
    half_log_det: Half the logarithm of its determinant; (u,).
    whitened_H: What measurements say of the state at the start; (u, m, s).
    noise_gain: What measurements say of the noise that states have at the end; (u, n, m).
    basis: Orthonormal columns that span those of the design; rows of zeros are added where these are more; (u, m, s).
    H, Phi, Q_root: The design in that basis; how the state moves to the next block, given the measurements; a root of
        the noise of that; (u, s, s).
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
        """Return some of the patterns; what is inside stays that of all."""
        own = {name: value[where] for name, value in vars(self).items() if name != "block_model"}
        return ReducedBlocks(self.block_model, **own)

    def measurement_scores(self, y: Array, reduced_scores: Array, end_scores: Array) -> Array:
        """Return derivatives of the log evidence in the means of whitened measurements, shape (u, m, k).

        Shapes: y (u, m, k), reduced_scores (u, s, k), end_scores (u, s, k).
        """
        m = y.shape[1]
        _, left = self.project(self.whitening_matrix @ y)
        return (left + self.basis @ reduced_scores)[:, :m] - self.noise_gain.swapaxes(-1, -2) @ end_scores[
            :, : self.noise_gain.shape[1]
        ]

    def project(self, z: Array) -> tuple[Array, Array]:
        """Return whitened values in the basis of the design, (u, s, k), and what is left of them, (u, m, k).

        Shapes: z (u, m, k).
        """
        return _project_onto_basis(self.basis, z)


def _project_onto_basis(basis: Array, z: Array) -> tuple[Array, Array]:
    missing = basis.shape[1] - z.shape[1]
    if missing:
        z = np.concatenate([z, np.zeros((len(z), missing, z.shape[2]))], axis=1)
    turned = basis.swapaxes(-1, -2)
    own = turned @ z
    left = z - basis @ own
    # Once more: exact values are huge in units of their noise, and rounding would leave some of them.
    more = turned @ left
    return own + more, left - basis @ more


def _basis_rows(rows: int, size: int) -> int:
    """Return how many rows a basis has: one more than columns at least, for what is left of values."""
    return max(rows, size + 1)


def orthonormalize(whitened_H: Array) -> tuple[Array, Array]:
    """Return orthonormal columns that span those of designs, with rows of zeros added where these are more; and R.

    Shapes: whitened_H (u, m, s).
    """
    count, rows, size = whitened_H.shape
    padded = np.zeros((count, _basis_rows(rows, size), size))
    padded[:, :rows] = whitened_H
    if not size:
        return padded, np.zeros((count, 0, 0))
    R, order = np.zeros((count, size, size)), _order_by_magnitude(padded.swapaxes(1, 2))
    if order is not None:
        padded = np.take_along_axis(padded, order[:, :, None], axis=1)
    for own, inner in zip(padded, R, strict=True):
        factor, tau, _, _ = lapack.dgeqrf(own)
        inner[:] = factor[:size]
        own[:] = lapack.dorgqr(factor, tau, overwrite_a=1)[0]
    if order is not None:
        np.put_along_axis(padded, order[:, :, None], padded.copy(), axis=1)
    return padded, R * np.triu(np.ones((size, size)))


def _order_by_magnitude(columns: Array) -> IndexArray | None:
    """Return the order in which rows should come, (u, m); None where they are of similar size, and any order will do.

    Exact values, and modes that grow, make rows that are large beside others; reflections that begin with a small one
    lose its digits.

    Shapes: columns (u, s, m).
    """
    sizes = np.abs(columns).max(axis=1, initial=0.0)
    first = sizes[:, : columns.shape[1]]
    # Rows of zeros have no digits to lose.
    smallest = np.where(first > 0, first, np.inf).min(axis=1, initial=np.inf)
    if (sizes.max(axis=1, initial=0.0) <= _MAX_ROW_RATIO * smallest).all():
        return None
    return np.argsort(-sizes, axis=1, kind="stable")


@dataclass(frozen=True)
class ReducedIrregularBlocks:
    """Blocks that share nothing, with their measurements whitened one after the other.

    R_factor: Upper triangles: designs, and the measurements behind them, are Q times these; (u, s + 1, s + 1).
    reflectors: What Q is made of, with R; (u, s + 1, m).
    tau: shape (u, s + 1)
    row_order: In which measurements were taken for that, where they are not of similar size; (u, m).
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
        """Return the blocks of a family.

        Shapes: noise_variance (n,), values (b, m, 1).
        """
        own = values[layout.chunk_groups[group_index].chunks[0].blocks.ravel()]
        swept = filter_irregular_blocks(
            model,
            layout.get_irregular_rows(group_index),
            own.reshape(len(own), layout.rows_per_block, -1),
            noise_variance,
        )
        reflections, factors, order = _factor_householder(swept.whitened_H_and_z)
        R = np.triu(reflections[:, :, : model.size + 1].swapaxes(1, 2))
        return cls(swept, R, reflections, factors, order)

    @cached_property
    def Q_factor(self) -> Array:
        """Orthonormal columns, with rows of zeros where columns are more, shape (u, m, s + 1)."""
        for own, factors in zip(self.reflectors, self.tau, strict=True):
            # In place: nobody needs the reflections any more.
            lapack.dorgqr(own.T, factors, overwrite_a=1)
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
        """Whitened measurements in the basis, shape (u, s, 1)."""
        return self.R_factor[:, :-1, -1:]

    @property
    def residual_ss(self) -> Array:
        """What is left of them, squared and summed up, shape (u, 1)."""
        return self.R_factor[:, -1, -1:] ** 2

    @property
    def residual_error(self) -> float:
        """What relative errors of measurements do to the log evidence, squared; about, as some of them tell."""
        own = self.irregular_blocks.whitened_H_and_z[::_SAMPLING_STRIDE]
        design, z = own[:, :, :-1], own[:, :, -1]
        left = z - np.einsum("pwsu,su->pwu", design, _solve_upper_triangular(self.H, self.z[:, :, 0]).T)
        return _SAMPLING_STRIDE * float(np.sum((left * z) ** 2))

    @property
    def n_elements(self) -> int:
        """About how many numbers it has."""
        return self.reflectors.size + self.irregular_blocks.n_elements

    def measurement_gradient(self, start_means: Array, reduced_scores: Array, grad_whitened_H: Array) -> Array:
        """Return derivatives in designs and in the measurements behind them, shape (u, m, s + 1).

        Shapes: start_means (u, s, 1), reduced_scores (u, s, 1), grad_whitened_H (u, s, s).
        """
        # All of them are e x', e, and what goes through covariances, where e is what is left and the basis times told.
        e = np.concatenate([reduced_scores, self.R_factor[:, -1:, -1:]], axis=1)
        parts = np.concatenate([e * start_means.swapaxes(-1, -2), -e], axis=2)
        parts[:, :-1, :-1] += grad_whitened_H
        return np.asarray(self.Q_factor @ parts)


def _factor_householder(whitened_rows: Array) -> tuple[Array, Array, IndexArray | None]:
    """Return reflections that make triangles of designs and measurements, factors and order, as `ReducedIrregularBlocks` has them.

    Shapes: whitened_rows (p, w, s + 1, u).
    """
    places, width, size, count = whitened_rows.shape
    rows = places * width
    length = _basis_rows(rows, size - 1)
    # Columns that are a power of two apart would push each other out of the cache.
    own = np.zeros((count, size * length + 9))[:, : size * length].reshape(count, size, length)
    flat, factors = whitened_rows.reshape(rows, size, count), np.zeros((count, size))
    for start in range(0, rows, _CHUNK_ROWS):
        part = slice(start, min(start + _CHUNK_ROWS, rows))
        own[:, :, part] = flat[part].transpose(2, 1, 0)
    order = _order_by_magnitude(own[:, :-1])
    if order is not None:
        own[:] = np.take_along_axis(own, order[:, None], axis=2)
    for number, found in enumerate(own):
        factors[number] = lapack.dgeqrf(found.T, overwrite_a=1)[1]
    return own, factors, order


def _solve_upper_triangular(R_factor: Array, z: Array) -> Array:
    """Return x with R x = c, shape (u, s), for upper triangles; zero for what is not told.

    Shapes: R_factor, z (u, s, s) and (u, s).
    """
    found = np.zeros_like(z)
    for i in range(z.shape[1] - 1, -1, -1):
        pivot = R_factor[:, i, i]
        left = z[:, i] - np.einsum("us,us->u", R_factor[:, i, i + 1 :], found[:, i + 1 :])
        is_told = np.abs(pivot) > _RANK_TOLERANCE * np.abs(R_factor[:, :, i]).max(axis=1, initial=0.0)
        np.divide(left, pivot, out=found[:, i], where=is_told)
    return found


def stack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Return something of each block, (b, m, k), with the blocks of a pattern as columns: (u, m, often k).

    Shapes: values (b, m, k).
    """
    own = values[chunk.blocks].swapaxes(1, 2)
    return own.reshape(*own.shape[:2], own.shape[2] * own.shape[3])


def unstack_by_pattern(values: Array, chunk: BlockChunk) -> Array:
    """Return the way back from `stack_by_pattern`, shape (u, often, m, k).

    Shapes: values (u, m, often k).
    """
    count, size, width = values.shape
    often = chunk.blocks.shape[1]
    return values.reshape(count, size, often, width // often).swapaxes(1, 2)


def whiten_blocks(
    model: StateSpaceModel, layout: BlockLayout, plan: SegmentPlan, noise_variance: Array
) -> ReducedBlocks:
    """Return some blocks by their matrices.

    Shapes: noise_variance (n,).
    """
    blocks = plan.blocks
    inside = build_block_models(layout.discretize_model(model, plan.step_index), plan, layout.observable_index[0].size)
    K = inside.measurement_covariance.copy()
    diagonal = np.einsum("uii->ui", K)
    variances = diagonal.copy()
    numbers = layout.measurement_index[blocks].reshape(len(blocks), -1)
    diagonal += np.where(numbers >= 0, noise_variance[numbers], 1.0)
    # The last block of a record is shorter: nothing is there behind its last measurement.
    inverse = invert_cholesky_factors(K, numbers.shape[1] - np.argmax(numbers[:, ::-1] >= 0, axis=1))
    half_log = -np.log(np.einsum("uii->ui", inverse)).sum(axis=1)
    design = inverse @ inside.H
    gain = inside.cross_covariance @ inverse.swapaxes(-1, -2)
    count, size, n = len(blocks), model.size, model.n_stochastic
    basis, told = orthonormalize(design)
    moved = inside.Phi.copy()
    moved[:, :n] -= gain @ design
    noise = np.zeros((count, size, size))
    noise[:, :n, :n] = factor_semidefinite(inside.Q - gain @ gain.swapaxes(-1, -2))
    return ReducedBlocks(inside, variances, inverse, half_log, design, gain, basis, told, moved, noise)


def factor_semidefinite(covariances: Array) -> Array:
    """Return roots of covariances that may be singular, shape (u, n, n); states have units of their own.

    Shapes: covariances (u, n, n).
    """
    scales = np.sqrt(np.maximum(np.einsum("uii->ui", covariances), 0.0))
    safe = np.where(scales > 0, scales, 1.0)
    values, vectors = np.linalg.eigh(covariances / (safe[:, :, None] * safe[:, None, :]))
    return np.asarray(scales[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])
