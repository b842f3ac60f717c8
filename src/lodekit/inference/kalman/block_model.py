"""Stretches of places, joined two by two until they are whole blocks; those that are alike are made once.

What a stretch has to say is all that is read at its places, and the state at its end: v. Given the state x at its
start, ``v = G x + noise`` with the covariance J of that noise. Two stretches that follow each other are one of twice
the length: what is read in the second one, and the state at its end, follow from the state at the end of the first, so
that B = diag(1, G of the second) makes ``B G`` and ``B J B'`` of the first, and J of the second is added. So the number
of joins is the logarithm of that of the places, and with regular steps each join is of one or two stretches. Nothing is
divided or subtracted. The way back is the adjoint of the same joins.

Inside blocks everything is dense: measurements given the state at the start of their block, and the way back.

Given the state x at the start of a block its measurements are ``y = M x + noise``, with the covariance K of that noise,
which has covariances with the state at the end, too. All of these come from joining `stretches`.
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
    """Sums of what has the same number; all numbers from zero on occur.

    numbers: shape (k,)
    """

    def __init__(self, group_index: IndexArray) -> None:
        self._order = np.argsort(group_index, kind="stable")
        self._starts = np.flatnonzero(np.diff(group_index[self._order], prepend=-1))

    def __call__(self, values: Array) -> Array:
        return np.asarray(np.add.reduceat(values[self._order], self._starts, axis=0))


class SegmentPairs:
    """Stretches of which each is made of two of half its length.

    first, second: The numbers of the two; (d,).
    """

    def __init__(self, first: IndexArray, second: IndexArray) -> None:
        self.first, self.second = first, second
        self._group_sum = GroupSum(np.concatenate([first, second]))

    def sum_uses(self, of_first: Array, of_second: Array) -> Array:
        """Return sums over all uses of each stretch of half the length.

        Shapes: of_first, of_second (d, ...).
        """
        return self._group_sum(np.concatenate([of_first, of_second]))


@dataclass(frozen=True)
class SegmentPlan:
    """Which stretches of some blocks are alike.

    blocks: The numbers of the blocks; (u,).
    step_index: The numbers of all different steps, ascending; (k,).
    segment_steps: Of all different stretches of one place, which of these follows; (d,).
    observable_index: The numbers of the observables that are read there; -1 for none; (d, w).
    pairings: Of stretches of two places, of four, and so on.
    block_segments: The stretch that is each of the blocks; (u,).
    """

    blocks: IndexArray
    step_index: IndexArray
    segment_steps: IndexArray
    observable_index: IndexArray
    pairings: tuple[SegmentPairs, ...]
    block_segments: IndexArray

    @cached_property
    def sum_blocks(self) -> GroupSum:
        """Sums over all blocks that are the same stretch."""
        return GroupSum(self.block_segments)

    @classmethod
    def of(cls, blocks: IndexArray, step_index: IndexArray, observable_index: IndexArray) -> SegmentPlan:
        """Return the stretches of some blocks, which are filled up with places where nothing moves or is read.

        Shapes: blocks (u,), step_index (u, p), observable_index (u, p, w).
        """
        count, places, width = observable_index.shape
        key = np.full((count, 1 << max(0, places - 1).bit_length(), 1 + width), -1, dtype=np.intp)
        key[:, :places, 0], key[:, places:, 0], key[:, :places, 1:] = step_index, 0, observable_index
        different, which = np.unique(key.reshape(-1, 1 + width), axis=0, return_inverse=True)
        which, joins = which.reshape(count, -1), []
        while which.shape[1] > 1:
            pairs, number = np.unique(which.reshape(-1, 2), axis=0, return_inverse=True)
            joins.append(SegmentPairs(pairs[:, 0], pairs[:, 1]))
            which = number.reshape(count, -1)
        lengths, step_index = np.unique(different[:, 0], return_inverse=True)
        return cls(blocks, lengths, step_index.reshape(-1), different[:, 1:], tuple(joins), which[:, 0])


class SegmentModels:
    """What is read in blocks, and the state at their ends, given the state at their starts.

    rows: What is read at the place of each different stretch of one place; (d, w, s).
    transitions, noises: Of the steps that follow; (d, s, s).
    mean_maps: G of all blocks; (u, m + s, s).
    covariances: J of all blocks; the lower triangle, and some more that is not meant; (u, m + s, m + s).

    Examples
    --------
    >>> plan = SegmentPlan.of(np.array([0]), np.array([[1, 1, 1, 0]]), np.zeros((1, 4, 1), dtype=int))
    >>> [len(join.first) for join in plan.joins]
    [2, 1]
    >>> one = np.ones((2, 1, 1))
    >>> walk = SegmentModels(plan, one, one, np.array([0.0, 1.0]).reshape(2, 1, 1))
    >>> np.tril(walk.covariances[0]).diagonal().tolist()
    [0.0, 1.0, 2.0, 3.0, 3.0]
    """

    def __init__(self, plan: SegmentPlan, H: Array, Phi: Array, Q: Array) -> None:
        count, width, size = H.shape
        self._plan, self._n_columns, self._size = plan, width, size
        G, J = np.concatenate([H, Phi], axis=1), np.zeros((count, width + size, width + size))
        J[:, width:, width:] = Q
        self._levels = [(G, J)]
        for join in plan.pairings:
            read, total = G.shape[1] - size, 2 * G.shape[1] - size
            first, second, known = G[join.first], G[join.second], J[join.first]
            G = np.empty((len(first), total, size))
            G[:, :read] = first[:, :read]
            np.matmul(second, first[:, read:], out=G[:, read:])
            own, J = J[join.second], np.zeros((len(first), total, total))
            J[:, :read, :read] = known[:, :read, :read]
            # Of the state between both, its covariances with all that was read before, and its own.
            moved = second @ known[:, read:]
            J[:, read:, :read] = moved[:, :, :read]
            np.matmul(moved[:, :, read:], second.swapaxes(-1, -2), out=J[:, read:, read:])
            J[:, read:, read:] += own
            self._levels.append((G, J))
        self.mean_maps, self.covariances = G[plan.block_segments], J[plan.block_segments]

    def vjp(self, grad_mean_maps: Array, grad_covariances: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in rows, transitions and noises."""
        size, width = self._size, self._n_columns
        # Blocks that differ by their noise are the same stretch.
        in_G, in_J = self._plan.sum_blocks(grad_mean_maps), self._plan.sum_blocks(grad_covariances)
        for join, (G, J) in zip(reversed(self._plan.pairings), reversed(self._levels[:-1]), strict=True):
            read = G.shape[1] - size
            first, second, known = G[join.first, read:], G[join.second], J[join.first, read:]
            slopes = np.concatenate([in_J[:, read:], in_G[:, read:]], axis=2)
            back = second.swapaxes(-1, -2) @ slopes
            G_first, J_first = in_G[:, : read + size].copy(), in_J[:, : read + size, : read + size].copy()
            G_first[:, read:] = back[:, :, -size:] if size else 0.0
            J_first[:, read:, :read] = back[:, :, :read]
            J_first[:, :read, read:] = back[:, :, :read].swapaxes(-1, -2)
            J_first[:, read:, read:] = back[:, :, read : 2 * read + size] @ second
            # What was read before, what comes behind, and the mean at the start.
            through = 2.0 * second @ known[:, :, read:]
            parts = 2.0 * known[:, :, :read].swapaxes(-1, -2), through, first.swapaxes(-1, -2)
            G_second = slopes @ np.concatenate(parts, axis=1)
            in_J = join.sum_uses(J_first, in_J[:, read:, read:])
            in_G = join.sum_uses(G_first, G_second)
        return in_G[:, :width], in_G[:, width:], in_J[:, width:, width:]


#: So few parts are added up one by one.
_MAX_ADD_AT_ROWS = 32


class DiscretizedModel:
    """A linear system over all different steps.

    dt: Of the steps, in scaled time; (k,).
    keeps: One for each of the last states that noise drives which a step keeps, zero for those that begin anew with
        it; (k, c).
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
        # Observables that are not measured somewhere have a row of zeros there.
        self.H_padded = np.concatenate([model.H, np.zeros((1, size))])

    def vjp(self, gradient: BlockGradient) -> tuple[Array, Array]:
        """Return derivatives in F, shape (s, s), and in the density of the noise, (n, n)."""
        n, size = self.model.n_stochastic, self.model.size
        in_matrix = np.zeros((size, size))
        in_transitions = gradient.Phi if self._retained is None else gradient.Phi * self._retained
        in_matrix[:n, :n], in_density = self.stochastic.vjp(in_transitions, gradient.Q)
        if size > n:
            in_matrix[n:, n:], _ = self.deterministic.vjp(
                gradient.Phi_deterministic, np.zeros_like(gradient.Phi_deterministic)
            )
        return in_matrix, in_density


@dataclass
class BlockGradient:
    """Derivatives of a number in all that blocks are made of; they are summed up.

    Phi, Q, Phi_deterministic: In the transitions of states that noise drives, in their noises, and in the transitions
        of the others; (k, n, n), (k, n, n) and (k, q, q).
    H: In the rows of the observables, and in the row of zeros; (o + 1, s).
    """

    Phi: Array
    Q: Array
    Phi_deterministic: Array
    H: Array

    @classmethod
    def zeros(cls, discretized: DiscretizedModel) -> BlockGradient:
        """Return zeros."""
        noisy, quiet = discretized.stochastic.Phi, discretized.deterministic.Phi
        return cls(
            np.zeros_like(noisy), np.zeros_like(noisy), np.zeros_like(quiet), np.zeros_like(discretized.H_padded)
        )


class ModelGradient:
    """Derivatives in the system itself, summed up over chunks."""

    def __init__(self, model: StateSpaceModel) -> None:
        self.F, self.noise_intensity = np.zeros_like(model.F), np.zeros_like(model.noise_intensity)
        self.H = np.zeros_like(model.H)

    def add_blocks(self, discretized: DiscretizedModel, gradient: BlockGradient) -> None:
        """Add those of a chunk."""
        self.add_terms(*discretized.vjp(gradient), gradient.H)

    def add_terms(self, grad_F: Array, grad_noise_intensity: Array, grad_H: Array) -> None:
        """Add derivatives in F, in the density of the noise, and in the rows of observables and of nothing.

        Shapes: grad_F, grad_noise_intensity (s, s) and (n, n), grad_H (o + 1, s).
        """
        self.F += grad_F
        self.noise_intensity += grad_noise_intensity
        # The last row is that of nothing.
        self.H += grad_H[:-1]


@dataclass(frozen=True)
class BlockModel:
    """Some blocks, without the noise of measurements.

    discretized: Over the different steps of all blocks.
    step_index: Of all different stretches of one place, the number of the step that follows, in `discretized`; (d,).
    observable_index: The numbers of the observables that are read there; that of the row of zeros for none; (d, w).
    size: The number of places times that of measurements at each.
    """

    discretized: DiscretizedModel
    step_index: IndexArray
    observable_index: IndexArray
    segments: SegmentModels
    size: int

    @property
    def H(self) -> Array:
        """M, shape (u, p w, s)."""
        return self.segments.mean_maps[:, : self.size]

    @property
    def measurement_covariance(self) -> Array:
        """K, shape (u, p w, p w); the lower triangle, and some more that is not meant."""
        return self.segments.covariances[:, : self.size, : self.size]

    @property
    def Phi(self) -> Array:
        """From the start of a block to that of the next one, shape (u, s, s)."""
        return (
            self.segments.mean_maps[:, -self.discretized.model.size :] if self.discretized.model.size else self.H[:, :0]
        )

    @property
    def Q(self) -> Array:
        """Covariance of the state at the end, given that at the start, shape (u, n, n)."""
        end = self._final_state_slice
        return self.segments.covariances[:, end, end]

    @property
    def cross_covariance(self) -> Array:
        """Covariance of the state at the end with the measurements, shape (u, n, p w)."""
        return self.segments.covariances[:, self._final_state_slice, : self.size]

    @property
    def _final_state_slice(self) -> slice:
        """Where the states that noise drives stand behind all that is read."""
        start = self.segments.mean_maps.shape[1] - self.discretized.model.size
        return slice(start, start + self.discretized.model.n_stochastic)

    def vjp(
        self,
        gradient: BlockGradient,
        grad_measurement_covariance: Array,
        grad_H: Array,
        grad_Phi: Array,
        grad_Q: Array,
        grad_cross_covariance: Array,
    ) -> None:
        """Add derivatives in steps and rows, from those in what blocks are made of.

        Shapes: grad_measurement_covariance (u, p w, p w).
        """
        space, end = self.discretized.model, self._final_state_slice
        n, rest = space.n_stochastic, self.segments.mean_maps.shape[1] - space.size
        in_means, in_covariances = np.zeros_like(self.segments.mean_maps), np.zeros_like(self.segments.covariances)
        in_means[:, : self.size], in_means[:, rest:] = grad_H, grad_Phi
        in_covariances[:, : self.size, : self.size], in_covariances[:, end, end] = grad_measurement_covariance, grad_Q
        in_covariances[:, end, : self.size] = 0.5 * grad_cross_covariance
        in_covariances[:, : self.size, end] = 0.5 * grad_cross_covariance.swapaxes(-1, -2)
        in_rows, in_steps, in_noises = self.segments.vjp(in_means, in_covariances)
        scatter_add(gradient.Phi, self.step_index, in_steps[:, :n, :n])
        scatter_add(gradient.Q, self.step_index, in_noises[:, :n, :n])
        scatter_add(gradient.Phi_deterministic, self.step_index, in_steps[:, n:, n:])
        scatter_add(gradient.H, self.observable_index.ravel(), in_rows.reshape(self.observable_index.size, space.size))


def build_block_models(discretized: DiscretizedModel, plan: SegmentPlan, size: int) -> BlockModel:
    """Return some blocks."""
    observed = np.where(plan.observable_index >= 0, plan.observable_index, len(discretized.H_padded) - 1)
    n, whole, numbers = discretized.model.n_stochastic, discretized.model.size, plan.segment_steps
    transitions, noises = np.zeros((2, len(numbers), whole, whole))
    transitions[:, :n, :n] = discretized.stochastic.Phi[numbers]
    transitions[:, n:, n:] = discretized.deterministic.Phi[numbers]
    noises[:, :n, :n] = discretized.stochastic.Q[numbers]
    return BlockModel(
        discretized, numbers, observed, SegmentModels(plan, discretized.H_padded[observed], transitions, noises), size
    )


def scatter_add(target: Array, index: IndexArray, values: Array) -> None:
    """Add parts to the rows that have their numbers; some may have the same.

    Shapes: target (k, ...), index (n,), values (n, ...).
    """
    if len(index) <= _MAX_ADD_AT_ROWS:
        np.add.at(target, index, values)
        return
    # One entry a column: a product with it adds up rows, in their order.
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
    found = np.zeros_like(K)
    for own, inverse, end in zip(K, found, sizes.tolist(), strict=True):
        # A row after the other is a column after the other of the transposed.
        root, info = lapack.dpotrf(own[:end, :end].T, lower=0)
        if info:
            raise np.linalg.LinAlgError("expected positive matrices")
        inverse[:end, :end] = lapack.dtrtri(root, lower=0, overwrite_c=1)[0].T
        np.einsum("ii->i", inverse)[end:] = 1.0
    return found
