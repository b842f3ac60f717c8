"""Dense models of blocks: measurements and final state given the initial state, by doubling of segments.

The measurements of a segment of rows and the state at its end are stacked in a vector ``G x + e`` with x the state
at its start and J the covariance of e. Two consecutive segments form one of twice the length: with ``B = diag(1, G2)``
its matrices are ``B G1`` and ``B J1 B' + diag(0, J2)``, as in a parallel prefix sum [1]_. So the number of operations
is logarithmic in the number of rows; with regular steps each level has one or two different segments. Nothing is
divided or subtracted. Derivatives are the adjoint of the same recursion.

.. [1] S. Sarkka and A. F. Garcia-Fernandez, Temporal parallelization of Bayesian smoothers, IEEE Transactions on
   Automatic Control 66 (2021), 299-306.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csc_array

from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.inference.kalman.state_space import StateSpaceGradient, StateSpaceModel
from lodekit.support.arguments import Array, IndexArray


class GroupSum:
    """Sums over rows with the same group index, shape (k,); all indices from zero on occur."""

    def __init__(self, group_index: IndexArray) -> None:
        self._order = np.argsort(group_index, kind="stable")
        self._starts = np.flatnonzero(np.diff(group_index[self._order], prepend=-1))

    def __call__(self, values: Array) -> Array:
        """Return the sum of each group."""
        return np.asarray(np.add.reduceat(values[self._order], self._starts, axis=0))


@dataclass(frozen=True)
class SegmentPlan:
    """The distinct segments of some blocks.

    blocks: The indices of the blocks; (u,).
    step_index: The indices of all distinct steps, ascending; (k,).
    segment_steps: For each distinct segment of one row, which of these steps follows; (d,).
    observable_index: The observables that are measured there; -1 for none; (d, w).
    pairings: For segments of two rows, of four, and so on: the first and second half of each, (d,), and sums over all
        uses of the segments of half the length.
    block_segments, sum_blocks: The segment of each block, (u,), and sums over blocks with the same segment.
    """

    blocks: IndexArray
    step_index: IndexArray
    segment_steps: IndexArray
    observable_index: IndexArray
    pairings: tuple[tuple[IndexArray, IndexArray, GroupSum], ...]
    block_segments: IndexArray
    sum_blocks: GroupSum

    @classmethod
    def of(cls, blocks: IndexArray, step_index: IndexArray, observable_index: IndexArray) -> SegmentPlan:
        """Find the distinct segments; blocks are padded with empty rows to a power of two.

        Shapes: blocks (u,), step_index (u, p), observable_index (u, p, w).
        """
        count, rows, width = observable_index.shape
        key = np.full((count, 1 << max(0, rows - 1).bit_length(), 1 + width), -1, dtype=np.intp)
        key[:, :rows, 0], key[:, rows:, 0], key[:, :rows, 1:] = step_index, 0, observable_index
        distinct, which = np.unique(key.reshape(-1, 1 + width), axis=0, return_inverse=True)
        which, pairings = which.reshape(count, -1), []
        while which.shape[1] > 1:
            pairs, number = np.unique(which.reshape(-1, 2), axis=0, return_inverse=True)
            pairings.append((pairs[:, 0], pairs[:, 1], GroupSum(pairs.T.ravel())))
            which = number.reshape(count, -1)
        steps, segment_steps = np.unique(distinct[:, 0], return_inverse=True)
        block_segments = which[:, 0], GroupSum(which[:, 0])
        return cls(blocks, steps, segment_steps.reshape(-1), distinct[:, 1:], tuple(pairings), *block_segments)

    def combine(self, H: Array, Phi: Array, Q: Array) -> list[tuple[Array, Array]]:
        """Return G and J, of which only the lower triangle is valid, of the distinct segments of one row, of two, etc.

        Shapes: H, Phi, Q, of each distinct segment of one row and of the step that follows: (d, w, s) and (d, s, s).
        """
        count, width, size = H.shape
        G, J = np.concatenate([H, Phi], axis=1), np.zeros((count, width + size, width + size))
        J[:, width:, width:] = Q
        levels = [(G, J)]
        for first, second, _ in self.pairings:
            m, total = G.shape[1] - size, 2 * G.shape[1] - size
            G1, G2, J1, J2 = G[first], G[second], J[first], J[second]
            G = np.empty((len(first), total, size))
            G[:, :m] = G1[:, :m]
            np.matmul(G2, G1[:, m:], out=G[:, m:])
            J = np.zeros((len(first), total, total))
            J[:, :m, :m] = J1[:, :m, :m]
            # The covariances of the state in the middle with earlier measurements, and its own.
            product = G2 @ J1[:, m:]
            J[:, m:, :m] = product[:, :, :m]
            np.matmul(product[:, :, m:], G2.swapaxes(-1, -2), out=J[:, m:, m:])
            J[:, m:, m:] += J2
            levels.append((G, J))
        return levels

    def combine_vjp(
        self, levels: list[tuple[Array, Array]], grad_G: Array, grad_J: Array
    ) -> tuple[Array, Array, Array]:
        """Return derivatives in H, Phi and Q, from those in G and J of all blocks, shapes (u, m + s, s or m + s)."""
        size, width = grad_G.shape[2], self.observable_index.shape[1]
        # Blocks that differ by their noise only are the same segment.
        grad_G, grad_J = self.sum_blocks(grad_G), self.sum_blocks(grad_J)
        for (first, second, sum_uses), (G, J) in zip(reversed(self.pairings), reversed(levels[:-1]), strict=True):
            m = G.shape[1] - size
            G1, G2, J1 = G[first, m:], G[second], J[first, m:]
            grad_both = np.concatenate([grad_J[:, m:], grad_G[:, m:]], axis=2)
            product = G2.swapaxes(-1, -2) @ grad_both
            grad_G1, grad_J1 = grad_G[:, : m + size].copy(), grad_J[:, : m + size, : m + size].copy()
            grad_G1[:, m:] = product[:, :, -size:] if size else 0.0
            grad_J1[:, m:, :m] = product[:, :, :m]
            grad_J1[:, :m, m:] = product[:, :, :m].swapaxes(-1, -2)
            grad_J1[:, m:, m:] = product[:, :, m : 2 * m + size] @ G2
            # Through earlier measurements, through the covariance of the second half, and through the mean.
            parts = 2.0 * J1[:, :, :m].swapaxes(-1, -2), 2.0 * G2 @ J1[:, :, m:], G1.swapaxes(-1, -2)
            grad_G2 = grad_both @ np.concatenate(parts, axis=1)
            grad_J = sum_uses(np.concatenate([grad_J1, grad_J[:, m:, m:]]))
            grad_G = sum_uses(np.concatenate([grad_G1, grad_G2]))
        return grad_G[:, :width], grad_G[:, width:], grad_J[:, width:, width:]


class DiscretizedModel:
    """A state-space model over all distinct steps.

    dt: Lengths of the steps, in scaled time; (k,).
    retained: 1 for each of the last stochastic states that a step keeps, 0 for those that it resets; (k, c).
    """

    def __init__(self, model: StateSpaceModel, dt: Array, retained: Array | None = None) -> None:
        self.model, self._retained = model, None
        n, size = model.n_stochastic, model.size
        self.stochastic = ProcessDiscretization(model.F[:n, :n], model.noise_intensity, dt)
        if retained is not None:
            self._retained = np.concatenate([np.ones((len(dt), n - retained.shape[1])), retained], axis=1)[:, None]
            self.stochastic.Phi = self.stochastic.Phi * self._retained
        self.deterministic = ProcessDiscretization(model.F[n:, n:], np.zeros((size - n, size - n)), dt)
        # The last row represents a missing measurement.
        self.H_padded = np.concatenate([model.H, np.zeros((1, size))])

    def vjp(
        self, gradient: StateSpaceGradient, steps: IndexArray, grad_Phi: Array, grad_Q: Array, grad_Phi_modes: Array
    ) -> None:
        """Add derivatives in F and in the noise intensity, from those in the matrices of c steps, which may repeat.

        Shapes: steps (c,), grad_Phi, grad_Q (c, n, n), grad_Phi_modes, of deterministic states: (c, q, q).
        """
        n, Phi = self.model.n_stochastic, self.stochastic.Phi
        in_Phi = scatter_add(np.zeros_like(Phi), steps, grad_Phi)
        if self._retained is not None:
            in_Phi *= self._retained
        in_F, in_noise = self.stochastic.vjp(in_Phi, scatter_add(np.zeros_like(Phi), steps, grad_Q))
        gradient.F[:n, :n] += in_F
        gradient.noise_intensity += in_noise
        if self.model.size > n:
            in_Phi = scatter_add(np.zeros_like(self.deterministic.Phi), steps, grad_Phi_modes)
            gradient.F[n:, n:] += self.deterministic.vjp(in_Phi, np.zeros_like(in_Phi))[0]


class BlockModel:
    """Dense models of some blocks, without measurement noise.

    size: The number of measurements m of a block.
    H: Observation matrices for the state at the start; (u, m, s).
    measurement_covariance: Given that state; only the lower triangle is valid; (u, m, m).
    Phi: Transitions to the start of the next block; (u, s, s).
    Q, cross_covariance: Covariances of the stochastic states at the end, given the state at the start, among each other
        and with the measurements; (u, n, n) and (u, n, m).
    """

    def __init__(self, discretized: DiscretizedModel, plan: SegmentPlan, size: int) -> None:
        n, s, steps = discretized.model.n_stochastic, discretized.model.size, plan.segment_steps
        self._discretized, self._plan, self._size = discretized, plan, size
        Phi, Q = np.zeros((2, len(steps), s, s))
        Phi[:, :n, :n], Phi[:, n:, n:] = discretized.stochastic.Phi[steps], discretized.deterministic.Phi[steps]
        Q[:, :n, :n] = discretized.stochastic.Q[steps]
        self._levels = plan.combine(discretized.H_padded[plan.observable_index], Phi, Q)
        G, J = (part[plan.block_segments] for part in self._levels[-1])
        first = G.shape[1] - s
        self._end = end = slice(first, first + n)
        self.H, self.Phi, self.measurement_covariance = G[:, :size], G[:, first:], J[:, :size, :size]
        self.Q, self.cross_covariance = J[:, end, end], J[:, end, :size]

    def vjp(self, gradient: StateSpaceGradient, grad_blocks: Sequence[Array]) -> None:
        """Add derivatives in the state-space model, from those in the arrays of the blocks.

        grad_blocks: In `measurement_covariance`, `H`, `Phi`, `Q` and `cross_covariance`.
        """
        grad_covariance, grad_H, grad_Phi, grad_Q, grad_cross = grad_blocks
        end, size, (count, _, s) = self._end, self._size, grad_H.shape
        n, total = end.stop - end.start, end.start + s
        grad_G, grad_J = np.zeros((count, total, s)), np.zeros((count, total, total))
        grad_G[:, :size], grad_G[:, end.start :] = grad_H, grad_Phi
        grad_J[:, :size, :size], grad_J[:, end, end] = grad_covariance, grad_Q
        grad_J[:, end, :size] = 0.5 * grad_cross
        grad_J[:, :size, end] = 0.5 * grad_cross.swapaxes(-1, -2)
        in_H, in_Phi, in_Q = self._plan.combine_vjp(self._levels, grad_G, grad_J)
        steps, index = self._plan.segment_steps, self._plan.observable_index
        self._discretized.vjp(gradient, steps, in_Phi[:, :n, :n], in_Q[:, :n, :n], in_Phi[:, n:, n:])
        H = np.zeros_like(self._discretized.H_padded)
        gradient.H += scatter_add(H, index.ravel(), in_H.reshape(index.size, s))[:-1]


def scatter_add(target: Array, index: IndexArray, values: Array) -> Array:
    """Add values to rows of the target and return it; indices may repeat.

    Shapes: target (k, ...), index (n,), values (n, ...).
    """
    if len(index) <= 32:
        np.add.at(target, index, values)
    else:
        # Faster for many rows: a sparse matrix with one entry in each column.
        index = index % len(target)
        chosen = csc_array((np.ones(len(index)), index, np.arange(len(index) + 1)), shape=(len(target), len(index)))
        target += (chosen @ values.reshape(len(index), -1)).reshape(target.shape)
    return target


def invert_cholesky_factors(K: Array, sizes: IndexArray) -> Array:
    """Return the inverses of the Cholesky factors of matrices, shape (u, n, n).

    Shapes: K (u, n, n), sizes (u,).

    Examples
    --------
    >>> invert_cholesky_factors(np.array([[[4.0, 0.0], [2.0, 17.0]]]), np.array([2])).tolist()
    [[[0.5, 0.0], [-0.125, 0.25]]]
    """
    inverses = np.zeros_like(K)
    for matrix, inverse, end in zip(K, inverses, sizes.tolist(), strict=True):
        # The transpose is in column-major order, as LAPACK expects.
        root, info = lapack.dpotrf(matrix[:end, :end].T, lower=0)
        if info:
            raise np.linalg.LinAlgError("expected positive matrices")
        inverse[:end, :end] = lapack.dtrtri(root, lower=0, overwrite_c=1)[0].T
        np.einsum("ii->i", inverse)[end:] = 1.0
    return inverses
