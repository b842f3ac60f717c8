"""Square-root Kalman filter over blocks of measurements, in array form [1]_.

Each block is reduced to ``z = H x + e`` with noise of unit covariance, where x is the state at its start, and moves
the state by ``Phi x + state_shift + Q_root w``. Covariances are propagated as roots, by QR factorizations: noise may
be a millionth of the signal, and states without noise have singular covariances. In equal blocks the filter converges
to its steady state, from which on nothing is computed again.

.. [1] T. Kailath, A. H. Sayed and B. Hassibi, Linear Estimation, Prentice Hall, 2000, chapter 12.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from lodekit.inference.kalman.block_model import SegmentPlan
from lodekit.inference.kalman.block_reduction import ReducedBlocks, stack_by_pattern, unstack_by_pattern, whiten_blocks
from lodekit.inference.kalman.blocks import BlockLayout, ChunkGroup
from lodekit.inference.kalman.irregular import IrregularBlocks
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.support.arguments import Array, IndexArray


@dataclass(frozen=True)
class BoundaryConditions:
    """The effect of the rest of a record at both ends of a batch of its rows.

    P_root: Root of the covariance of the state at the start, given all earlier rows; None: that of the prior; (s, s).
    mean: Mean of that state; None: zero; (s, 1).
    score: Derivative of the log evidence in the mean of the state at the end; None: zero; (s, 1).
    information: Covariance of this score: the information that later rows add to that of earlier rows; None: zero;
        (s, s).
    backward_information_root: Root B of the information ``B'B`` of later rows alone (backward information filter);
        None: zero; (s, s).
    """

    P_root: Array | None = None
    mean: Array | None = None
    score: Array | None = None
    information: Array | None = None
    backward_information_root: Array | None = None


@dataclass(frozen=True)
class FilteredCovariances:
    """Results of the Kalman filter that do not depend on values, for each block, shapes (b, s, s).

    P_root_predicted: Root of the covariance P of the state at the start of a block, given all blocks before it.
    P_root_updated: The same, given this block, too.
    gain: Kalman gain: multiplies the innovation ``z - H m`` in the update of the mean.
    explained_root: H times `P_root_updated`, a root of ``H P H' S^-1`` with ``S = 1 + H P H'``.
    S_inverse_root: Root E of the inverse innovation covariance, ``E E' = S^-1``.
    closed_loop_Phi: Transition of the mean from the start of a block to that of the next one, ``Phi (1 - gain H)``.
    half_log_det_S: Half the log determinant of S; (b,).
    update_root: The factor of `P_root_updated` relative to `P_root_predicted`.
    P_root_final: Root of the covariance of the state after the last block, given all blocks; (s, s).
    """

    P_root_predicted: Array
    P_root_updated: Array
    gain: Array
    explained_root: Array
    S_inverse_root: Array
    closed_loop_Phi: Array
    half_log_det_S: Array
    update_root: Array
    P_root_final: Array


def filter_covariances(
    P_root_initial: Array, patterns: IndexArray, H: Array, Phi: Array, Q_root: Array
) -> FilteredCovariances:
    """Run the square-root filter of covariances through all blocks.

    Shapes: P_root_initial (s, s), patterns (b,), H, Phi, Q_root (u, s, s).
    """
    blocks, size = len(patterns), len(P_root_initial)
    if not size:
        none, zeros = np.zeros((blocks, 0, 0)), np.zeros(blocks)
        return FilteredCovariances(none, none, none, none, none, none, zeros, none, P_root_initial)
    std, order, now = np.linalg.norm(P_root_initial, axis=1), np.arange(size), P_root_initial
    if std.max() > 1e4 * np.min(std[std > 0], initial=np.inf):
        # Uncertain states come first: in this order the columns of a triangular root are not almost parallel, which
        # those of modes with almost equal roots are.
        order = np.argsort(-std, kind="stable")
        now = np.asarray(np.linalg.qr(P_root_initial[order].T, mode="r")).T
    H_ordered, Phi_ordered, Q_root_ordered = H[:, :, order], Phi[:, order][:, :, order], Q_root[:, order]
    roots, first, last, steady = np.empty((blocks, size, size)), list[int](), -1, False
    update, prediction = np.zeros((2 * size, size), order="F"), np.zeros((2 * size, size), order="F")
    unit, upper = np.eye(size), np.asfortranarray(np.triu(np.ones((size, size))))
    H_and_Phi, Q_root_t = np.concatenate([H_ordered, Phi_ordered], axis=1), Q_root_ordered.swapaxes(-1, -2)
    for b, u in enumerate(patterns.tolist()):
        steady = steady and u == last
        if not steady:
            roots[len(first)] = now
            first.append(b)
            product = H_and_Phi[u].dot(now)
            update[:size], update[size:] = product[:size], unit
            factor = lapack.dgeqrf(update, overwrite_a=1)[0]
            prediction[:size] = lapack.dtrtrs(factor[:size], product[size:].T, trans=1)[0]
            prediction[size:] = Q_root_t[u]
            following = (lapack.dgeqrf(prediction, overwrite_a=1)[0][:size] * upper).T
            steady = u == last and covariances_agree(following, now)
            now, last = following, u
    places = np.argsort(order)
    roots, now = roots[: len(first), places], now[places]
    return _complete_covariances(roots, np.array(first, dtype=np.intp), patterns, H, Phi, now)


def _complete_covariances(
    P_roots: Array, first_blocks: IndexArray, patterns: IndexArray, H: Array, Phi: Array, P_root_final: Array
) -> FilteredCovariances:
    """Compute gains and updated covariances from the predicted roots of the first of some equal blocks each."""
    size, H, Phi = H.shape[-1], H[patterns[first_blocks]], Phi[patterns[first_blocks]]
    unit = np.eye(size)
    # [H P^(1/2), 1] = V U: the lower part of V is the inverse of U, and its orthogonal complement is a root of S^-1.
    stacked = np.concatenate([H @ P_roots, np.broadcast_to(unit, H.shape)], axis=1)
    V, U = np.linalg.qr(stacked, mode="complete")
    update_root = V[:, size:, :size]
    updated = P_roots @ update_root
    explained, S_inverse_root = V[:, :size, :size], V[:, :size, size:]
    gain = updated @ explained.swapaxes(-1, -2)
    half_log = np.log(np.abs(np.einsum("bii->bi", U[:, :size]))).sum(axis=1)
    closed = Phi @ _one_minus_gain_H(P_roots, updated, update_root, gain @ H)
    results = P_roots, updated, gain, explained, S_inverse_root, closed, half_log, update_root
    repeats = np.diff(first_blocks, append=len(patterns))
    return FilteredCovariances(*[*(np.repeat(part, repeats, axis=0) for part in results), P_root_final])


def _one_minus_gain_H(P_roots: Array, updated: Array, update_root: Array, gain_H: Array) -> Array:
    """Return ``1 - gain H`` for each block, accurate even where it is a difference of almost equal matrices.

    They are almost equal if a block determines states that were far more uncertain before it, as after a gap with
    growing modes. Then ``P_updated P_predicted^-1``, from roots with rows of unit length, keeps all digits, unless rows
    are parallel.
    """
    found = np.eye(gain_H.shape[-1]) - gain_H
    before, after = np.linalg.norm(P_roots, axis=2), np.linalg.norm(updated, axis=2)
    loses_digits = (after < 1e-3 * before).any(axis=1) & np.isfinite(before).all(axis=1) & (before > 0.0).all(axis=1)
    for block in np.flatnonzero(loses_digits):
        left, sizes, right = np.linalg.svd(P_roots[block] / before[block][:, None])
        if sizes[-1] > 1e-6 * sizes[0]:
            inverse = (right.T / sizes) @ left.T / before[block]
            found[block] = updated[block] @ update_root[block].T @ inverse
    return found


def covariances_agree(first_root: Array, second_root: Array) -> bool:
    """Return whether two lower triangular roots are those of the same covariance, up to rounding."""
    tolerance = 4e-16
    # Usually the first entries differ already.
    first_entry, second_entry = abs(float(first_root[0, 0])), abs(float(second_root[0, 0]))
    if abs(first_entry - second_entry) > tolerance * second_entry:
        return False
    first_P, second_P = first_root @ first_root.T, second_root @ second_root.T
    scales = np.sqrt(np.abs(np.diag(second_P)))
    return bool((np.abs(first_P - second_P) <= tolerance * np.outer(scales, scales)).all())


@dataclass(frozen=True)
class SquareRootFilter:
    """The Kalman filter through all blocks at given hyperparameters, without the values of measurements.

    R: Noise variance of each measurement; (m,).
    H, Phi, Q_root: As in `ReducedBlocks`, for all patterns; (u, s, s).
    noise_std: As in `ReducedBlocks`; (u, n).
    half_log_dets: Half the log determinant of the measurement covariance inside a block; (u,).
    cached_blocks, cached_irregular_blocks: Reduced blocks by the index of their group, if they are small enough.
    basis: The basis of `H`, if it was kept. For a rank-deficient H it depends on rounding, so all values have to be
        reduced in the same one; (u, m, s).
    boundary: The boundary conditions at both ends.
    """

    model: StateSpaceModel
    layout: BlockLayout
    R: Array
    H: Array
    Phi: Array
    Q_root: Array
    noise_std: Array
    half_log_dets: Array
    covariances: FilteredCovariances
    cached_blocks: dict[int, ReducedBlocks]
    cached_irregular_blocks: dict[int, IrregularBlocks]
    basis: Array | None = None
    boundary: BoundaryConditions = field(default_factory=BoundaryConditions)

    def get_reduced_blocks(self, group_index: int) -> ReducedBlocks:
        """Return the reduced blocks of a group."""
        return self.cached_blocks.get(group_index) or self.whiten_blocks(self.layout.get_group_plan(group_index))

    @cached_property
    def information(self) -> Array:
        """The covariance N of the score of the state at the start of each block, shape (b + 1, s, s).

        It is the information that all later data add to that of earlier data.
        """
        closed, initial = self.covariances.closed_loop_Phi, self.boundary.information
        half = self.covariances.S_inverse_root.swapaxes(-1, -2) @ self.H[self.layout.patterns]
        blocks, _, size = half.shape
        N = np.empty((blocks + 1, size, size))
        N[:-1] = half.swapaxes(-1, -2) @ half
        N[-1] = 0.0 if initial is None else initial
        for b in range(blocks - 1, -1, -1):
            N[b] += closed[b].T.dot(N[b + 1]).dot(closed[b])
        return N

    @cached_property
    def backward_information_roots(self) -> Array:
        """Roots B of the information ``B'B`` of each block and all later ones alone, shape (b + 1, s, s).

        Backward information filter: in contrast to `information`, earlier data play no role.
        """
        patterns, (_, size, _) = self.layout.patterns, self.H.shape
        roots = np.zeros((len(patterns) + 1, size, size))
        if self.boundary.backward_information_root is not None:
            roots[-1] = self.boundary.backward_information_root
        if not size:
            return roots
        Q_root_and_Phi = np.concatenate([self.Q_root, self.Phi], axis=2)
        stacked, through = np.zeros((2 * size, size), order="F"), np.zeros((2 * size, 2 * size), order="F")
        now, last, steady, upper = roots[-1], -1, False, np.asfortranarray(np.triu(np.ones((size, size))))
        for b in range(len(patterns) - 1, -1, -1):
            u = int(patterns[b])
            steady = steady and u == last
            if not steady:
                # Information of the next state, with the process noise before it eliminated.
                through[:size] = now.dot(Q_root_and_Phi[u])
                through[size:, :size], through[size:, size:] = np.eye(size), 0.0
                stacked[:size] = self.H[u]
                stacked[size:] = lapack.dgeqrf(through, overwrite_a=1)[0][size:, size:] * upper
                before = lapack.dgeqrf(stacked, overwrite_a=1)[0][:size] * upper
                steady = u == last and covariances_agree(before.T, now.T)
                now, last = before, u
            roots[b] = now
        return roots

    def whiten_blocks(self, plan: SegmentPlan) -> ReducedBlocks:
        """Return any blocks, whitened and reduced."""
        reduced = whiten_blocks(self.model, self.layout, plan, self.R)
        patterns = self.layout.patterns[plan.blocks]
        return reduced if self.basis is None else replace(reduced, basis=self.basis[patterns], H=self.H[patterns])

    def reduce_measurements(self, values: Array) -> ReducedMeasurements:
        """Reduce other values of all measurements, shape (b, m, k)."""
        measurements = ReducedMeasurements.zeros(values, self.model.size)
        for number, group in enumerate(self.layout.chunk_groups):
            measurements.add_chunk_group(group, self.get_reduced_blocks(number), values)
        return measurements


@dataclass
class ReducedMeasurements:
    """Values of all measurements, reduced to the dimension of the state in each block, for k sets of values.

    z, state_shift: As in the module; (b, s, k).
    residual_ss: Sum of squares of the whitened residuals of the reduction; (b, k).
    covariance_error, residual_error: Error of the log evidence from relative errors of covariances inside blocks, and
        the squared one from those of the residuals.
    """

    z: Array
    state_shift: Array
    residual_ss: Array
    covariance_error: float = 0.0
    residual_error: float = 0.0

    @classmethod
    def zeros(cls, values: Array, n_states: int) -> ReducedMeasurements:
        """Return zeros for values of shape (b, m, k)."""
        blocks, _, count = values.shape
        z, state_shift = np.zeros((2, blocks, n_states, count))
        return cls(z, state_shift, np.zeros((blocks, count)))

    def add_irregular_blocks(self, blocks: IndexArray, reduced: IrregularBlocks) -> None:
        """Add irregular blocks, which are reduced together with their values."""
        self.z[blocks], self.residual_ss[blocks] = reduced.z, reduced.residual_ss
        self.state_shift[blocks, : reduced.model.n_stochastic] = reduced.state_shift[:, :, None]
        self.residual_error += reduced.residual_error
        self.covariance_error += reduced.covariance_error

    def add_chunk_group(self, group: ChunkGroup, reduced_blocks: ReducedBlocks, values: Array) -> None:
        """Add the blocks of a group.

        Shapes: values (b, m, k).
        """
        for chunk, where in zip(group.chunks, group.chunk_slices, strict=True):
            reduced, blocks = reduced_blocks.select(where), chunk.blocks
            whitening, gain = reduced.whitening_matrix, reduced.noise_gain
            z = whitening @ stack_by_pattern(values, chunk)
            coefficients, residual = reduced.project(z)
            self.z[blocks] = unstack_by_pattern(coefficients, chunk)
            self.state_shift[blocks, : gain.shape[1]] = unstack_by_pattern(gain @ z, chunk)
            self.residual_ss[blocks] = unstack_by_pattern(np.sum(residual**2, axis=1, keepdims=True), chunk)[:, :, 0]
            residual = residual[:, : z.shape[1]]
            self.residual_error += float(np.sum((residual * z) ** 2))
            # Errors of the entries of a covariance are proportional to the variances.
            alpha = whitening.swapaxes(-1, -2) @ residual
            weights = np.sum(alpha**2, axis=2) + blocks.shape[1] * np.sum(whitening**2, axis=1)
            self.covariance_error += 0.5 * float(np.sum(reduced.signal_variances * weights))


def run_filter(
    model: StateSpaceModel,
    layout: BlockLayout,
    R: Array,
    values: Array,
    *,
    keep_blocks: bool = False,
    keep_basis: bool = False,
    boundary: BoundaryConditions | None = None,
) -> tuple[SquareRootFilter, ReducedMeasurements] | None:
    """Run the filter through all blocks and reduce the values; None if something is not finite or not positive.

    Shapes: R (m,), values (b, m, k).
    """
    if not (all(np.isfinite(part).all() for part in (model.F, model.noise_intensity, model.H, R)) and (R > 0).all()):
        return None
    boundary = boundary or BoundaryConditions()
    start = model.prior_P_root(float(layout.times[0, 0])) if boundary.P_root is None else boundary.P_root
    if not np.isfinite(start).all():
        return None
    count, size, rows = int(layout.patterns.max()) + 1, model.size, layout.measurement_index[0].size
    (H, Phi, Q_root), half_log_dets = np.zeros((3, count, size, size)), np.zeros(count)
    noise_std = np.zeros((count, model.n_stochastic))
    basis = np.zeros((count, max(rows, size + 1), size)) if keep_basis else None
    measurements = ReducedMeasurements.zeros(values, size)
    # Limits of the arrays that are kept for the gradient, in elements; other blocks are computed again.
    cached, room, cached_irregular, room_irregular = {}, 4_000_000, {}, 50_000_000 if keep_blocks else 0
    for number, group in enumerate(layout.chunk_groups):
        reduced: ReducedBlocks | IrregularBlocks
        try:
            if group.is_irregular:
                patterns, blocks = group.single_blocks.patterns, group.single_blocks.blocks.ravel()
                reduced = IrregularBlocks(model, layout, number, R, values)
                measurements.add_irregular_blocks(blocks, reduced)
                if (room_irregular := room_irregular - reduced.n_elements) >= 0:
                    cached_irregular[number] = reduced
            else:
                patterns = group.patterns
                reduced = whiten_blocks(model, layout, layout.get_group_plan(number), R)
                measurements.add_chunk_group(group, reduced, values)
                if (room := room - 3 * reduced.whitening_matrix.size) >= 0:
                    cached[number] = reduced
            H[patterns], Phi[patterns], Q_root[patterns] = reduced.H, reduced.Phi, reduced.Q_root
        except np.linalg.LinAlgError:
            return None
        half_log_dets[patterns], noise_std[patterns] = reduced.half_log_det, reduced.noise_std
        if basis is not None:
            basis[patterns] = reduced.basis
    if not all(bool(np.isfinite(part).all()) for part in (H, Phi, Q_root, half_log_dets)):
        return None
    covariances = filter_covariances(start, layout.patterns, H, Phi, Q_root)
    matrices = H, Phi, Q_root, noise_std, half_log_dets, covariances
    filtered = SquareRootFilter(model, layout, R, *matrices, cached, cached_irregular, basis, boundary)
    return filtered, measurements
