"""A filter inside blocks, from measurement to measurement, all blocks at once, with the states of each place.

It starts from the state at the start of its block, which is not known but is not random either: means are a row of
numbers for that state, and what measurements add to it is left to those who have their values. Blocks come last in all
arrays. `framed` is faster where only measurements count.

Measurements in their turn: what each adds to those before it, and predictions of it from some time before.

The state at the start of every block, given all blocks before, is known from the filter between them. So one filter
goes through all blocks at once, place by place. Inside a block the state is ``A x + a + noise`` given the state x at
its start and the measurements so far, as in `sweeping`; these tell of x itself, too, and a root of its covariance
follows them by Potter's formula, which never subtracts a covariance. Blocks that are alike and start from the same
covariance share all but means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.block_model import DiscretizedModel
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout, KalmanData
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.irregular import matmul_blocks_last, move_blocks_last
from lodekit.inference.kalman.sqrt_filter import SquareRootFilter
from lodekit.prior.input_response.hold import UniqueSteps

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class FilteredRow:
    """A place of the blocks of a chunk, with the rows of its measurements whitened, given the state at the start.

    moments: After its measurements, how the mean of the states that noise drives follows from the state at the start,
        and their covariance; (n, s + n, u).
    Phi_deterministic: How the other states follow from those at the start; (q, q, u).
    whitened_rows: What whitened measurements say of the state at the start, and what they add to the mean; (w, s + n,
        u).
    innovation_std: What they were divided by; (w, u).
    """

    moments: Array
    Phi_deterministic: Array
    whitened_rows: Array
    innovation_std: Array


def filter_rows(
    discretized: DiscretizedModel, step_index: IndexArray, observable_index: IndexArray, noise_variance: Array
) -> Iterator[FilteredRow]:
    """Yield the places of the blocks of a chunk.

    Shapes: step_index (u, p + 1), observable_index (u, p, w), noise_variance (u, p, w).
    """
    count, places, width = observable_index.shape
    n, s = discretized.model.n_stochastic, discretized.model.size
    D, A = np.zeros((n, s + n, count)), np.zeros((s - n, s - n, count))
    D[:, :n], A[:], update = np.eye(n)[:, :, None], np.eye(s - n)[:, :, None], np.zeros_like(D)
    for i in range(places):
        if i:
            step = step_index[:, i]
            Phi = move_blocks_last(discretized.stochastic.Phi[step])
            D = matmul_blocks_last(Phi, D)
            D[:, s:] = np.einsum("ijb,kjb->ikb", D[:, s:], Phi)
            D[:, s:] += move_blocks_last(discretized.stochastic.Q[step])
            if len(A):
                A = matmul_blocks_last(move_blocks_last(discretized.deterministic.Phi[step]), A)
        H, R = move_blocks_last(discretized.H_padded[observable_index[:, i]]), move_blocks_last(noise_variance[:, i])
        white, deviations = np.zeros((width, s + n, count)), np.zeros((width, count))
        for j, (row, h) in enumerate(zip(white, H, strict=True)):
            # How a measurement follows from the state at the start, and its covariance with the state.
            np.einsum("ib,ikb->kb", h[:n], D, out=row)
            if len(A):
                row[n:s] += np.einsum("ib,ikb->kb", h[n:], A)
            deviations[j] = np.sqrt((h[:n] * row[s:]).sum(axis=0) + R[j])
            np.divide(row, deviations[j], out=row)
            D -= np.multiply(row[s:, None], row, out=update)
        yield FilteredRow(D, A, white, deviations)


#: So many predictions are made at once: each may need a step of its own.
_MAX_PREDICTIONS = 20_000


@dataclass(frozen=True, eq=False)
class KalmanInnovations:
    """Measurements one after the other, at some hyperparameters.

    data: Measurements with their prior.
    solution: At these hyperparameters.
    """

    data: KalmanData
    solution: FilterSolution

    @property
    def _layout(self) -> BlockLayout:
        return self.solution.filter.layout

    @cached_property
    def _measurement_order(self) -> IndexArray:
        """The numbers of the measurements, in their turn."""
        numbers = self._layout.measurement_index.ravel()
        return numbers[numbers >= 0]

    @cached_property
    def observables(self) -> IndexArray:
        """The number of the observable of each, in their turn."""
        sizes = np.diff(self.data.offsets)
        return np.repeat(np.arange(len(sizes)), sizes)[self._measurement_order]

    @cached_property
    def times(self) -> Array:
        """When they were made, in the user's units, in their turn."""
        return np.asarray(self.data.times[np.concatenate(self.data.index)][self._measurement_order])

    @cached_property
    def scales(self) -> Array:
        """The unit of each in the user's, in their turn."""
        return np.asarray(self.data.prior.units.scales)[self.observables]

    @cached_property
    def _errors_and_std(self) -> tuple[Array, Array]:
        layout = self._layout
        errors, deviations = np.zeros((2, layout.n_blocks, layout.rows_per_block, layout.observable_index.shape[2]))
        for walk in _iterate_chunks(self.solution):
            for place in walk:
                errors[walk.blocks, place.row] = place.innovations
                deviations[walk.blocks, place.row] = place.innovation_std
        there = layout.measurement_index >= 0
        return errors[there], deviations[there]

    @property
    def standardized(self) -> Array:
        """Each minus its prediction from those before, over the deviation of that, in their turn, shape (m,)."""
        return self._errors_and_std[0] / self._errors_and_std[1]

    @property
    def std(self) -> Array:
        """The deviation of each from that prediction, in the user's units, shape (m,)."""
        return np.asarray(self._errors_and_std[1] * self.scales)

    def prediction_errors(self, rows: IndexArray, n_known: IndexArray) -> tuple[Array, Array]:
        """Return some measurements minus predictions of them from the first ones, and the deviations of that.

        Both in the user's units, shape (k,).

        Shapes: rows (k,), n_known (k,).
        """
        if self.data.averaging is not None:
            raise LodekitError(
                "means and totals over intervals are not predicted ahead where disturbances drive; leave out ahead=, "
                "or validate with ahead=()"
            )
        targets = _PredictionTargets.of(self, rows, n_known)
        mean, variance = np.zeros((2, len(rows)))
        readings, noise = targets.H, targets.process_variance
        prior = np.flatnonzero(n_known == 0)
        root = self.solution.filter.model.prior_P_root(float(self._layout.times[0, 0]))
        variance[prior] = np.sum((readings[prior] @ root) ** 2, axis=1)
        for walk in _iterate_chunks(self.solution) if len(prior) < len(rows) else ():
            for place, here in targets.select_rows(walk):
                mean[here], variance[here] = place.project(walk.find_blocks(targets.blocks[here]), readings[here])
        order = self._measurement_order[rows]
        own = np.sqrt(variance + noise + self.solution.filter.noise_variance[order])
        return (self.solution.residual[order] - mean) * self.scales[rows], own * self.scales[rows]


@dataclass(frozen=True)
class _PredictionTargets:
    """Measurements that are predicted, each from the state at the place of the last one that is known.

    blocks, rows: Where that is; the first place for none; (k,).
    H: What they see of that state; (k, s).
    process_variance: The variance of what happens in between, as they see it; (k,).
    n_known: How many are known; (k,).
    """

    blocks: IndexArray
    rows: IndexArray
    H: Array
    process_variance: Array
    n_known: IndexArray

    @classmethod
    def of(cls, innovations: KalmanInnovations, targets: IndexArray, n_known: IndexArray) -> _PredictionTargets:
        """Return the way from the last measurements that are known to those that are asked for."""
        layout, space = innovations.solution.filter.layout, innovations.solution.filter.model
        where = np.flatnonzero((layout.measurement_index >= 0).ravel()) // layout.observable_index.shape[2]
        last = np.where(n_known > 0, where[np.maximum(n_known - 1, 0)], 0)
        times = layout.times.ravel()
        spans = UniqueSteps.from_steps(
            np.maximum(times[where[targets]] - times[last], 0.0), innovations.data.time_resolution
        )
        readings, noise = np.zeros((len(targets), space.size)), np.zeros(len(targets))
        n, seen = space.n_stochastic, innovations.observables[targets]
        order = np.argsort(spans.index, kind="stable")
        for start in range(0, len(targets), _MAX_PREDICTIONS):
            some = order[start : start + _MAX_PREDICTIONS]
            lengths, which = np.unique(spans.index[some], return_inverse=True)
            motion = DiscretizedModel(space, spans.distinct[lengths])
            H = motion.H_padded[seen[some]]
            readings[some, :n] = np.einsum("ki,kij->kj", H[:, :n], motion.stochastic.Phi[which])
            readings[some, n:] = np.einsum("ki,kij->kj", H[:, n:], motion.deterministic.Phi[which])
            noise[some] = np.einsum("ki,kij,kj->k", H[:, :n], motion.stochastic.Q[which], H[:, :n])
        return cls(*np.divmod(last, layout.rows_per_block), readings, np.maximum(noise, 0.0), n_known)

    def select_rows(self, chunk_filter: _ChunkFilter) -> Iterator[tuple[_ChunkRow, IndexArray]]:
        """Yield places of some blocks, and which are predicted from there."""
        own = np.flatnonzero(np.isin(self.blocks, chunk_filter.blocks) & (self.n_known > 0))
        if not len(own):
            return
        own = own[np.argsort(self.rows[own], kind="stable")]
        edges = np.searchsorted(self.rows[own], np.arange(chunk_filter.rows_per_block + 1))
        for place in chunk_filter:
            here = own[edges[place.row] : edges[place.row + 1]]
            if len(here):
                yield place, here


def _iterate_chunks(solution: FilterSolution) -> Iterator[_ChunkFilter]:
    """Yield all blocks, chunk after chunk."""
    own = solution.filter
    values = own.layout.to_blocks(solution.residual[:, None], 0.0)[:, :, 0]
    # The mean that a block starts from is what it makes of it, less what it adds.
    means = (solution.smoothed.updated_means - own.covariances.gain @ solution.smoothed.innovations)[:, :, 0]
    roots = own.covariances.P_root_predicted
    changed = np.ones(len(roots), dtype=bool)
    changed[1:] = (roots[1:] != roots[:-1]).any(axis=(1, 2))
    groups = np.cumsum(changed)
    for family in own.layout.chunk_groups:
        for chunk in family.chunks:
            yield _ChunkFilter(own, chunk.as_single_blocks if family.is_irregular else chunk, values, means, groups)


@dataclass(frozen=True)
class _ChunkRow:
    """A place of some blocks that are alike, after its measurements.

    innovations, innovation_std: Measurements minus predictions from all before, and their deviations, scaled; (u, k,
        w).
    Phi_from_start: How the state follows from that at the start of the block; (u, s, s).
    mean_shift: What measurements add to it; (u, k, n).
    P_given_start: Its covariance, given these and the start; (u, n, n).
    start_means, start_P_roots: Of the state at the start; (u, k, s) and (g, s, s).
    root_index: Which root; (u, k).
    """

    row: int
    innovations: Array
    innovation_std: Array
    Phi_from_start: Array
    mean_shift: Array
    P_given_start: Array
    start_means: Array
    start_P_roots: Array
    root_index: IndexArray

    def project(self, position: tuple[IndexArray, IndexArray], H: Array) -> tuple[Array, Array]:
        """Return means and variances of rows of numbers for the state, shape (t,) each.

        Shapes: position (t,), H (t, s).
        """
        u, n = position[0], self.mean_shift.shape[-1]
        back = np.einsum("ti,tij->tj", H, self.Phi_from_start[u])
        mean = np.sum(back * self.start_means[position], axis=1) + np.sum(H[:, :n] * self.mean_shift[position], axis=1)
        spread = np.einsum("tj,tjk->tk", back, self.start_P_roots[self.root_index[position]])
        own = np.einsum("ti,tij,tj->t", H[:, :n], self.P_given_start[u], H[:, :n])
        return mean, np.sum(spread**2, axis=1) + np.maximum(own, 0.0)


class _ChunkFilter:
    """A filter through all blocks of a chunk at once.

    values: Of all measurements, in blocks; (b, m).
    means: Of the states at the start of all blocks, given those before; (b, s).
    groups: Equal for neighbouring blocks whose covariances at the start are; (b,).
    """

    def __init__(
        self,
        kalman_filter: SquareRootFilter,
        chunk: BlockChunk,
        values: Array,
        start_means: Array,
        root_index: IndexArray,
    ) -> None:
        layout, first = kalman_filter.layout, chunk.blocks[:, 0]
        self.blocks, self.rows_per_block = chunk.blocks, layout.rows_per_block
        count, often = chunk.blocks.shape
        numbers, which = np.unique(layout.step_index[first], return_inverse=True)
        self._discretized, self._step_index = (
            layout.discretize_model(kalman_filter.model, numbers),
            which.reshape(count, -1),
        )
        observed = layout.observable_index[first]
        self._observable_index = np.where(observed >= 0, observed, len(self._discretized.H_padded) - 1)
        self._noise_variance = np.append(kalman_filter.noise_variance, 1.0)[layout.measurement_index[first]]
        self._values = values[chunk.blocks].reshape(count, often, layout.rows_per_block, -1)
        self._start_means = start_means[chunk.blocks]
        pairs = np.stack([np.repeat(np.arange(count), often), root_index[chunk.blocks].ravel()], axis=1)
        _, one, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        self._root_index, self._patterns = inverse.reshape(count, often), one // often
        self._start_P_roots = kalman_filter.covariances.P_root_predicted[chunk.blocks.ravel()[one]]

    def find_blocks(self, blocks: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return where blocks stand in the chunk: the numbers of their patterns, and which of these they are."""
        flat = self.blocks.ravel()
        order = np.argsort(flat)
        found = order[np.searchsorted(flat, blocks, sorter=order)]
        return found // self.blocks.shape[1], found % self.blocks.shape[1]

    def __iter__(self) -> Iterator[_ChunkRow]:
        n, size = self._discretized.model.n_stochastic, self._discretized.model.size
        count, often, _, width = self._values.shape
        H = self._discretized.H_padded[self._observable_index][..., :n]
        means, roots = self._start_means.copy(), self._start_P_roots.copy()
        rest, A = np.zeros((count, often, n)), np.zeros((count, size, size))
        for i, swept in enumerate(
            filter_rows(self._discretized, self._step_index, self._observable_index, self._noise_variance)
        ):
            if i:
                rest = rest @ self._discretized.stochastic.Phi[self._step_index[:, i]].swapaxes(-1, -2)
            errors, deviations = np.zeros((2, count, often, width))
            for j in range(width):
                white, sigma = swept.whitened_rows[j].T, swept.innovation_std[j]
                W, add = white[:, :size], white[:, size:]
                z = (self._values[:, :, i, j] - np.einsum("ukn,un->uk", rest, H[:, i, j])) / sigma[:, None]
                rest = rest + z[:, :, None] * add[:, None]
                # What is left of it tells of the state at the start.
                e = z - np.einsum("uks,us->uk", means, W)
                seen = np.einsum("gsk,gs->gk", roots, W[self._patterns])
                square = 1.0 + np.sum(seen**2, axis=1)
                size_of = np.sqrt(square)
                gain = np.einsum("gsk,gk->gs", roots, seen)
                means = means + (e[:, :, None] / square[self._root_index][:, :, None]) * gain[self._root_index]
                roots = roots - gain[:, :, None] * (seen / (square + size_of)[:, None])[:, None]
                errors[:, :, j] = e * sigma[:, None]
                deviations[:, :, j] = size_of[self._root_index] * sigma[:, None]
            known = swept.moments.transpose(2, 0, 1)
            A[:, :n], A[:, n:, n:] = known[:, :, :size], swept.Phi_deterministic.transpose(2, 0, 1)
            yield _ChunkRow(i, errors, deviations, A, rest, known[:, :, size:], means, roots, self._root_index)
