"""Innovations of all measurements, and predictions several steps ahead, by a Kalman filter from row to row.

The state at the start of every block, given all blocks before, is known from the filter between them. So one filter
goes through all blocks at once, row by row. Inside a block the state is ``A x + a + noise`` given the state x at its
start and the measurements so far; these also update a root of the covariance of x, by Potter's formula [1]_, which
never subtracts a covariance. Blocks of a pattern that start from the same covariance share everything but means.

.. [1] G. J. Bierman, Factorization Methods for Discrete Sequential Estimation, Academic Press, 1977, chapter 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.block_model import DiscretizedModel
from lodekit.inference.kalman.blocks import BlockChunk, KalmanData
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.irregular import matmul_blocks_last, move_blocks_last
from lodekit.inference.kalman.sqrt_filter import SquareRootFilter
from lodekit.prior.input_response.hold import UniqueSteps

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]


def filter_rows(
    discretized: DiscretizedModel, step_index: IndexArray, observable_index: IndexArray, noise_variance: Array
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Filter the rows of the blocks of a chunk by sequential scalar updates, given the states at their starts.

    Yield for each row, after its measurements: how the mean of stochastic states depends on the state at the start, and
    their covariance, (n, s + n, u); transitions of the other states, (q, q, u); whitened observation rows for the state
    at the start, with their gains, (w, s + n, u); standard deviations of the innovations, (w, u).

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
            # How a measurement depends on the state at the start, and its covariance with the state.
            np.einsum("ib,ikb->kb", h[:n], D, out=row)
            if len(A):
                row[n:s] += np.einsum("ib,ikb->kb", h[n:], A)
            deviations[j] = np.sqrt((h[:n] * row[s:]).sum(axis=0) + R[j])
            np.divide(row, deviations[j], out=row)
            D -= np.multiply(row[s:, None], row, out=update)
        yield D, A, white, deviations


@dataclass(frozen=True, eq=False)
class KalmanInnovations:
    """Innovations of all measurements at given hyperparameters, in order of time."""

    data: KalmanData
    solution: FilterSolution

    @cached_property
    def _measurement_order(self) -> IndexArray:
        """The indices of the measurements in order of time."""
        numbers = self.solution.filter.layout.measurement_index.ravel()
        return numbers[numbers >= 0]

    @cached_property
    def observables(self) -> IndexArray:
        """The observable of each measurement."""
        sizes = np.diff(self.data.offsets)
        return np.repeat(np.arange(len(sizes)), sizes)[self._measurement_order]

    @cached_property
    def times(self) -> Array:
        """The time of each measurement, in the user's units."""
        return np.asarray(self.data.times[np.concatenate(self.data.index)][self._measurement_order])

    @cached_property
    def scales(self) -> Array:
        """The scale of each measurement, in the user's units."""
        return np.asarray(self.data.prior.units.scales)[self.observables]

    @cached_property
    def _errors_and_std(self) -> tuple[Array, Array]:
        layout = self.solution.filter.layout
        errors, deviations = np.zeros((2, *layout.measurement_index.shape))
        for chunk, rows in _iterate_chunks(self.solution):
            for i, row in enumerate(rows):
                errors[chunk.blocks, i], deviations[chunk.blocks, i] = row.innovations, row.innovation_std
        there = layout.measurement_index >= 0
        return errors[there], deviations[there]

    @property
    def standardized(self) -> Array:
        """Standardized innovations, shape (m,)."""
        return self._errors_and_std[0] / self._errors_and_std[1]

    @property
    def std(self) -> Array:
        """Standard deviations of the innovations, in the user's units, shape (m,)."""
        return np.asarray(self._errors_and_std[1] * self.scales)

    def prediction_errors(self, rows: IndexArray, n_known: IndexArray) -> tuple[Array, Array]:
        """Return errors of predictions from the first `n_known` measurements, and their standard deviations.

        Both in the user's units, shape (k,), for the measurements `rows`, (k,).
        """
        if self.data.averaging is not None:
            raise LodekitError(
                "means and totals over intervals are not predicted ahead where disturbances drive; leave out ahead=, "
                "or validate with ahead=()"
            )
        own, layout = self.solution.filter, self.solution.filter.layout
        measured = np.flatnonzero(layout.measurement_index.ravel() >= 0) // layout.measurement_index.shape[2]
        last = np.where(n_known > 0, measured[np.maximum(n_known - 1, 0)], 0)
        H, process_variance = self._propagate_rows(rows, measured[rows], last)
        mean, variance = np.zeros((2, len(rows)))
        prior, later = np.flatnonzero(n_known == 0), np.flatnonzero(n_known > 0)
        root = own.model.prior_P_root(float(layout.times[0, 0]))
        variance[prior] = np.sum((H[prior] @ root) ** 2, axis=1)
        blocks, row_index = np.divmod(last, layout.rows_per_block)
        for chunk, chunk_rows in _iterate_chunks(self.solution) if len(later) else ():
            inside = later[np.isin(blocks[later], chunk.blocks)]
            inside = inside[np.argsort(row_index[inside], kind="stable")]
            edges = np.searchsorted(row_index[inside], np.arange(layout.rows_per_block + 1))
            flat = chunk.blocks.ravel()
            order = np.argsort(flat)
            for i, row in enumerate(chunk_rows if len(inside) else ()):
                if len(here := inside[edges[i] : edges[i + 1]]):
                    position = order[np.searchsorted(flat, blocks[here], sorter=order)]
                    mean[here], variance[here] = row.project(*np.divmod(position, chunk.blocks.shape[1]), H[here])
        order = self._measurement_order[rows]
        std = np.sqrt(variance + process_variance + own.noise_variance[order])
        return (self.solution.residual[order] - mean) * self.scales[rows], std * self.scales[rows]

    def _propagate_rows(self, targets: IndexArray, target_rows: IndexArray, last: IndexArray) -> tuple[Array, Array]:
        """Return observation rows of targets for the state in row `last`, (k, s), and variances in between, (k,)."""
        model, times = self.solution.filter.model, self.solution.filter.layout.times.ravel()
        spans = UniqueSteps.from_steps(np.maximum(times[target_rows] - times[last], 0.0), self.data.time_resolution)
        rows, variance = np.zeros((len(targets), model.size)), np.zeros(len(targets))
        n, observables = model.n_stochastic, self.observables[targets]
        order = np.argsort(spans.index, kind="stable")
        # Each prediction may need a step of its own: 20,000 at a time.
        for start in range(0, len(targets), 20_000):
            some = order[start : start + 20_000]
            lengths, which = np.unique(spans.index[some], return_inverse=True)
            motion = DiscretizedModel(model, spans.distinct[lengths])
            H = motion.H_padded[observables[some]]
            rows[some, :n] = np.einsum("ki,kij->kj", H[:, :n], motion.stochastic.Phi[which])
            rows[some, n:] = np.einsum("ki,kij->kj", H[:, n:], motion.deterministic.Phi[which])
            variance[some] = np.einsum("ki,kij,kj->k", H[:, :n], motion.stochastic.Q[which], H[:, :n])
        return rows, np.maximum(variance, 0.0)


def _iterate_chunks(solution: FilterSolution) -> Iterator[tuple[BlockChunk, Iterator[_ChunkRow]]]:
    """Yield all chunks with their filtered rows."""
    own = solution.filter
    values = own.layout.to_blocks(solution.residual[:, None], 0.0)[:, :, 0]
    predicted = (solution.smoothed.updated_means - own.covariances.gain @ solution.smoothed.innovations)[:, :, 0]
    roots = own.covariances.P_root_predicted
    changed = np.ones(len(roots), dtype=bool)
    changed[1:] = (roots[1:] != roots[:-1]).any(axis=(1, 2))
    root_index = np.cumsum(changed)
    for group in own.layout.chunk_groups:
        for chunk in (group.single_blocks,) if group.is_irregular else group.chunks:
            yield chunk, _filter_chunk(own, chunk, values, predicted, root_index)


class _ChunkRow(NamedTuple):
    """A row of the blocks of a chunk, after its measurements.

    innovations, innovation_std: Innovations and their standard deviations, scaled; (u, k, w).
    Phi_from_start: Dependence of the state on that at the start of the block; (u, s, s).
    mean_shift: Dependence on measurements; (u, k, n).
    P_given_start: Covariance given these and the start; (u, n, n).
    start_means, start_P_roots: Of the state at the start; (u, k, s) and (g, s, s).
    root_index: Which root; (u, k).
    """

    innovations: Array
    innovation_std: Array
    Phi_from_start: Array
    mean_shift: Array
    P_given_start: Array
    start_means: Array
    start_P_roots: Array
    root_index: IndexArray

    def project(self, pattern: IndexArray, repeat: IndexArray, H: Array) -> tuple[Array, Array]:
        """Return means and variances of observables of the state in some blocks, shape (t,) each.

        Shapes: pattern, repeat (t,), H (t, s).
        """
        n = self.mean_shift.shape[-1]
        back = np.einsum("ti,tij->tj", H, self.Phi_from_start[pattern])
        mean = np.sum(back * self.start_means[pattern, repeat], axis=1)
        mean += np.sum(H[:, :n] * self.mean_shift[pattern, repeat], axis=1)
        of_start = np.einsum("tj,tjk->tk", back, self.start_P_roots[self.root_index[pattern, repeat]])
        inside = np.einsum("ti,tij,tj->t", H[:, :n], self.P_given_start[pattern], H[:, :n])
        return mean, np.sum(of_start**2, axis=1) + np.maximum(inside, 0.0)


def _filter_chunk(
    kalman_filter: SquareRootFilter, chunk: BlockChunk, values: Array, predicted: Array, root_index: IndexArray
) -> Iterator[_ChunkRow]:
    """Filter all blocks of a chunk, row by row.

    Shapes: values (b, m), predicted (b, s), root_index (b,): equal for consecutive blocks with equal predicted
    covariances.
    """
    layout, model, first = kalman_filter.layout, kalman_filter.model, chunk.blocks[:, 0]
    n, size, (count, often) = model.n_stochastic, model.size, chunk.blocks.shape
    numbers, which = np.unique(layout.step_index[first], return_inverse=True)
    motion, steps = layout.discretize_model(model, numbers), which.reshape(count, -1)
    observed = layout.observable_index[first]
    variance = np.append(kalman_filter.noise_variance, 1.0)[layout.measurement_index[first]]
    y = values[chunk.blocks].reshape(count, often, layout.rows_per_block, -1)
    pairs = np.stack([np.repeat(np.arange(count), often), root_index[chunk.blocks].ravel()], axis=1)
    _, one, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    groups, patterns = inverse.reshape(count, often), one // often
    means, roots = predicted[chunk.blocks], kalman_filter.covariances.P_root_predicted[chunk.blocks.ravel()[one]]
    H, shift, A = motion.H_padded[observed][..., :n], np.zeros((count, often, n)), np.zeros((count, size, size))
    for i, (moments, deterministic, whitened, sigmas) in enumerate(filter_rows(motion, steps, observed, variance)):
        if i:
            shift = shift @ motion.stochastic.Phi[steps[:, i]].swapaxes(-1, -2)
        errors, deviations = np.zeros((2, count, often, len(whitened)))
        for j, (white, sigma) in enumerate(zip(whitened, sigmas, strict=True)):
            W, add = white.T[:, :size], white.T[:, size:]
            z = (y[:, :, i, j] - np.einsum("ukn,un->uk", shift, H[:, i, j])) / sigma[:, None]
            shift = shift + z[:, :, None] * add[:, None]
            # The rest of it updates the state at the start, by Potter's formula.
            e = z - np.einsum("uks,us->uk", means, W)
            seen = np.einsum("gsk,gs->gk", roots, W[patterns])
            square = 1.0 + np.sum(seen**2, axis=1)
            gain, std = np.einsum("gsk,gk->gs", roots, seen), np.sqrt(square)
            means = means + (e[:, :, None] / square[groups][:, :, None]) * gain[groups]
            roots = roots - gain[:, :, None] * (seen / (square + std)[:, None])[:, None]
            errors[:, :, j], deviations[:, :, j] = e * sigma[:, None], std[groups] * sigma[:, None]
        D = moments.transpose(2, 0, 1)
        A[:, :n], A[:, n:, n:] = D[:, :, :size], deterministic.transpose(2, 0, 1)
        yield _ChunkRow(errors, deviations, A, shift, D[:, :, size:], means, roots, groups)
