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

import numpy as np
from scipy.linalg import lapack

from lodekit.inference.kalman.block_reduction import ReducedBlocks
from lodekit.inference.kalman.discretize import factor_semidefinite
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions, ReducedMeasurements, SquareRootFilter
from lodekit.support.arguments import Array, IndexArray


@dataclass(frozen=True)
class SmoothedMeans:
    """Results of filter and smoother that depend on values, for each block and k sets of values.

    innovations: ``v = z - H m`` with the predicted mean m; (b, s, k).
    updated_means: Mean of the state at the start of a block, given this and all blocks before it; (b, s, k).
    scores: Derivative of the log evidence in the predicted mean at the start of each block, and after the last;
        (b + 1, s, k).
    means: Mean of the state at the start of each block, given all data; (b, s, k).
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
    m = np.empty((blocks + 1, size, count))
    m[0] = 0.0 if boundary.mean is None else boundary.mean
    m[1:] = Phi @ (covariances.gain @ z) + measurements.state_shift
    for b in range(blocks):
        m[b + 1] += closed[b].dot(m[b])
    v = z - H @ m[:-1]
    updated = m[:-1] + covariances.gain @ v
    S_inverse_v = covariances.S_inverse_root @ (covariances.S_inverse_root.swapaxes(-1, -2) @ v)
    scores = np.empty((blocks + 1, size, count))
    scores[:-1] = H.swapaxes(-1, -2) @ S_inverse_v
    scores[-1] = 0.0 if boundary.score is None else boundary.score
    for b in range(blocks - 1, -1, -1):
        scores[b] += closed[b].T.dot(scores[b + 1])
    changes = covariances.P_root_updated.swapaxes(-1, -2) @ (Phi.swapaxes(-1, -2) @ scores[1:])
    # Differences of values and means would lose digits: noise may be far below both.
    means = updated + covariances.P_root_updated @ changes
    measurement_scores = S_inverse_v - covariances.explained_root @ changes
    return SmoothedMeans(v, updated, scores, means, measurement_scores, m[-1])


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

    def _reduced_blocks(self) -> Iterator[tuple[IndexArray, list[IndexArray], list[IndexArray], ReducedBlocks]]:
        """Yield groups of blocks with requested rows: blocks, rows, their indices in `row_index`, and the models."""
        layout = self.filter.layout
        blocks, inner = np.divmod(self.row_index, layout.rows_per_block)
        order = np.argsort(blocks, kind="stable")
        distinct, starts = np.unique(blocks[order], return_index=True)
        members = np.split(order, starts[1:])
        width = layout.rows_per_block * max(layout.observable_index.shape[2], self.filter.model.n_stochastic, 1)
        # At most 2,000,000 elements of covariances at once.
        step = max(1, 2_000_000 // (3 * width * width))
        for start in range(0, len(distinct), step):
            some, requested = distinct[start : start + step], members[start : start + step]
            reduced = self.filter.whiten_blocks(layout.plan_segments(some))
            yield some, [inner[part] for part in requested], requested, reduced

    def smooth_values(self, values: Array, boundary: BoundaryConditions | None = None) -> tuple[Array, SmoothedMeans]:
        """Return values in blocks, (b, m, k), and smoothed means.

        Shapes: values (n, k).
        """
        y = self.filter.layout.to_blocks(values, 0.0)
        measurements = self.measurements if values is self.values else self.filter.reduce_measurements(y)
        return y, smooth_means(self.filter, measurements, boundary)

    def compute_row_means(self, y: Array, smoothed: SmoothedMeans) -> Array:
        """Return the means of the requested states, from what `smooth_values` returns, shape (a, s, k).

        Shapes: y (b, m, k).
        """
        n = self.filter.model.n_stochastic
        means = np.zeros((len(self.row_index), self.filter.model.size, y.shape[2]))
        for blocks, inner, requested, reduced in self._reduced_blocks():
            transitions = _BlockTransitions.of(self.filter, blocks)
            x, r = smoothed.means[blocks], smoothed.scores[blocks + 1]
            scores = reduced.measurement_scores(y[blocks], smoothed.measurement_scores[blocks], r)
            scores = reduced.whitening_matrix.swapaxes(-1, -2) @ scores
            count, places, width, _ = transitions.H.shape
            row_scores = transitions.H.swapaxes(-1, -2) @ scores.reshape(count, places, width, -1)
            states = np.zeros((count, places, *x.shape[1:]))
            states[:, :, n:] = transitions.Phi_from_start[:, :-1, n:, n:] @ x[:, None, n:]
            # The state at the start and earlier measurements go forward from row to row.
            earlier = x[:, :n]
            for i in range(places):
                states[:, i, :n] = earlier
                earlier = transitions.Phi[:, i] @ (earlier + transitions.P_given_start[:, i] @ row_scores[:, i])
            # Later measurements go backward.
            later = r[:, :n]
            for i in range(places - 1, -1, -1):
                later = transitions.Phi[:, i].swapaxes(-1, -2) @ later + row_scores[:, i]
                states[:, i, :n] += transitions.P_given_start[:, i] @ later
            for number, (here, which) in enumerate(zip(inner, requested, strict=True)):
                means[which] = states[number, here]
        return means

    def variance(self, H: Array) -> Array:
        """Return the variance of observables in the requested rows, given all data, shape (a, o), for H (a, o, s)."""
        n, variance = self.filter.model.n_stochastic, np.zeros(H.shape[:2])
        for _, requested, _, _, P_roots, interior in self._smooth_covariances():
            rows = H[requested]
            inside = np.einsum("aoi,aiaj,aoj->ao", rows[..., :n], interior, rows[..., :n])
            variance[requested] = np.sum((rows @ P_roots) ** 2, axis=2) + np.maximum(inside, 0.0)
        return variance

    def covariance(self, H: Array) -> Array:
        """Return the covariance of observables in requested rows, given all data, (a, o, a, o), for H (a, o, s)."""
        (total, count, size), n = H.shape, self.filter.model.n_stochastic
        covariances, N = self.filter.covariances, self.filter.information
        covariance, every = np.zeros((total, count, total, count)), np.arange(count)

        def store(first: IndexArray, second: IndexArray, values: Array) -> None:
            covariance[first[:, None, None, None], every[:, None, None], second[:, None], every] = values

        # Requested values in earlier blocks, and their covariance with the state at the start of the next one.
        earlier, cross, next_block = np.zeros(0, dtype=np.intp), np.zeros((0, size)), 0
        for b, here, Phi_from_start, end_cross, P_roots, interior in self._smooth_covariances():
            rows, closed = H[here], covariances.closed_loop_Phi[b]
            roots, noisy = rows @ P_roots, rows[..., :n]
            inside = np.einsum("aoi,aibj,bpj->aobp", noisy, interior, noisy)
            store(here, here, np.einsum("aor,bpr->aobp", roots, roots) + inside)
            for between in range(next_block, b):
                cross = cross @ covariances.closed_loop_Phi[between].T
            update = np.eye(size) - covariances.gain[b] @ self.filter.H[self.filter.layout.patterns[b]]
            end = rows @ end_cross
            # (a, o, s): their dependence on the predicted state at the start of this block, given all data.
            dependence = rows @ Phi_from_start @ update - end @ N[b + 1] @ closed
            with_earlier = (cross @ dependence.reshape(-1, size).T).reshape(len(earlier), count, len(here), count)
            store(earlier, here, with_earlier)
            store(here, earlier, with_earlier.transpose(2, 3, 0, 1))
            earlier = np.concatenate([earlier, here])
            cross, next_block = np.concatenate([cross @ closed.T, end.reshape(-1, size)]), b + 1
        return covariance

    def _smooth_covariances(self) -> Iterator[tuple[int, IndexArray, Array, Array, Array, Array]]:
        """Yield covariances of the states in the requested rows, block by block, given all data.

        Each item is the block; indices in `row_index`, (a,); the dependence of the states on that at the start of the
        block, given its measurements, (a, s, s); their covariance with the state at its end, given all measurements up
        to there, (a, s, s); roots of their covariance given all data, (a, s, r), except for the covariance given both
        ends of the block and its measurements, (a, n, a, n).
        """
        kalman_filter, n, size = self.filter, self.filter.model.n_stochastic, self.filter.model.size
        for blocks, inner, requested, reduced in self._reduced_blocks():
            transitions = _BlockTransitions.of(kalman_filter, blocks)
            joint, (count, rows, width) = transitions.joint_covariance(), transitions.H.shape[:3]
            # Covariances of the states in all rows, and at the end, with all whitened measurements.
            before = joint[..., :-1, :].reshape(count, (rows + 1) * n, rows, n)
            with_y = np.einsum("uajb,ujwb->uajw", before, transitions.H).reshape(count, rows + 1, n, rows * width)
            cross = with_y @ reduced.whitening_matrix[:, None].swapaxes(-1, -2)
            P_root, Q_root = kalman_filter.covariances.P_root_updated[blocks], reduced.Q_root[:, :, :n]
            Phi_P_root = reduced.Phi @ P_root
            # Information of later blocks on the state at the start, and on the process noise.
            later = kalman_filter.backward_information_roots[blocks + 1] @ np.concatenate([Phi_P_root, Q_root], axis=2)
            unit = np.broadcast_to(np.eye(size + n), (count, size + n, size + n))
            U = np.linalg.qr(np.concatenate([later, unit], axis=1), mode="r") if size else unit
            Q_root_inverse = _invert_roots(Q_root[:, :n])
            for number, (block, here, which) in enumerate(zip(blocks.tolist(), inner, requested, strict=True)):
                C, start = cross[number, here], transitions.Phi_from_start[number, here]
                start[:, :n] -= C @ reduced.whitened_H[number]
                roots = np.zeros((len(here), size, size + n))
                roots[:, :, :size] = start @ P_root[number]
                end = roots[:, :, :size] @ Phi_P_root[number].T
                with_end = joint[number, here][:, :, -1] - C @ reduced.noise_gain[number].T
                end[:, :n, :n] += with_end
                interior = joint[number, here][:, :, here] - np.einsum("aim,bjm->aibj", C, C)
                if interior.any():
                    roots[:, :n, size:] = with_end @ Q_root_inverse[number].T
                    interior -= np.einsum("aim,bjm->aibj", roots[:, :n, size:], roots[:, :n, size:])
                if size:
                    flat = roots.reshape(-1, size + n).T
                    roots = lapack.dtrtrs(U[number], flat, trans=1)[0].T.reshape(roots.shape)
                yield block, which, start, end, roots, interior

    def sample_prior(
        self, size: int, generator: np.random.Generator, initial_states: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Draw from the prior, for the simulation smoother (Matheron's rule).

        Return measurements without noise, (n, k), requested states, (a, s, k), and states after the last block, (s, k).

        Shapes: initial_states (s, k).
        """
        layout, model = self.filter.layout, self.filter.model
        n, s, discretized = model.n_stochastic, model.size, layout.discretize_model(model)
        Phi, Q_root = discretized.stochastic.Phi, factor_semidefinite(discretized.stochastic.Q)
        count, places = layout.n_blocks, layout.rows_per_block
        path = np.zeros((count, places + 1, s, size))
        for i in range(1, places + 1):
            steps = layout.step_index[:, i]
            path[:, i, :n] = Phi[steps] @ path[:, i - 1, :n]
            path[:, i, :n] += Q_root[steps] @ generator.standard_normal((count, n, size))
        block_Phi = np.zeros((len(self.filter.H), s, s))
        for number, group in enumerate(layout.chunk_groups):
            block_Phi[group.patterns] = self.filter.get_reduced_blocks(number).block_model.Phi
        if initial_states is None:
            initial_states = model.prior_P_root(float(layout.times[0, 0])) @ generator.standard_normal((s, size))
        state = np.zeros((count, s, size))
        for b, u in enumerate(layout.patterns.tolist()):
            state[b] = initial_states
            initial_states = block_Phi[u] @ initial_states + path[b, -1]
        # The paths above start from zero in each block: add the effect of its initial state.
        for i in range(places):
            if i:
                steps = layout.step_index[:, i]
                parts = Phi[steps] @ state[:, :n], discretized.deterministic.Phi[steps] @ state[:, n:]
                state = np.concatenate(parts, axis=1)
            path[:, i] += state
        y = (discretized.H_padded[layout.observable_index] @ path[:, :-1]).reshape(count, -1, size)
        flat = path[:, :-1].reshape(count * places, s, size)
        return layout.from_blocks(y, len(self.filter.R)), flat[self.row_index], initial_states


@dataclass(frozen=True)
class _BlockTransitions:
    """Transitions and covariances from row to row in some blocks.

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
        discretized, which = layout.discretize_model(model, distinct), which.reshape(numbers.shape)
        Phi, Q = discretized.stochastic.Phi[which], discretized.stochastic.Q[which]
        deterministic_Phi = discretized.deterministic.Phi[which]
        H = discretized.H_padded[layout.observable_index[blocks]]
        count, places = numbers.shape
        from_start, P = np.zeros((count, places + 1, size, size)), np.zeros((count, places + 1, n, n))
        from_start[:, 0] = np.eye(size)
        for i in range(places):
            from_start[:, i + 1, :n, :n] = Phi[:, i] @ from_start[:, i, :n, :n]
            from_start[:, i + 1, n:, n:] = deterministic_Phi[:, i] @ from_start[:, i, n:, n:]
            P[:, i + 1] = Phi[:, i] @ P[:, i] @ Phi[:, i].swapaxes(-1, -2) + Q[:, i]
        return cls(Phi, H[..., :n], from_start, P)

    def joint_covariance(self) -> Array:
        """Return the covariance of states in all rows and at the end, given the start, (u, p + 1, n, p + 1, n)."""
        count, places, n, _ = self.Phi.shape
        joint = np.zeros((count, places + 1, n, places + 1, n))
        for i in range(1, places + 1):
            product = self.Phi[:, i - 1] @ joint[:, i - 1, :, :i].reshape(count, n, i * n)
            joint[:, i, :, :i] = product.reshape(count, n, i, n)
            joint[:, :i, :, i] = joint[:, i, :, :i].transpose(0, 2, 3, 1)
            joint[:, i, :, i] = self.P_given_start[:, i]
        return joint


def _invert_roots(roots: Array) -> Array:
    """Return pseudo-inverses of roots from `factor_semidefinite`, shape (u, n, n)."""
    scales = np.sqrt(np.sum(roots**2, axis=2, keepdims=True))
    safe = np.where(scales > 0, scales, 1.0)
    # Columns are orthogonal after scaling; noise below 1e-15 is a rounding error.
    scaled = roots / safe
    values = np.sum(scaled**2, axis=1)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 1e-15)
    return np.asarray(inverse[:, :, None] * (scaled / safe).swapaxes(-1, -2))
