"""Rauch-Tung-Striebel smoother: states at any times given all measurements; their means, covariances and samples.

The mean recursion is its Bryson-Frazier form, the disturbance smoother of de Jong [1]_: backward go the derivative r of
the log evidence in the predicted mean of a state (score), and its covariance N (information); both are sums without
subtractions. Covariances combine the filter with a backward information filter, so that they are squares.

Requested times are rows without measurements. Given the state x at the start of its block and the measurements y
there, the state in a row is ``B x + C y + noise``; later blocks act through its covariance with the state at the end
of the block.

.. [1] P. de Jong, Smoothing and interpolation with the state-space model, Journal of the American Statistical
   Association 84 (1989), 1085-1088.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.kalman.block_reduction import ReducedBlocks
from lodekit.inference.kalman.discretize import factor_semidefinite
from lodekit.inference.kalman.sqrt_filter import (
    BoundaryConditions,
    ReducedMeasurements,
    SquareRootFilter,
    covariances_agree,
)

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class SmoothedMeans:
    """Results of filter and smoother that depend on values, for each block and k sets of values.

    innovations: ``z - H m`` with the predicted mean m; (b, s, k).
    updated_means: Mean of the state at the start of a block, given this and all blocks before it; (b, s, k).
    scores: Derivative of the log evidence in the predicted mean at the start of each block, and after the last;
        (b + 1, s, k).
    means: Mean of the state at the start of each block, given everything; (b, s, k).
    measurement_scores: Derivative of the log evidence in the mean of z for a fixed state shift; (b, s, k).
    final_mean: Mean of the state after the last block, given all blocks; (s, k).
    """

    innovations: Array
    updated_means: Array
    scores: Array
    means: Array
    measurement_scores: Array
    final_mean: Array


def smooth_means(
    kalman_filter: SquareRootFilter, measurements: ReducedMeasurements, boundary: BoundaryConditions | None = None
) -> SmoothedMeans:
    """Filter and smooth the means of the states at the starts of all blocks; `boundary` replaces that of the filter."""
    boundary, covariances = boundary or kalman_filter.boundary, kalman_filter.covariances
    patterns, z, closed = kalman_filter.layout.patterns, measurements.z, covariances.closed_loop_Phi
    H, Phi, (blocks, size, count) = kalman_filter.H[patterns], kalman_filter.Phi[patterns], z.shape
    path = np.empty((blocks + 1, size, count))
    path[0] = 0.0 if boundary.mean is None else boundary.mean
    path[1:] = Phi @ (covariances.gain @ z) + measurements.state_shift
    for b in range(blocks):
        path[b + 1] += closed[b].dot(path[b])
    innovations = z - H @ path[:-1]
    updated = path[:-1] + covariances.gain @ innovations
    weighted = covariances.S_inverse_root @ (covariances.S_inverse_root.swapaxes(-1, -2) @ innovations)
    scores = np.empty((blocks + 1, size, count))
    scores[:-1] = H.swapaxes(-1, -2) @ weighted
    scores[-1] = 0.0 if boundary.score is None else boundary.score
    for b in range(blocks - 1, -1, -1):
        scores[b] += closed[b].T.dot(scores[b + 1])
    changes = covariances.P_root_updated.swapaxes(-1, -2) @ (Phi.swapaxes(-1, -2) @ scores[1:])
    # Differences of values and means would lose digits: noise may be far below both.
    means = updated + covariances.P_root_updated @ changes
    measurement_scores = weighted - covariances.explained_root @ changes
    return SmoothedMeans(innovations, updated, scores, means, measurement_scores, path[-1])


def propagate_information(kalman_filter: SquareRootFilter) -> Array:
    """Return the covariance N of the score of the state at the start of each block, shape (b + 1, s, s).

    It is what all later data add to the information of earlier data.
    """
    covariances, initial = kalman_filter.covariances, kalman_filter.boundary.information
    half = covariances.S_inverse_root.swapaxes(-1, -2) @ kalman_filter.H[kalman_filter.layout.patterns]
    blocks, _, size = half.shape
    information = np.empty((blocks + 1, size, size))
    information[:-1] = half.swapaxes(-1, -2) @ half
    information[-1] = 0.0 if initial is None else initial
    closed = covariances.closed_loop_Phi
    for b in range(blocks - 1, -1, -1):
        information[b] += closed[b].T.dot(information[b + 1]).dot(closed[b])
    return information


def compute_backward_information_roots(kalman_filter: SquareRootFilter) -> Array:
    """Return roots B of the information ``B'B`` of each block and all later ones alone, shape (b + 1, s, s).

    Backward information filter: in contrast to `propagate_information` earlier data play no role.
    """
    patterns, H = kalman_filter.layout.patterns, kalman_filter.H
    blocks, size = len(patterns), H.shape[-1]
    roots = np.zeros((blocks + 1, size, size))
    if kalman_filter.boundary.backward_information_root is not None:
        roots[-1] = kalman_filter.boundary.backward_information_root
    if not size:
        return roots
    both = np.concatenate([kalman_filter.Q_root, kalman_filter.Phi], axis=2)
    stacked, through = np.zeros((2 * size, size), order="F"), np.zeros((2 * size, 2 * size), order="F")
    now, last, steady, upper = roots[-1], -1, False, np.asfortranarray(np.triu(np.ones((size, size))))
    for b in range(blocks - 1, -1, -1):
        u = int(patterns[b])
        steady = steady and u == last
        if not steady:
            # Information of the next state, with the process noise before it eliminated.
            through[:size], through[size:, :size], through[size:, size:] = now.dot(both[u]), np.eye(size), 0.0
            stacked[:size] = H[u]
            stacked[size:] = lapack.dgeqrf(through, overwrite_a=1)[0][size:, size:] * upper
            before = lapack.dgeqrf(stacked, overwrite_a=1)[0][:size] * upper
            steady = u == last and covariances_agree(before.T, now.T)
            now, last = before, u
        roots[b] = now
    return roots


@dataclass(frozen=True)
class SmoothedStates:
    """States in requested rows of one block, given all measurements.

    requested: The indices of the requested times; (a,).
    Phi_from_start: How they depend on the state at the start of the block, given its measurements; (a, s, s).
    end_cross_covariance: Their covariance with the state at its end, given all measurements up to there; (a, s, s).
    P_roots: Roots of their covariance given everything, except for `interior_covariance`; (a, s, r).
    interior_covariance: Their covariance given both ends of the block and the measurements; (a, n, a, n).
    """

    block: int
    requested: IndexArray
    Phi_from_start: Array
    end_cross_covariance: Array
    P_roots: Array
    interior_covariance: Array

    def covariance(self, H: Array) -> Array:
        """Return the covariance of observables, given everything, shape (a, o, a, o).

        Shapes: H (a, o, s).
        """
        own, noisy = H @ self.P_roots, H[..., : self.interior_covariance.shape[1]]
        found = np.einsum("aor,bpr->aobp", own, own)
        return np.asarray(found + np.einsum("aoi,aibj,bpj->aobp", noisy, self.interior_covariance, noisy))

    def variance(self, H: Array) -> Array:
        """Return the variance of observables, given everything, shape (a, o).

        Shapes: H (a, o, s).
        """
        noisy = H[..., : self.interior_covariance.shape[1]]
        rest = np.einsum("aoi,aiaj,aoj->ao", noisy, self.interior_covariance, noisy)
        return np.asarray(np.sum((H @ self.P_roots) ** 2, axis=2) + np.maximum(rest, 0.0))


@dataclass(frozen=True)
class StateSmoother:
    """States in requested rows.

    filter: On a layout with these rows.
    row_index: Their indices; (a,).
    values: The measurements minus their prior mean; (n, 1).
    measurements: The same, reduced.
    """

    filter: SquareRootFilter
    row_index: IndexArray
    values: Array
    measurements: ReducedMeasurements

    @cached_property
    def information(self) -> Array:
        """See `propagate_information`."""
        return propagate_information(self.filter)

    @cached_property
    def backward_information_roots(self) -> Array:
        """See `compute_backward_information_roots`."""
        return compute_backward_information_roots(self.filter)

    def _reduced_blocks(self) -> Iterator[tuple[IndexArray, list[IndexArray], list[IndexArray], ReducedBlocks]]:
        """Yield blocks with requested rows, some at once; which rows, their indices in `row_index`, and the models."""
        layout = self.filter.layout
        blocks, inner = np.divmod(self.row_index, layout.rows_per_block)
        order = np.argsort(blocks, kind="stable")
        distinct, starts = np.unique(blocks[order], return_index=True)
        members = np.split(order, starts[1:])
        width = layout.rows_per_block * max(layout.observable_index.shape[2], self.filter.model.n_stochastic, 1)
        # Covariances of 2,000,000 elements.
        most = max(1, 2_000_000 // (3 * width * width))
        for start in range(0, len(distinct), most):
            some, own = distinct[start : start + most], members[start : start + most]
            yield some, [inner[part] for part in own], own, self.filter.whiten_blocks(layout.plan_segments(some))

    def smooth_values(self, values: Array, boundary: BoundaryConditions | None = None) -> tuple[Array, SmoothedMeans]:
        """Return values in blocks, (b, m, k), and smoothed means.

        Shapes: values (n, k).
        """
        y = self.filter.layout.to_blocks(values, 0.0)
        measurements = self.measurements if values is self.values else self.filter.reduce_measurements(y)
        return y, smooth_means(self.filter, measurements, boundary)

    def smooth_means(self, values: Array) -> Array:
        """Return the means of the requested states, given values of all measurements, shape (a, s, k).

        Shapes: values (n, k).
        """
        return self.compute_row_means(*self.smooth_values(values))

    def compute_row_means(self, y: Array, smoothed: SmoothedMeans) -> Array:
        """Return the means of the requested states, from what `smooth_values` returns, shape (a, s, k).

        Shapes: y (b, m, k).
        """
        n = self.filter.model.n_stochastic
        means = np.zeros((len(self.row_index), self.filter.model.size, y.shape[2]))
        for blocks, inner, requested, reduced in self._reduced_blocks():
            x, r = smoothed.means[blocks], smoothed.scores[blocks + 1]
            scores = reduced.measurement_scores(y[blocks], smoothed.measurement_scores[blocks], r)
            scores = reduced.whitening_matrix.swapaxes(-1, -2) @ scores
            states = self._block_row_means(_BlockTransitions.of(self.filter, blocks), x, scores, r[:, :n])
            for number, (here, which) in enumerate(zip(inner, requested, strict=True)):
                means[which] = states[number, here]
        return means

    def _block_row_means(
        self, transitions: _BlockTransitions, start_means: Array, scores: Array, end_scores: Array
    ) -> Array:
        """Return the means of the states in all rows of some blocks, shape (u, p, s, k).

        Shapes: start_means (u, s, k), scores (u, m, k), end_scores (u, n, k).
        """
        n, (count, places, width) = transitions.H.shape[-1], transitions.H.shape[:3]
        from_rows = transitions.H.swapaxes(-1, -2) @ scores.reshape(count, places, width, -1)
        found = np.zeros((count, places, start_means.shape[1], start_means.shape[2]))
        found[:, :, n:] = transitions.Phi_from_start[:, :-1, n:, n:] @ start_means[:, None, n:]
        # The state at the start and earlier measurements go forward from row to row.
        earlier = start_means[:, :n]
        for i in range(places):
            found[:, i, :n] = earlier
            earlier = transitions.Phi[:, i] @ (earlier + transitions.P_given_start[:, i] @ from_rows[:, i])
        # Later measurements go backward.
        later = end_scores
        for i in range(places - 1, -1, -1):
            later = transitions.Phi[:, i].swapaxes(-1, -2) @ later + from_rows[:, i]
            found[:, i, :n] += transitions.P_given_start[:, i] @ later
        return found

    def smooth_covariances(self) -> Iterator[SmoothedStates]:
        """Yield covariances of the requested states, block after block."""
        own, n, size = self.filter, self.filter.model.n_stochastic, self.filter.model.size
        for blocks, inner, requested, reduced in self._reduced_blocks():
            walk = _BlockTransitions.of(own, blocks)
            joint, (count, rows, width) = walk.joint_covariance(), walk.H.shape[:3]
            # Covariances of the states in all rows, and at the end, with all whitened measurements.
            before = joint[..., :-1, :].reshape(count, (rows + 1) * n, rows, n)
            with_y = np.einsum("uajb,ujwb->uajw", before, walk.H).reshape(count, rows + 1, n, rows * width)
            cross = with_y @ reduced.whitening_matrix[:, None].swapaxes(-1, -2)
            updated, V = own.covariances.P_root_updated[blocks], reduced.Q_root[:, :, :n]
            moved = reduced.Phi @ updated
            # Information of later blocks on the state at the start, and on the process noise.
            information = self.backward_information_roots[blocks + 1] @ np.concatenate([moved, V], axis=2)
            unit = np.broadcast_to(np.eye(size + n), (count, size + n, size + n))
            U = np.linalg.qr(np.concatenate([information, unit], axis=1), mode="r") if size else unit
            back = _invert_roots(V[:, :n])
            for number, (block, here, which) in enumerate(zip(blocks.tolist(), inner, requested, strict=True)):
                C, start = cross[number, here], walk.Phi_from_start[number, here]
                start[:, :n] -= C @ reduced.whitened_H[number]
                roots = np.zeros((len(here), size, size + n))
                roots[:, :, :size] = start @ updated[number]
                end = roots[:, :, :size] @ moved[number].T
                with_end = joint[number, here][:, :, -1] - C @ reduced.noise_gain[number].T
                end[:, :n, :n] += with_end
                interior = joint[number, here][:, :, here] - np.einsum("aim,bjm->aibj", C, C)
                if interior.any():
                    roots[:, :n, size:] = with_end @ back[number].T
                    interior -= np.einsum("aim,bjm->aibj", roots[:, :n, size:], roots[:, :n, size:])
                if size:
                    flat = roots.reshape(-1, size + n).T
                    roots = lapack.dtrtrs(U[number], flat, trans=1)[0].T.reshape(roots.shape)
                yield SmoothedStates(block, which, start, end, roots, interior)

    def propagate_cross_covariance(self, first: int, last: int) -> Array:
        """Return the matrix that takes cross-covariances from the start of one block to that of a later one, (s, s)."""
        found = np.eye(self.filter.model.size)
        for b in range(first, last):
            found = found @ self.filter.covariances.closed_loop_Phi[b].T
        return found

    def sample_prior(
        self, size: int, generator: np.random.Generator, initial_states: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Draw from the prior, for the simulation smoother (Matheron's rule).

        Return measurements without noise, (n, k), requested states, (a, s, k), and states after the last block, (s, k).

        Shapes: initial_states (s, k).
        """
        own, layout, n, s = self.filter, self.filter.layout, self.filter.model.n_stochastic, self.filter.model.size
        motion = layout.discretize_model(own.model)
        roots = factor_semidefinite(motion.stochastic.Q)
        count, places = layout.n_blocks, layout.rows_per_block
        path = np.zeros((count, places + 1, s, size))
        for i in range(1, places + 1):
            steps = layout.step_index[:, i]
            path[:, i, :n] = motion.stochastic.Phi[steps] @ path[:, i - 1, :n]
            path[:, i, :n] += roots[steps] @ generator.standard_normal((count, n, size))
        whole = np.zeros((len(own.H), s, s))
        for number, family in enumerate(layout.chunk_groups):
            whole[family.patterns] = own.get_reduced_blocks(number).block_model.Phi
        if initial_states is None:
            initial_states = own.model.prior_P_root(float(layout.times[0, 0])) @ generator.standard_normal((s, size))
        now = np.zeros((count, s, size))
        for b, u in enumerate(layout.patterns.tolist()):
            now[b] = initial_states
            initial_states = whole[u] @ initial_states + path[b, -1]
        # The paths above start from zero in each block: add the effect of its initial state.
        for i in range(places):
            if i:
                steps = layout.step_index[:, i]
                moved = (motion.stochastic.Phi[steps] @ now[:, :n], motion.deterministic.Phi[steps] @ now[:, n:])
                now = np.concatenate(moved, axis=1)
            path[:, i] += now
        seen = (motion.H_padded[layout.observable_index] @ path[:, :-1]).reshape(count, -1, size)
        flat = path[:, :-1].reshape(count * places, s, size)
        return layout.from_blocks(seen, len(own.noise_variance)), flat[self.row_index], initial_states


@dataclass(frozen=True)
class _BlockTransitions:
    """Some blocks from row to row.

    Phi: Transitions from each row to the next one, of stochastic states; (u, p, n, n).
    H: Observation matrices for these states; (u, p, w, n).
    Phi_from_start: Transitions from the start to each row, and to the end, of all states; (u, p + 1, s, s).
    P_given_start: Covariances of stochastic states, given those at the start; (u, p + 1, n, n).
    """

    Phi: Array
    H: Array
    Phi_from_start: Array
    P_given_start: Array

    @classmethod
    def of(cls, kalman_filter: SquareRootFilter, blocks: IndexArray) -> _BlockTransitions:
        """Discretize the steps of some blocks."""
        model, layout = kalman_filter.model, kalman_filter.layout
        n, size, numbers = model.n_stochastic, model.size, layout.step_index[blocks, 1:]
        distinct, which = np.unique(numbers, return_inverse=True)
        motion, which = layout.discretize_model(model, distinct), which.reshape(numbers.shape)
        Phi, Q, moved = motion.stochastic.Phi[which], motion.stochastic.Q[which], motion.deterministic.Phi[which]
        rows = motion.H_padded[layout.observable_index[blocks]]
        count, places = numbers.shape
        whole, noise = np.zeros((count, places + 1, size, size)), np.zeros((count, places + 1, n, n))
        whole[:, 0] = np.eye(size)
        for i in range(places):
            whole[:, i + 1, :n, :n] = Phi[:, i] @ whole[:, i, :n, :n]
            whole[:, i + 1, n:, n:] = moved[:, i] @ whole[:, i, n:, n:]
            noise[:, i + 1] = Phi[:, i] @ noise[:, i] @ Phi[:, i].swapaxes(-1, -2) + Q[:, i]
        return cls(Phi, rows[..., :n], whole, noise)

    def joint_covariance(self) -> Array:
        """Return the covariance of states in all rows and at the end, given the start, (u, p + 1, n, p + 1, n)."""
        count, places, n, _ = self.Phi.shape
        found = np.zeros((count, places + 1, n, places + 1, n))
        for i in range(1, places + 1):
            moved = self.Phi[:, i - 1] @ found[:, i - 1, :, :i].reshape(count, n, i * n)
            found[:, i, :, :i] = moved.reshape(count, n, i, n)
            found[:, :i, :, i] = found[:, i, :, :i].transpose(0, 2, 3, 1)
            found[:, i, :, i] = self.P_given_start[:, i]
        return found


def _invert_roots(roots: Array) -> Array:
    """Return pseudo-inverses of roots from `factor_semidefinite`, shape (u, n, n)."""
    scales = np.sqrt(np.sum(roots**2, axis=2, keepdims=True))
    safe = np.where(scales > 0, scales, 1.0)
    # Columns are orthogonal after scaling; noise below 1e-15 is rounding.
    own = roots / safe
    values = np.sum(own**2, axis=1)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 1e-15)
    return np.asarray(inverse[:, :, None] * (own / safe).swapaxes(-1, -2))
