"""Innovations of all measurements, and predictions several steps ahead, by a Kalman filter from row to row.

The state at the start of every block, given all blocks before, is known from the filter between them. So one filter
goes through all blocks at once, row by row. Inside a block the state is ``Phi x + shift + noise`` given the state x at
its start and the measurements so far; these also update a root of the covariance of x, by Potter's formula [1]_, which
never subtracts a covariance. Blocks of a pattern that start from the same covariance share everything but means.

.. [1] G. J. Bierman, Factorization Methods for Discrete Sequential Estimation, Academic Press, 1977, chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from lodekit.errors import LodekitError
from lodekit.inference.kalman.block_model import DiscretizedModel
from lodekit.inference.kalman.blocks import BlockChunk, KalmanData
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.irregular import matmul_blocks_last, move_blocks_last
from lodekit.inference.kalman.sqrt_filter import SquareRootFilter
from lodekit.prior.input_response.hold import UniqueSteps
from lodekit.support.arguments import Array, IndexArray

#: Innovations v in a row of the blocks of a chunk and their standard deviations, scaled, (u, k, w), and
#: `_project_state` for the state after the row.
FilteredRow = tuple[Array, Array, Callable[[IndexArray, Array], tuple[Array, Array]]]


def filter_rows(
    discretized: DiscretizedModel, step_index: IndexArray, observable_index: IndexArray, R: Array
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Filter the rows of the blocks of a chunk by sequential scalar updates, given the states at their starts.

    Yield for each row, after its measurements: the dependence of the mean of stochastic states on the state at the
    start, and their covariance, (n, s + n, u); transitions of the other states, (q, q, u); whitened observation rows
    for the state at the start, with their gains, (w, s + n, u); standard deviations of the innovations, (w, u).

    Shapes: step_index (u, p + 1), observable_index, R (u, p, w).
    """
    count, places, width = observable_index.shape
    n, s = discretized.model.n_stochastic, discretized.model.size
    D, deterministic = np.zeros((n, s + n, count)), np.zeros((s - n, s - n, count))
    D[:, :n], deterministic[:], update = np.eye(n)[:, :, None], np.eye(s - n)[:, :, None], np.zeros_like(D)
    for i in range(places):
        if i:
            step = step_index[:, i]
            Phi = move_blocks_last(discretized.stochastic.Phi[step])
            D = matmul_blocks_last(Phi, D)
            D[:, s:] = np.einsum("ijb,kjb->ikb", D[:, s:], Phi)
            D[:, s:] += move_blocks_last(discretized.stochastic.Q[step])
            if len(deterministic):
                Phi = move_blocks_last(discretized.deterministic.Phi[step])
                deterministic = matmul_blocks_last(Phi, deterministic)
        H = move_blocks_last(discretized.H_padded[observable_index[:, i]])
        whitened, S_roots = np.zeros((width, s + n, count)), np.zeros((width, count))
        for j, (row, h) in enumerate(zip(whitened, H, strict=True)):
            # The dependence of a measurement on the state at the start, and its covariance with the state.
            np.einsum("ib,ikb->kb", h[:n], D, out=row)
            if len(deterministic):
                row[n:s] += np.einsum("ib,ikb->kb", h[n:], deterministic)
            S_roots[j] = np.sqrt((h[:n] * row[s:]).sum(axis=0) + R[:, i, j])
            np.divide(row, S_roots[j], out=row)
            D -= np.multiply(row[s:, None], row, out=update)
        yield D, deterministic, whitened, S_roots


@dataclass(frozen=True, eq=False)
class KalmanInnovations:
    """Innovations of all measurements at given hyperparameters, in order of time."""

    data: KalmanData
    solution: FilterSolution

    @cached_property
    def observables(self) -> IndexArray:
        """The observable of each measurement."""
        sizes = np.diff(self.data.offsets)
        return np.repeat(np.arange(len(sizes)), sizes)[self.solution.filter.layout.measured_positions[1]]

    @cached_property
    def times(self) -> Array:
        """The time of each measurement, in the user's units."""
        order = self.solution.filter.layout.measured_positions[1]
        return np.asarray(self.data.times[np.concatenate(self.data.index)][order])

    @cached_property
    def scales(self) -> Array:
        """The scale of each measurement, in the user's units."""
        return np.asarray(self.data.prior.units.scales)[self.observables]

    @cached_property
    def _errors_and_std(self) -> tuple[Array, Array]:
        layout = self.solution.filter.layout
        innovations, innovation_std = np.zeros((2, *layout.measurement_index.shape))
        for chunk, rows in _iterate_chunks(self.solution):
            for i, (v, std, _) in enumerate(rows):
                innovations[chunk.blocks, i], innovation_std[chunk.blocks, i] = v, std
        positions, _ = layout.measured_positions
        return innovations.ravel()[positions], innovation_std.ravel()[positions]

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
                "means and totals over intervals cannot be predicted ahead in models with disturbances; omit ahead=, "
                "or validate with ahead=()"
            )
        kalman_filter, layout = self.solution.filter, self.solution.filter.layout
        measured = layout.measured_positions[0] // layout.measurement_index.shape[2]
        last = np.where(n_known > 0, measured[np.maximum(n_known - 1, 0)], 0)
        H, process_variance = self._propagate_rows(rows, measured[rows], last)
        mean, variance = np.zeros((2, len(rows)))
        prior, later = np.flatnonzero(n_known == 0), np.flatnonzero(n_known > 0)
        P_root = kalman_filter.model.prior_P_root(float(layout.times[0, 0]))
        variance[prior] = np.sum((H[prior] @ P_root) ** 2, axis=1)
        blocks, row_index = np.divmod(last, layout.rows_per_block)
        for chunk, chunk_rows in _iterate_chunks(self.solution) if len(later) else ():
            inside = later[np.isin(blocks[later], chunk.blocks)]
            inside = inside[np.argsort(row_index[inside], kind="stable")]
            edges = np.searchsorted(row_index[inside], np.arange(layout.rows_per_block + 1))
            flat = chunk.blocks.ravel()
            order = np.argsort(flat)
            for i, (_, _, project) in enumerate(chunk_rows if len(inside) else ()):
                if len(here := inside[edges[i] : edges[i + 1]]):
                    position = order[np.searchsorted(flat, blocks[here], sorter=order)]
                    mean[here], variance[here] = project(position, H[here])
        order = layout.measured_positions[1][rows]
        std = np.sqrt(variance + process_variance + kalman_filter.R[order])
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
            discretized = DiscretizedModel(model, spans.distinct[lengths])
            H = model.H[observables[some]]
            rows[some, :n] = np.einsum("ki,kij->kj", H[:, :n], discretized.stochastic.Phi[which])
            rows[some, n:] = np.einsum("ki,kij->kj", H[:, n:], discretized.deterministic.Phi[which])
            variance[some] = np.einsum("ki,kij,kj->k", H[:, :n], discretized.stochastic.Q[which], H[:, :n])
        return rows, np.maximum(variance, 0.0)


def _iterate_chunks(solution: FilterSolution) -> Iterator[tuple[BlockChunk, Iterator[FilteredRow]]]:
    """Yield all chunks with their filtered rows."""
    kalman_filter, smoothed = solution.filter, solution.smoothed
    values = kalman_filter.layout.to_blocks(solution.residual[:, None], 0.0)[:, :, 0]
    predicted = (smoothed.updated_means - kalman_filter.covariances.gain @ smoothed.innovations)[:, :, 0]
    roots = kalman_filter.covariances.P_root_predicted
    changed = np.ones(len(roots), dtype=bool)
    changed[1:] = (roots[1:] != roots[:-1]).any(axis=(1, 2))
    root_index = np.cumsum(changed)
    for group in kalman_filter.layout.chunk_groups:
        for chunk in (group.single_blocks,) if group.is_irregular else group.chunks:
            yield chunk, _filter_chunk(kalman_filter, chunk, values, predicted, root_index)


def _project_state(
    inside: tuple[Array, Array, Array], start: tuple[Array, Array, IndexArray], blocks: IndexArray, H: Array
) -> tuple[Array, Array]:
    """Return means and variances of observables of the state in a row of some blocks, after its measurements; (t,).

    inside: Dependence of the state on that at the start of the block, (u, s, s), and on measurements, (u, k, n);
        covariance given both, (u, n, n).
    start: Means of the state at the start, (u, k, s), roots of its covariance, (g, s, s), and which root, (u, k).
    blocks, H: The block of each observable among all of the chunk, (t,), and its row, (t, s).
    """
    (Phi_from_start, mean_shift, P_given_start), (start_means, start_P_roots, root_index) = inside, start
    pattern, repeat = np.divmod(blocks, root_index.shape[1])
    n = mean_shift.shape[-1]
    H_start = np.einsum("ti,tij->tj", H, Phi_from_start[pattern])
    mean = np.sum(H_start * start_means[pattern, repeat], axis=1)
    mean += np.sum(H[:, :n] * mean_shift[pattern, repeat], axis=1)
    of_start = np.einsum("tj,tjk->tk", H_start, start_P_roots[root_index[pattern, repeat]])
    given_start = np.einsum("ti,tij,tj->t", H[:, :n], P_given_start[pattern], H[:, :n])
    return mean, np.sum(of_start**2, axis=1) + np.maximum(given_start, 0.0)


def _filter_chunk(
    kalman_filter: SquareRootFilter, chunk: BlockChunk, values: Array, predicted: Array, root_index: IndexArray
) -> Iterator[FilteredRow]:
    """Filter all blocks of a chunk, row by row.

    Shapes: values (b, m), predicted (b, s), root_index (b,): equal for consecutive blocks with equal predicted
    covariances.
    """
    layout, model, first = kalman_filter.layout, kalman_filter.model, chunk.blocks[:, 0]
    n, size, (count, often) = model.n_stochastic, model.size, chunk.blocks.shape
    numbers, which = np.unique(layout.step_index[first], return_inverse=True)
    discretized, steps = layout.discretize_model(model, numbers), which.reshape(count, -1)
    observed = layout.observable_index[first]
    R = np.append(kalman_filter.R, 1.0)[layout.measurement_index[first]]
    y = values[chunk.blocks].reshape(count, often, layout.rows_per_block, -1)
    pairs = np.stack([np.repeat(np.arange(count), often), root_index[chunk.blocks].ravel()], axis=1)
    _, one, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    groups, patterns = inverse.reshape(count, often), one // often
    means, P_roots = predicted[chunk.blocks], kalman_filter.covariances.P_root_predicted[chunk.blocks.ravel()[one]]
    H, shift, Phi = discretized.H_padded[observed][..., :n], np.zeros((count, often, n)), np.zeros((count, size, size))
    for i, (moments, deterministic, whitened, sigmas) in enumerate(filter_rows(discretized, steps, observed, R)):
        if i:
            shift = shift @ discretized.stochastic.Phi[steps[:, i]].swapaxes(-1, -2)
        innovations, innovation_std = np.zeros((2, count, often, len(whitened)))
        for j, (white, sigma) in enumerate(zip(whitened, sigmas, strict=True)):
            H_start, row_gain = white.T[:, :size], white.T[:, size:]
            z = (y[:, :, i, j] - np.einsum("ukn,un->uk", shift, H[:, i, j])) / sigma[:, None]
            shift = shift + z[:, :, None] * row_gain[:, None]
            # The remaining innovation updates the state at the start, by Potter's formula.
            v = z - np.einsum("uks,us->uk", means, H_start)
            P_root_H = np.einsum("gsk,gs->gk", P_roots, H_start[patterns])
            S = 1.0 + np.sum(P_root_H**2, axis=1)
            P_H, S_root = np.einsum("gsk,gk->gs", P_roots, P_root_H), np.sqrt(S)
            means = means + (v[:, :, None] / S[groups][:, :, None]) * P_H[groups]
            P_roots = P_roots - P_H[:, :, None] * (P_root_H / (S + S_root)[:, None])[:, None]
            innovations[:, :, j], innovation_std[:, :, j] = v * sigma[:, None], S_root[groups] * sigma[:, None]
        D = moments.transpose(2, 0, 1)
        Phi[:, :n], Phi[:, n:, n:] = D[:, :, :size], deterministic.transpose(2, 0, 1)
        state = (Phi, shift, D[:, :, size:]), (means, P_roots, groups)
        yield innovations, innovation_std, partial(_project_state, *state)
