"""Dense models of blocks: measurements and final state given the initial state, by doubling of segments.

The measurements of a segment of rows and the state at its end are stacked in a vector ``v = G x + e`` with x the state
at its start and J the covariance of e. Two consecutive segments form one of twice the length: with ``B = diag(1, G2)``
its matrices are ``B G1`` and ``B J1 B' + diag(0, J2)``, as in a parallel prefix sum [1]_. So the number of operations
is logarithmic in the number of rows; with regular steps each level has one or two different segments. Nothing is
divided or subtracted. Derivatives are the adjoint of the same recursion.

.. [1] S. Sarkka and A. F. Garcia-Fernandez, Temporal parallelization of Bayesian smoothers, IEEE Transactions on
   Automatic Control 66 (2021), 299-306.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array

from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]


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
    block_segments: The segment that is each of the blocks; (u,).
    """

    blocks: IndexArray
    step_index: IndexArray
    segment_steps: IndexArray
    observable_index: IndexArray
    pairings: tuple[tuple[IndexArray, IndexArray, GroupSum], ...]
    block_segments: IndexArray

    @cached_property
    def sum_blocks(self) -> GroupSum:
        """Sums over all blocks that are the same segment."""
        return GroupSum(self.block_segments)

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
        return cls(blocks, steps, segment_steps.reshape(-1), distinct[:, 1:], tuple(pairings), which[:, 0])


class SegmentModels:
    """Measurements and final states of blocks given their initial states.

    H, Phi, Q: Observation matrix, and transition and noise of the step that follows, for each distinct segment of one
        row; (d, w, s) and (d, s, s).
    mean_maps: G of all blocks; (u, m + s, s).
    covariances: J of all blocks; only the lower triangle is valid; (u, m + s, m + s).
    """

    def __init__(self, plan: SegmentPlan, H: Array, Phi: Array, Q: Array) -> None:
        count, width, size = H.shape
        self._plan, self._n_columns, self._size = plan, width, size
        G, J = np.concatenate([H, Phi], axis=1), np.zeros((count, width + size, width + size))
        J[:, width:, width:] = Q
        self._levels = [(G, J)]
        for first, second, _ in plan.pairings:
            read, total = G.shape[1] - size, 2 * G.shape[1] - size
            G1, G2, J1, J2 = G[first], G[second], J[first], J[second]
            G = np.empty((len(first), total, size))
            G[:, :read] = G1[:, :read]
            np.matmul(G2, G1[:, read:], out=G[:, read:])
            J = np.zeros((len(first), total, total))
            J[:, :read, :read] = J1[:, :read, :read]
            # The covariances of the state in the middle with earlier measurements, and its own.
            moved = G2 @ J1[:, read:]
            J[:, read:, :read] = moved[:, :, :read]
            np.matmul(moved[:, :, read:], G2.swapaxes(-1, -2), out=J[:, read:, read:])
            J[:, read:, read:] += J2
            self._levels.append((G, J))
        self.mean_maps, self.covariances = G[plan.block_segments], J[plan.block_segments]

    def vjp(self, grad_mean_maps: Array, grad_covariances: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in H, Phi and Q."""
        size, width = self._size, self._n_columns
        # Blocks that differ by their noise only are the same segment.
        in_G, in_J = self._plan.sum_blocks(grad_mean_maps), self._plan.sum_blocks(grad_covariances)
        for pairing, (G, J) in zip(reversed(self._plan.pairings), reversed(self._levels[:-1]), strict=True):
            first, second, sum_uses = pairing
            read = G.shape[1] - size
            G1, G2, J1 = G[first, read:], G[second], J[first, read:]
            slopes = np.concatenate([in_J[:, read:], in_G[:, read:]], axis=2)
            back = G2.swapaxes(-1, -2) @ slopes
            in_G1, in_J1 = in_G[:, : read + size].copy(), in_J[:, : read + size, : read + size].copy()
            in_G1[:, read:] = back[:, :, -size:] if size else 0.0
            in_J1[:, read:, :read] = back[:, :, :read]
            in_J1[:, :read, read:] = back[:, :, :read].swapaxes(-1, -2)
            in_J1[:, read:, read:] = back[:, :, read : 2 * read + size] @ G2
            # Through earlier measurements, through the covariance of the second half, and through the mean.
            through = 2.0 * G2 @ J1[:, :, read:]
            parts = 2.0 * J1[:, :, :read].swapaxes(-1, -2), through, G1.swapaxes(-1, -2)
            in_G2 = slopes @ np.concatenate(parts, axis=1)
            in_J = sum_uses(np.concatenate([in_J1, in_J[:, read:, read:]]))
            in_G = sum_uses(np.concatenate([in_G1, in_G2]))
        return in_G[:, :width], in_G[:, width:], in_J[:, width:, width:]


class DiscretizedModel:
    """A state-space model over all distinct steps.

    dt: Lengths of the steps, in scaled time; (k,).
    retained: 1 for each of the last stochastic states that a step keeps, 0 for those that it resets; (k, c).
    """

    def __init__(self, model: StateSpaceModel, dt: Array, retained: Array | None = None) -> None:
        self.model, self.dt, self._retained = model, dt, None
        noisy, size = model.n_stochastic, model.size
        self.stochastic = ProcessDiscretization(model.F[:noisy, :noisy], model.noise_intensity, dt)
        if retained is not None:
            self._retained = np.concatenate([np.ones((len(dt), noisy - retained.shape[1])), retained], axis=1)[:, None]
            self.stochastic.Phi = self.stochastic.Phi * self._retained
        quiet = size - noisy
        self.deterministic = ProcessDiscretization(model.F[noisy:, noisy:], np.zeros((quiet, quiet)), dt)
        # The last row stands for no measurement.
        self.H_padded = np.concatenate([model.H, np.zeros((1, size))])

    def vjp(self, gradient: BlockGradient) -> tuple[Array, Array]:
        """Return derivatives in F, shape (s, s), and in the noise intensity, (n, n)."""
        n, size = self.model.n_stochastic, self.model.size
        in_matrix = np.zeros((size, size))
        in_transitions = gradient.Phi if self._retained is None else gradient.Phi * self._retained
        in_matrix[:n, :n], in_density = self.stochastic.vjp(in_transitions, gradient.Q)
        if size > n:
            slopes = gradient.Phi_deterministic
            in_matrix[n:, n:], _ = self.deterministic.vjp(slopes, np.zeros_like(slopes))
        return in_matrix, in_density


@dataclass
class BlockGradient:
    """Derivatives of the log evidence in the parts of a `DiscretizedModel`.

    Phi, Q, Phi_deterministic: In transitions and noise covariances of stochastic states, and in the transitions of the
        others; (k, n, n), (k, n, n) and (k, q, q).
    H: In the rows of `DiscretizedModel.H_padded`; (o + 1, s).
    """

    Phi: Array
    Q: Array
    Phi_deterministic: Array
    H: Array

    @classmethod
    def zeros(cls, discretized: DiscretizedModel) -> BlockGradient:
        """Return zeros."""
        Phi = discretized.stochastic.Phi
        return cls(*(np.zeros_like(a) for a in (Phi, Phi, discretized.deterministic.Phi, discretized.H_padded)))


class ModelGradient:
    """Derivatives of the log evidence in a state-space model, summed over chunks."""

    def __init__(self, model: StateSpaceModel) -> None:
        self.F, self.noise_intensity = np.zeros_like(model.F), np.zeros_like(model.noise_intensity)
        self.H = np.zeros_like(model.H)

    def add_blocks(self, discretized: DiscretizedModel, gradient: BlockGradient) -> None:
        """Add the derivatives of a chunk."""
        self.add_terms(*discretized.vjp(gradient), gradient.H)

    def add_terms(self, grad_F: Array, grad_noise_intensity: Array, grad_H: Array) -> None:
        """Add derivatives in F, in the noise intensity, and in H with its row of zeros."""
        self.F += grad_F
        self.noise_intensity += grad_noise_intensity
        self.H += grad_H[:-1]


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
        self.discretized, self._step_index, self._size = discretized, steps, size
        seen = plan.observable_index
        self._observable_index = np.where(seen >= 0, seen, len(discretized.H_padded) - 1)
        Phi, Q = np.zeros((2, len(steps), s, s))
        Phi[:, :n, :n], Phi[:, n:, n:] = discretized.stochastic.Phi[steps], discretized.deterministic.Phi[steps]
        Q[:, :n, :n] = discretized.stochastic.Q[steps]
        self._segments = SegmentModels(plan, discretized.H_padded[self._observable_index], Phi, Q)
        G, J = self._segments.mean_maps, self._segments.covariances
        first = G.shape[1] - s
        self._end = end = slice(first, first + n)
        self.H, self.Phi, self.measurement_covariance = G[:, :size], G[:, first:], J[:, :size, :size]
        self.Q, self.cross_covariance = J[:, end, end], J[:, end, :size]

    def vjp(
        self,
        gradient: ModelGradient,
        grad_measurement_covariance: Array,
        grad_H: Array,
        grad_Phi: Array,
        grad_Q: Array,
        grad_cross_covariance: Array,
    ) -> None:
        """Add derivatives in the state-space model, from those in the arrays of the blocks."""
        model, end, size = self.discretized.model, self._end, self._size
        n, index = model.n_stochastic, self._observable_index
        in_G, in_J = np.zeros_like(self._segments.mean_maps), np.zeros_like(self._segments.covariances)
        in_G[:, :size], in_G[:, end.start :] = grad_H, grad_Phi
        in_J[:, :size, :size], in_J[:, end, end] = grad_measurement_covariance, grad_Q
        in_J[:, end, :size] = 0.5 * grad_cross_covariance
        in_J[:, :size, end] = 0.5 * grad_cross_covariance.swapaxes(-1, -2)
        in_H, in_Phi, in_Q = self._segments.vjp(in_G, in_J)
        inner = BlockGradient.zeros(self.discretized)
        scatter_add(inner.Phi, self._step_index, in_Phi[:, :n, :n])
        scatter_add(inner.Q, self._step_index, in_Q[:, :n, :n])
        scatter_add(inner.Phi_deterministic, self._step_index, in_Phi[:, n:, n:])
        scatter_add(inner.H, index.ravel(), in_H.reshape(index.size, model.size))
        gradient.add_blocks(self.discretized, inner)


def scatter_add(target: Array, index: IndexArray, values: Array) -> None:
    """Add values to rows of the target; indices may repeat.

    Shapes: target (k, ...), index (n,), values (n, ...).
    """
    if len(index) <= 32:
        np.add.at(target, index, values)
        return
    # Faster for many rows: a sparse matrix with one entry in each column.
    chosen = csc_array((np.ones(len(index)), index, np.arange(len(index) + 1)), shape=(len(target), len(index)))
    target += (chosen @ values.reshape(len(index), -1)).reshape(target.shape)


def invert_cholesky_factors(K: Array, sizes: IndexArray) -> Array:
    """Return the inverses of the Cholesky factors of matrices, shape (u, n, n).

    Shapes: K (u, n, n), sizes (u,).

    Examples
    --------
    >>> invert_cholesky_factors(np.array([[[4.0, 0.0], [2.0, 17.0]]]), np.array([2])).tolist()
    [[[0.5, 0.0], [-0.125, 0.25]]]
    """
    inverses = np.zeros_like(K)
    for own, inverse, end in zip(K, inverses, sizes.tolist(), strict=True):
        # The transpose is in column-major order, as LAPACK expects.
        root, info = lapack.dpotrf(own[:end, :end].T, lower=0)
        if info:
            raise np.linalg.LinAlgError("expected positive matrices")
        inverse[:end, :end] = lapack.dtrtri(root, lower=0, overwrite_c=1)[0].T
        np.einsum("ii->i", inverse)[end:] = 1.0
    return inverses
