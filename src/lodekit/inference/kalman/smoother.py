"""States at any times, given all measurements: means, covariances and draws.

Times that are asked for are places without measurements, in blocks like all others. Given the state x at the start of
its block and the measurements y there, the state at a place is ``B x + C y + noise``; what later blocks know comes back
through its covariance with the state at the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.kalman.block_reduction import ReducedBlocks, factor_semidefinite
from lodekit.inference.kalman.sqrt_filter import (
    BoundaryConditions,
    ReducedMeasurements,
    SmoothedMeans,
    SquareRootFilter,
)

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
#: Noise of less than this, in units of states, is rounding.
_RANK_TOLERANCE = 1e-15
#: Numbers that covariances of states in blocks which are worked on together may have.
_MAX_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class SmoothedStates:
    """States at places of one block, given all measurements.

    requested: Which of the times that were asked for; (a,).
    Phi_from_start: How they follow from the state at the start of the block, given its measurements; (a, s, s).
    end_cross_covariance: Their covariance with the state at its end, given these and all before; (a, s, s).
    P_roots: Of their covariance given everything, but for what noise between the ends of the block does; (a, s, r).
    interior_covariance: The covariance that this adds, given both ends and the measurements; (a, n, a, n).
    """

    block: int
    requested: IndexArray
    Phi_from_start: Array
    end_cross_covariance: Array
    P_roots: Array
    interior_covariance: Array

    def covariance(self, H: Array) -> Array:
        """Return the covariance of rows of numbers, given everything, shape (a, o, a, o).

        Shapes: H (a, o, s).
        """
        own, noisy = H @ self.P_roots, H[..., : self.interior_covariance.shape[1]]
        found = np.einsum("aor,bpr->aobp", own, own)
        return np.asarray(found + np.einsum("aoi,aibj,bpj->aobp", noisy, self.interior_covariance, noisy))

    def variance(self, H: Array) -> Array:
        """Return the variance of rows of numbers, given everything, shape (a, o): rows come first, squares last.

        Shapes: H (a, o, s).
        """
        noisy = H[..., : self.interior_covariance.shape[1]]
        rest = np.einsum("aoi,aiaj,aoj->ao", noisy, self.interior_covariance, noisy)
        return np.asarray(np.sum((H @ self.P_roots) ** 2, axis=2) + np.maximum(rest, 0.0))


@dataclass(frozen=True)
class StateSmoother:
    """Places at which states are asked for, among all blocks.

    filter: On a layout with these places.
    row_index: Their numbers; (a,).
    values: The measurements without all that is known; (n, 1).
    measurements: What these say of states.
    """

    filter: SquareRootFilter
    row_index: IndexArray
    values: Array
    measurements: ReducedMeasurements

    @cached_property
    def information(self) -> Array:
        """What all later data know of the state at the start of each block, shape (b + 1, s, s)."""
        return self.filter.propagate_information()

    @cached_property
    def backward_information_roots(self) -> Array:
        """Roots of what each block and all after it say of the state at its start, shape (b + 1, s, s)."""
        return self.filter.compute_backward_information_roots()

    @cached_property
    def _requested_blocks(self) -> list[tuple[IndexArray, list[IndexArray], list[IndexArray]]]:
        """Blocks with places that are asked for, some at once; which places, and which of those asked for."""
        layout = self.filter.layout
        blocks, inner = np.divmod(self.row_index, layout.rows_per_block)
        order = np.argsort(blocks, kind="stable")
        different, starts = np.unique(blocks[order], return_index=True)
        members = np.split(order, starts[1:])
        width = layout.rows_per_block * max(layout.observable_index.shape[2], self.filter.model.n_stochastic, 1)
        most = max(1, _MAX_ELEMENTS // (3 * width * width))
        found = []
        for start in range(0, len(different), most):
            own = members[start : start + most]
            found.append((different[start : start + most], [inner[part] for part in own], own))
        return found

    def _reduced_blocks(self) -> Iterator[tuple[IndexArray, list[IndexArray], list[IndexArray], ReducedBlocks]]:
        for blocks, inner, asked in self._requested_blocks:
            yield blocks, inner, asked, self.filter.whiten_blocks(self.filter.layout.plan_segments(blocks))

    def smooth_values(self, values: Array, boundary: BoundaryConditions | None = None) -> tuple[Array, SmoothedMeans]:
        """Return values in blocks, (b, m, k), and what they say of states.

        Shapes: values (n, k).
        """
        own = self.filter
        y = own.layout.to_blocks(values, 0.0)
        found = self.measurements if values is self.values else own.reduce_measurements(y)
        return y, own.smooth_means(found, boundary)

    def smooth_means(self, values: Array) -> Array:
        """Return the means of the states that were asked for, given values of all measurements, shape (a, s, k).

        Shapes: values (n, k).
        """
        return self.compute_row_means(*self.smooth_values(values))

    def compute_row_means(self, y: Array, smoothed: SmoothedMeans) -> Array:
        """Return the means of the states that were asked for, from what `smooth` returns, shape (a, s, k).

        Shapes: y (b, m, k).
        """
        own, n = self.filter, self.filter.model.n_stochastic
        found = np.zeros((len(self.row_index), own.model.size, y.shape[2]))
        for blocks, inner, asked, white in self._reduced_blocks():
            x, r = smoothed.means[blocks], smoothed.scores[blocks + 1]
            scores = white.whitening_matrix.swapaxes(-1, -2) @ white.measurement_scores(
                y[blocks], smoothed.measurement_scores[blocks], r
            )
            states = self._block_row_means(_BlockTransitions.of(own, blocks), x, scores, r[:, :n])
            for row, (here, which) in enumerate(zip(inner, asked, strict=True)):
                found[which] = states[row, here]
        return found

    def _block_row_means(
        self, transitions: _BlockTransitions, start_means: Array, scores: Array, end_scores: Array
    ) -> Array:
        """Return the means of the states at all places of some blocks, shape (u, p, s, k).

        Shapes: start_means (u, s, k), scores (u, m, k), end_scores (u, n, k).
        """
        n, (count, places, width) = transitions.H.shape[-1], transitions.H.shape[:3]
        from_rows = transitions.H.swapaxes(-1, -2) @ scores.reshape(count, places, width, -1)
        found = np.zeros((count, places, start_means.shape[1], start_means.shape[2]))
        found[:, :, n:] = transitions.Phi_from_start[:, :-1, n:, n:] @ start_means[:, None, n:]
        # The start and what was measured before go forward from place to place.
        earlier = start_means[:, :n]
        for i in range(places):
            found[:, i, :n] = earlier
            earlier = transitions.Phi[:, i] @ (earlier + transitions.P_given_start[:, i] @ from_rows[:, i])
        # What was measured later goes backward.
        later = end_scores
        for i in range(places - 1, -1, -1):
            later = transitions.Phi[:, i].swapaxes(-1, -2) @ later + from_rows[:, i]
            found[:, i, :n] += transitions.P_given_start[:, i] @ later
        return found

    def smooth_covariances(self) -> Iterator[SmoothedStates]:
        """Yield covariances of the states that were asked for, block after block."""
        own, n, size = self.filter, self.filter.model.n_stochastic, self.filter.model.size
        for blocks, inner, asked, white in self._reduced_blocks():
            walk = _BlockTransitions.of(own, blocks)
            joint, (count, places, width) = walk.joint_covariance(), walk.H.shape[:3]
            # Of the states at all places, and at the end, with all measurements: whitened.
            before = joint[..., :-1, :].reshape(count, (places + 1) * n, places, n)
            with_y = np.einsum("uajb,ujwb->uajw", before, walk.H)
            cross = with_y.reshape(count, places + 1, n, places * width) @ white.whitening_matrix[:, None].swapaxes(
                -1, -2
            )
            later = own.covariances.P_root_updated[blocks]
            moved, V = white.Phi @ later, white.Q_root[:, :, :n]
            # What later blocks say of the state at the start, and of the noise at the end.
            said = self.backward_information_roots[blocks + 1] @ np.concatenate([moved, V], axis=2)
            unit = np.broadcast_to(np.eye(size + n), (count, size + n, size + n))
            U = np.linalg.qr(np.concatenate([said, unit], axis=1), mode="r") if size else unit
            back = _invert_roots(V[:, :n])
            for row, (block, here, which) in enumerate(zip(blocks.tolist(), inner, asked, strict=True)):
                C, start = cross[row, here], walk.Phi_from_start[row, here]
                start[:, :n] -= C @ white.whitened_H[row]
                roots = np.zeros((len(here), size, size + n))
                roots[:, :, :size] = start @ later[row]
                end = roots[:, :, :size] @ moved[row].T
                with_end = joint[row, here][:, :, -1] - C @ white.noise_gain[row].T
                end[:, :n, :n] += with_end
                rest = joint[row, here][:, :, here] - np.einsum("aim,bjm->aibj", C, C)
                if rest.any():
                    roots[:, :n, size:] = with_end @ back[row].T
                    rest -= np.einsum("aim,bjm->aibj", roots[:, :n, size:], roots[:, :n, size:])
                if size:
                    flat = roots.reshape(-1, size + n).T
                    roots = lapack.dtrtrs(U[row], flat, trans=1)[0].T.reshape(roots.shape)
                yield SmoothedStates(block, which, start, end, roots, rest)

    def propagate_cross_covariance(self, first: int, last: int) -> Array:
        """Return what takes covariances with the start of one block to the start of a later one, shape (s, s)."""
        found = np.eye(self.filter.model.size)
        for b in range(first, last):
            found = found @ self.filter.covariances.closed_loop_Phi[b].T
        return found

    def sample_prior(
        self, size: int, generator: np.random.Generator, initial_states: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Return draws from the prior.

        Measurements without noise, (n, k); states that are asked for, (a, s, k), and after the last block, (s, k).

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
        # Noise begins anew in each block; what its start brings is added.
        for i in range(places):
            if i:
                steps = layout.step_index[:, i]
                moved = (motion.stochastic.Phi[steps] @ now[:, :n], motion.deterministic.Phi[steps] @ now[:, n:])
                now = np.concatenate(moved, axis=1)
            path[:, i] += now
        observed = np.where(layout.observable_index >= 0, layout.observable_index, len(motion.H_padded) - 1)
        seen = (motion.H_padded[observed] @ path[:, :-1]).reshape(count, -1, size)
        flat = path[:, :-1].reshape(count * places, s, size)
        return layout.from_blocks(seen, len(own.noise_variance)), flat[self.row_index], initial_states


@dataclass(frozen=True)
class _BlockTransitions:
    """Some blocks from place to place.

    Phi: Transitions from each place to the next one, of the states that noise drives; (u, p, n, n).
    H: What is read of these at each place; (u, p, w, n).
    Phi_from_start: How the states at each place, and at the end, follow from those at the start; (u, p + 1, s, s).
    P_given_start: Covariances of the states that noise drives, given those at the start; (u, p + 1, n, n).
    """

    Phi: Array
    H: Array
    Phi_from_start: Array
    P_given_start: Array

    @classmethod
    def of(cls, kalman_filter: SquareRootFilter, blocks: IndexArray) -> _BlockTransitions:
        """Return some blocks."""
        n, size, numbers = (
            kalman_filter.model.n_stochastic,
            kalman_filter.model.size,
            kalman_filter.layout.step_index[blocks, 1:],
        )
        different, which = np.unique(numbers, return_inverse=True)
        motion, which = (
            kalman_filter.layout.discretize_model(kalman_filter.model, different),
            which.reshape(numbers.shape),
        )
        Phi, Q, moved = motion.stochastic.Phi[which], motion.stochastic.Q[which], motion.deterministic.Phi[which]
        observed = kalman_filter.layout.observable_index[blocks]
        rows = motion.H_padded[np.where(observed >= 0, observed, len(motion.H_padded) - 1)]
        count, places = numbers.shape
        whole, noise = np.zeros((count, places + 1, size, size)), np.zeros((count, places + 1, n, n))
        whole[:, 0] = np.eye(size)
        for i in range(places):
            whole[:, i + 1, :n, :n] = Phi[:, i] @ whole[:, i, :n, :n]
            whole[:, i + 1, n:, n:] = moved[:, i] @ whole[:, i, n:, n:]
            noise[:, i + 1] = Phi[:, i] @ noise[:, i] @ Phi[:, i].swapaxes(-1, -2) + Q[:, i]
        return cls(Phi, rows[..., :n], whole, noise)

    def joint_covariance(self) -> Array:
        """Return the covariance of states at all places and the end, given the start, (u, p + 1, n, p + 1, n)."""
        count, places, n, _ = self.Phi.shape
        found = np.zeros((count, places + 1, n, places + 1, n))
        for i in range(1, places + 1):
            moved = self.Phi[:, i - 1] @ found[:, i - 1, :, :i].reshape(count, n, i * n)
            found[:, i, :, :i] = moved.reshape(count, n, i, n)
            found[:, :i, :, i] = found[:, i, :, :i].transpose(0, 2, 3, 1)
            found[:, i, :, i] = self.P_given_start[:, i]
        return found


def _invert_roots(roots: Array) -> Array:
    """Return inverses of roots as `factor_semidefinite` makes them, shape (u, n, n); directions without noise stay without.

    Shapes: roots (u, n, n).
    """
    scales = np.sqrt(np.sum(roots**2, axis=2, keepdims=True))
    safe = np.where(scales > 0, scales, 1.0)
    # Columns are orthogonal in units of the states.
    own = roots / safe
    values = np.sum(own**2, axis=1)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > _RANK_TOLERANCE)
    return np.asarray(inverse[:, :, None] * (own / safe).swapaxes(-1, -2))
