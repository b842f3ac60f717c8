"""Between blocks only the state is carried: a square-root filter forward, scores and their information backward.

A block says of the state x at its start what ``c = R x + noise`` says, with noise of unit variance, and moves it by
``T x + g + noise``. Covariances are kept as roots: noise may be a millionth of the signal, and states without noise
have singular covariances. Backward go the derivative r of the log evidence in the mean of a state, and the
information N that all later data have of it; both are sums without subtractions. What these say of a state by
themselves, whatever was known before, is kept as a root as well: with it covariances given everything are squares.

All blocks at some hyperparameters: measurements whitened inside blocks, and the filter between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.kalman.block_model import SegmentPlan
from lodekit.inference.kalman.block_reduction import (
    ReducedBlocks,
    ReducedIrregularBlocks,
    factor_semidefinite,
    stack_by_pattern,
    unstack_by_pattern,
    whiten_blocks,
)
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout, ChunkGroup
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
#: Roots that change by no more than rounding have settled.
_STEADY_STATE_TOLERANCE = 4e-16


@dataclass(frozen=True)
class BoundaryConditions:
    """What the rest of a record says at both ends of a piece of it; nothing where the piece is all of it.

    P_root: Of the covariance of the state at the start, given all that is before; that of the prior where nobody
        says; (s, s).
    mean: Of that state; zeros where nobody says; (s, 1).
    score: The derivative of the log evidence in the mean of the state at the end; zeros where nobody says; (s, 1).
    information: What all that follows knows of that state beyond all before; zeros where nobody says; (s, s).
    backward_information_root: A root B of what all that follows says of that state by itself, ``B'B``; zeros where
        nobody says; (s, s).
    """

    P_root: Array | None = None
    mean: Array | None = None
    score: Array | None = None
    information: Array | None = None
    backward_information_root: Array | None = None


@dataclass(frozen=True)
class FilteredCovariances:
    """What does not depend on values, for each block, shapes (b, s, s).

    P_root_predicted: Of the covariance of the state at the start of a block, given all blocks before it.
    P_root_updated: The same, given this block, too.
    gain: What ``c - R m`` is multiplied by to be added to the mean.
    explained_root: R times `P_root_updated`: a root of what the block knows already, ``R P R' (1 + R P R')^-1``.
    S_inverse_root: A root E of what it does not know, ``E E' = (1 + R P R')^-1``.
    closed_loop_Phi: How the mean at the start of a block moves to the next one, ``T (1 - gain R)``.
    half_log_det_S: Half the logarithm of the determinant of ``1 + R P R'``; (b,).
    P_root_final: A root of the covariance of the state after the last block, given all blocks; (s, s).
    """

    P_root_predicted: Array
    P_root_updated: Array
    gain: Array
    explained_root: Array
    S_inverse_root: Array
    closed_loop_Phi: Array
    half_log_det_S: Array
    P_root_final: Array


def filter_covariances(
    P_root_initial: Array, patterns: IndexArray, H: Array, Phi: Array, Q_root: Array
) -> FilteredCovariances:
    """Return the filter of covariances through all blocks.

    Shapes: P_root_initial (s, s), patterns (b,), H, Phi, Q_root (u, s, s).
    """
    blocks, size = len(patterns), len(P_root_initial)
    roots, now, last, settled = np.empty((blocks, size, size)), P_root_initial, -1, False
    first: list[int] = []
    stacked, moved = np.zeros((2 * size, size), order="F"), np.zeros((2 * size, size), order="F")
    unit, upper = np.eye(size), np.asfortranarray(np.triu(np.ones((size, size))))
    # What is said and where it goes are one product, and noises stand as they are needed.
    both, turned = np.concatenate([H, Phi], axis=1), Q_root.swapaxes(-1, -2)
    for b, u in enumerate(patterns.tolist() if size else ()):
        settled = settled and u == last
        if not settled:
            roots[len(first)] = now
            first.append(b)
            product = both[u].dot(now)
            stacked[:size], stacked[size:] = product[:size], unit
            factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
            moved[:size], moved[size:] = lapack.dtrtrs(factor[:size], product[size:].T, trans=1)[0], turned[u]
            following = (lapack.dgeqrf(moved, overwrite_a=1)[0][:size] * upper).T
            settled = u == last and _covariances_agree(following, now)
            now, last = following, u
    return _complete_covariances(roots[: len(first)], np.array(first, dtype=np.intp), patterns, H, Phi, now)


def _complete_covariances(
    P_roots: Array, first_blocks: IndexArray, patterns: IndexArray, H: Array, Phi: Array, P_root_final: Array
) -> FilteredCovariances:
    """Return all that follows from roots at the start of the first of some equal blocks each."""
    blocks, size = len(patterns), H.shape[-1]
    if not size:
        none = np.zeros((blocks, 0, 0))
        return FilteredCovariances(none, none, none, none, none, none, np.zeros(blocks), P_root_final)
    own, unit = H[patterns[first_blocks]], np.eye(size)
    both = np.concatenate([own @ P_roots, np.broadcast_to(unit, own.shape)], axis=1)
    # [R P^(1/2), 1] = Q U: the lower part of Q is the inverse of U, and what is orthogonal to Q is not seen.
    Q, U = np.linalg.qr(both, mode="complete")
    later = P_roots @ Q[:, size:, :size]
    share, unseen = Q[:, :size, :size], Q[:, :size, size:]
    gain = later @ share.swapaxes(-1, -2)
    closed = Phi[patterns[first_blocks]] @ (unit - gain @ own)
    half_log = np.log(np.abs(np.einsum("bii->bi", U[:, :size]))).sum(axis=1)
    which = np.repeat(np.arange(len(first_blocks)), np.diff(first_blocks, append=blocks))
    found = (P_roots[which], later[which], gain[which], share[which], unseen[which], closed[which], half_log[which])
    return FilteredCovariances(*found, P_root_final)


def _covariances_agree(first_root: Array, second_root: Array) -> bool:
    """Return whether two roots are those of the same covariance, to rounding."""
    # Mostly the first deviation differs already; roots are triangular.
    one, other = abs(float(first_root[0, 0])), abs(float(second_root[0, 0]))
    if abs(one - other) > _STEADY_STATE_TOLERANCE * other:
        return False
    P, Q = first_root @ first_root.T, second_root @ second_root.T
    scales = np.sqrt(np.abs(np.diag(Q)))
    return bool((np.abs(P - Q) <= _STEADY_STATE_TOLERANCE * np.outer(scales, scales)).all())


@dataclass(frozen=True)
class SmoothedMeans:
    """What depends on values, for each block and k sets of values at once.

    innovations: ``c - R m``; (b, s, k).
    updated_means: The mean of the state at the start of a block, given this and all blocks before it; (b, s, k).
    scores: Derivative of the log evidence in the mean of the state at the start of each block, and after the last; (b
        + 1, s, k).
    means: Of the state at the start of each block, given everything; (b, s, k).
    measurement_scores: Derivatives of the log evidence in the mean of ``c``; what blocks add to the state is left
        out; (b, s, k).
    final_mean: The mean of the state after the last block, given all blocks; (s, k).
    """

    innovations: Array
    updated_means: Array
    scores: Array
    means: Array
    measurement_scores: Array
    final_mean: Array


def smooth_means(
    covariances: FilteredCovariances,
    patterns: IndexArray,
    H: Array,
    Phi: Array,
    z: Array,
    state_shift: Array,
    boundary: BoundaryConditions | None = None,
) -> SmoothedMeans:
    """Return means through all blocks and back.

    Shapes: z, state_shift (b, s, k).
    """
    boundary = boundary or BoundaryConditions()
    blocks, size, count = z.shape
    own_R, own_T, closed = H[patterns], Phi[patterns], covariances.closed_loop_Phi
    path = np.empty((blocks + 1, size, count))
    path[0] = 0.0 if boundary.mean is None else boundary.mean
    path[1:] = own_T @ (covariances.gain @ z) + state_shift
    for b in range(blocks):
        path[b + 1] += closed[b].dot(path[b])
    seen = z - own_R @ path[:-1]
    updated = path[:-1] + covariances.gain @ seen
    weighed = covariances.S_inverse_root @ (covariances.S_inverse_root.swapaxes(-1, -2) @ seen)
    scores = np.empty((blocks + 1, size, count))
    scores[:-1] = own_R.swapaxes(-1, -2) @ weighed
    scores[-1] = 0.0 if boundary.score is None else boundary.score
    for b in range(blocks - 1, -1, -1):
        scores[b] += closed[b].T.dot(scores[b + 1])
    ahead = own_T.swapaxes(-1, -2) @ scores[1:]
    changes = covariances.P_root_updated.swapaxes(-1, -2) @ ahead
    # Small numbers that differences of values and means would not have: noise may be far below both.
    means, told = updated + covariances.P_root_updated @ changes, weighed - covariances.explained_root @ changes
    return SmoothedMeans(seen, updated, scores, means, told, path[-1])


def propagate_information(
    covariances: FilteredCovariances, patterns: IndexArray, H: Array, boundary: BoundaryConditions | None = None
) -> Array:
    """Return the information that all later data have of the state at the start of each block, shape (b + 1, s, s)."""
    blocks, size = len(patterns), H.shape[-1]
    half = covariances.S_inverse_root.swapaxes(-1, -2) @ H[patterns]
    found = np.empty((blocks + 1, size, size))
    found[:-1] = half.swapaxes(-1, -2) @ half
    found[-1] = 0.0 if boundary is None or boundary.information is None else boundary.information
    closed = covariances.closed_loop_Phi
    for b in range(blocks - 1, -1, -1):
        found[b] += closed[b].T.dot(found[b + 1]).dot(closed[b])
    return found


def compute_backward_information_roots(
    patterns: IndexArray, H: Array, Phi: Array, Q_root: Array, boundary: BoundaryConditions | None = None
) -> Array:
    """Return what each block and all after it say of the state at its start, as roots B of ``B'B``, (b + 1, s, s)."""
    blocks, size = len(patterns), H.shape[-1]
    found = np.zeros((blocks + 1, size, size))
    if boundary is not None and boundary.backward_information_root is not None:
        found[-1] = boundary.backward_information_root
    if not size:
        return found
    both, stacked = np.concatenate([Q_root, Phi], axis=2), np.zeros((2 * size, size), order="F")
    through, upper = np.zeros((2 * size, 2 * size), order="F"), np.asfortranarray(np.triu(np.ones((size, size))))
    now, last, settled = found[-1], -1, False
    for b in range(blocks - 1, -1, -1):
        u = int(patterns[b])
        settled = settled and u == last
        if not settled:
            # Said of the next state, and the noise on the way there, which is eliminated.
            through[:size], through[size:, :size], through[size:, size:] = now.dot(both[u]), np.eye(size), 0.0
            stacked[:size] = H[u]
            stacked[size:] = lapack.dgeqrf(through, overwrite_a=1)[0][size:, size:] * upper
            before = lapack.dgeqrf(stacked, overwrite_a=1)[0][:size] * upper
            settled = u == last and _covariances_agree(before.T, now.T)
            now, last = before, u
        found[b] = now
    return found


#: Numbers of blocks that are kept for the way back, of those that share matrices and of others; more are made again.
_MAX_CACHED_ELEMENTS, _MAX_CACHED_IRREGULAR_ELEMENTS = 4_000_000, 50_000_000


@dataclass(frozen=True)
class SquareRootFilter:
    """All blocks at some hyperparameters, without the values of measurements.

    noise_variance: Of the noise of each measurement; (m,).
    H, Phi, Q_root: As in `ReducedBlocks`, of all patterns; (u, s, s).
    half_log_dets: shape (u,)
    cached_blocks: Families that were kept, where they are few.
    cached_irregular_blocks: Families of blocks that share nothing, if they were kept.
    basis: The basis of the design of each pattern. Where designs do not tell some states apart, rounding decides
        about it, and all that is said in a basis has to be said in the same one; (u, m, s).
    boundary: What is said at both ends.
    """

    model: StateSpaceModel
    layout: BlockLayout
    noise_variance: Array
    H: Array
    Phi: Array
    Q_root: Array
    half_log_dets: Array
    covariances: FilteredCovariances
    cached_blocks: dict[int, ReducedBlocks]
    cached_irregular_blocks: dict[int, ReducedIrregularBlocks]
    basis: Array | None = None
    boundary: BoundaryConditions = field(default_factory=BoundaryConditions)

    def smooth_means(
        self, measurements: ReducedMeasurements, boundary: BoundaryConditions | None = None
    ) -> SmoothedMeans:
        """Return means through all blocks and back, for what values say."""
        own = self.covariances, self.layout.patterns, self.H, self.Phi
        return smooth_means(*own, measurements.z, measurements.state_shift, boundary or self.boundary)

    def propagate_information(self) -> Array:
        """Return what all later data know of the state at the start of each block, shape (b + 1, s, s)."""
        return propagate_information(self.covariances, self.layout.patterns, self.H, self.boundary)

    def compute_backward_information_roots(self) -> Array:
        """Return roots of what each block and all after it say of the state at its start, shape (b + 1, s, s)."""
        return compute_backward_information_roots(self.layout.patterns, self.H, self.Phi, self.Q_root, self.boundary)

    def get_reduced_blocks(self, group_index: int) -> ReducedBlocks:
        """Return the whitened blocks of a family."""
        return self.cached_blocks.get(group_index) or self.whiten_blocks(self.layout.get_group_plan(group_index))

    def whiten_blocks(self, plan: SegmentPlan) -> ReducedBlocks:
        """Return any blocks, whitened."""
        found, patterns = (
            whiten_blocks(self.model, self.layout, plan, self.noise_variance),
            self.layout.patterns[plan.blocks],
        )
        if self.basis is None:
            return found
        return replace(found, basis=self.basis[patterns], H=self.H[patterns])

    def reduce_measurements(self, values: Array) -> ReducedMeasurements:
        """Return what values of all measurements say of states.

        Shapes: values (b, m, k).
        """
        found = ReducedMeasurements.zeros(values, self.model.size)
        for number, family in enumerate(self.layout.chunk_groups):
            found.add_chunk_group(family, self.get_reduced_blocks(number), values)
        return found


@dataclass
class ReducedMeasurements:
    """What values of all measurements say of states, in each block and for k sets of values.

    z, add_chunked: Of the state at the start of a block, and what they add to it until the next one; (b, s, k).
    residual_ss: What is left of whitened values, squared and summed up; (b, k).
    covariance_error, residual_error: What relative errors of covariances inside blocks do to the log evidence, and
        those of what is left, squared.
    """

    z: Array
    state_shift: Array
    residual_ss: Array
    covariance_error: float = 0.0
    residual_error: float = 0.0

    @classmethod
    def zeros(cls, values: Array, n_states: int) -> ReducedMeasurements:
        """Return zeros.

        Shapes: values (b, m, k).
        """
        blocks, _, count = values.shape
        said, added = np.zeros((2, blocks, n_states, count))
        return cls(said, added, np.zeros((blocks, count)))

    def add_irregular_blocks(self, chunk: BlockChunk, irregular_blocks: ReducedIrregularBlocks) -> None:
        """Add blocks that share nothing."""
        blocks = chunk.blocks.ravel()
        self.z[blocks] = irregular_blocks.z
        added = irregular_blocks.irregular_blocks.state_shift
        self.state_shift[blocks, : added.shape[1]] = added[:, :, None]
        self.residual_ss[blocks] = irregular_blocks.residual_ss
        self.residual_error += irregular_blocks.residual_error
        self.covariance_error += irregular_blocks.irregular_blocks.covariance_error

    def add_chunk_group(self, group: ChunkGroup, reduced_blocks: ReducedBlocks, values: Array) -> None:
        """Add the blocks of a family.

        Shapes: values (b, m, k).
        """
        for chunk, where in zip(group.chunks, group.chunk_slices, strict=True):
            self.add_chunk(chunk, reduced_blocks.select(where), values)

    def add_chunk(self, chunk: BlockChunk, reduced_blocks: ReducedBlocks, values: Array) -> None:
        """Add the blocks of a chunk.

        Shapes: values (b, m, k).
        """
        z = reduced_blocks.whitening_matrix @ stack_by_pattern(values, chunk)
        own, left = reduced_blocks.project(z)
        self.z[chunk.blocks] = unstack_by_pattern(own, chunk)
        self.state_shift[chunk.blocks, : reduced_blocks.noise_gain.shape[1]] = unstack_by_pattern(
            reduced_blocks.noise_gain @ z, chunk
        )
        self.residual_ss[chunk.blocks] = unstack_by_pattern(np.sum(left**2, axis=1, keepdims=True), chunk)[:, :, 0]
        self.residual_error += float(np.sum((left[:, : z.shape[1]] * z) ** 2))
        # Entries of a covariance err in proportion to the variances.
        alpha = reduced_blocks.whitening_matrix.swapaxes(-1, -2) @ left[:, : z.shape[1]]
        inverse = chunk.blocks.shape[1] * np.sum(reduced_blocks.whitening_matrix**2, axis=1)
        self.covariance_error += 0.5 * float(
            np.sum(reduced_blocks.signal_variances * (np.sum(alpha**2, axis=2) + inverse))
        )


def run_filter(
    model: StateSpaceModel,
    layout: BlockLayout,
    noise_variance: Array,
    values: Array,
    *,
    keep_blocks: bool = False,
    keep_basis: bool = False,
    boundary: BoundaryConditions | None = None,
) -> tuple[SquareRootFilter, ReducedMeasurements] | None:
    """Return the filter through all blocks, and what values say; None where something is not finite or not positive.

    Shapes: noise_variance (m,), values (b, m, k).
    """
    if not (model.is_finite and np.isfinite(noise_variance).all() and (noise_variance > 0).all()):
        return None
    boundary = boundary or BoundaryConditions()
    start = model.prior_P_root(float(layout.times[0, 0])) if boundary.P_root is None else boundary.P_root
    if not np.isfinite(start).all():
        return None
    parts, projected = (
        _PatternMatrices.zeros(model, layout, keep_basis=keep_basis),
        ReducedMeasurements.zeros(values, model.size),
    )
    kept, used, alone, room = {}, 0, {}, _MAX_CACHED_IRREGULAR_ELEMENTS if keep_blocks else 0
    for number, family in enumerate(layout.chunk_groups):
        try:
            if family.is_irregular:
                chunk = family.chunks[0]
                own = ReducedIrregularBlocks.of(model, layout, number, noise_variance, values)
                parts.set_irregular_blocks(chunk, own)
                projected.add_irregular_blocks(chunk, own)
                if (room := room - own.n_elements) >= 0:
                    alone[number] = own
                continue
            white = whiten_blocks(model, layout, layout.get_group_plan(number), noise_variance)
        except np.linalg.LinAlgError:
            return None
        parts.set_blocks(family.patterns, white)
        projected.add_chunk_group(family, white, values)
        if (used := used + 3 * white.whitening_matrix.size) <= _MAX_CACHED_ELEMENTS:
            kept[number] = white
    if not parts.is_finite:
        return None
    carried = filter_covariances(start, layout.patterns, parts.H, parts.Phi, parts.Q_root)
    known = model, layout, noise_variance, parts.H, parts.Phi, parts.Q_root, parts.half_log_dets
    return SquareRootFilter(*known, carried, kept, alone, parts.basis, boundary), projected


@dataclass(frozen=True)
class _PatternMatrices:
    """What each of u patterns says of the state at its start, and how it moves it, as `SquareRootFilter` has it."""

    H: Array
    Phi: Array
    Q_root: Array
    half_log_dets: Array
    basis: Array | None

    @classmethod
    def zeros(cls, model: StateSpaceModel, layout: BlockLayout, *, keep_basis: bool) -> _PatternMatrices:
        count, size = int(layout.patterns.max()) + 1, model.size
        length = max(layout.rows_per_block * layout.observable_index.shape[2], size + 1)
        basis = np.zeros((count, length, size)) if keep_basis else None
        told, moved, noise = np.zeros((3, count, size, size))
        return cls(told, moved, noise, np.zeros(count), basis)

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(part).all()) for part in (self.H, self.Phi, self.Q_root, self.half_log_dets))

    def set_blocks(self, patterns: IndexArray, reduced_blocks: ReducedBlocks) -> None:
        self.H[patterns], self.Phi[patterns], self.Q_root[patterns] = (
            reduced_blocks.H,
            reduced_blocks.Phi,
            reduced_blocks.Q_root,
        )
        self.half_log_dets[patterns] = reduced_blocks.half_log_det
        if self.basis is not None:
            self.basis[patterns] = reduced_blocks.basis

    def set_irregular_blocks(self, chunk: BlockChunk, irregular_blocks: ReducedIrregularBlocks) -> None:
        own, noisy = chunk.as_single_blocks.patterns, irregular_blocks.irregular_blocks.Q.shape[-1]
        self.H[own], self.Phi[own] = irregular_blocks.H, irregular_blocks.irregular_blocks.Phi
        self.Q_root[own, :noisy, :noisy] = factor_semidefinite(irregular_blocks.irregular_blocks.Q)
        self.half_log_dets[own] = irregular_blocks.irregular_blocks.half_log_det
        if self.basis is not None:
            self.basis[own] = irregular_blocks.basis
