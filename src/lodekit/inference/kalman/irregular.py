"""Kalman filter inside irregular blocks: sequential scalar updates from row to row, for many blocks side by side.

It runs given the state at the start of a block, which is unknown but not random: means are numbers plus a row of
coefficients of that state. So it whitens measurements as a Cholesky factor would, at a cost that is linear in the
length of a block. Derivatives are the adjoint of the same recursion.

States are transformed to a reference frame with origin o in which they do not move, ``y(t) = e^(-F (t - o)) x(t)``, so
that a step costs no matrix product. A measurement observes ``H e^(F (t - o)) y``, and process noise accumulates to
``C(t - o) = int_0^(t - o) e^(-F s) B e^(-F' s) ds``. A frame carries the covariance of y without C, which only
measurements change. So a row needs only ``H e^(F (t - o))`` and its product with C: Taylor series in the time since the
origin, whose terms are shared by all times. Origins are in the middle of their frames. When these matrices would become
large, the next frame begins, for all blocks that need it soon.

The moments D of the stochastic states are one array (n, s + 1 + n, u): the dependence of their mean on the state at the
start, minus its remainder, and their covariance P. Blocks are the last axis u of all arrays, and padded with empty
ones: processors load 64 bytes at once, and half as fast if rows do not begin at a cache line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.linalg import lapack, matrix_balance

from lodekit.inference.kalman.block_model import DiscretizedModel
from lodekit.inference.kalman.block_reduction import order_by_magnitude
from lodekit.inference.kalman.blocks import CACHE_LINE_DOUBLES, BlockLayout
from lodekit.inference.kalman.discretize import factor_semidefinite
from lodekit.inference.kalman.state_space import StateSpaceGradient, StateSpaceModel
from lodekit.support.arguments import Array, IndexArray, Mask

#: For each row, and after the last one: the blocks that change to a new frame, and the step from origin to origin.
FrameChanges = list[tuple[IndexArray, IndexArray]]
#: Derivatives in D, and in transitions of deterministic states, (q, q, u); room for the arrays of one measurement.
AdjointState = tuple[Array, Array, tuple[Array, ...]]


def aligned_empty(*shape: int) -> Array:
    """Return an uninitialized array that begins at a cache line."""
    size = math.prod(shape)
    whole = np.empty(size + CACHE_LINE_DOUBLES)
    first = -(whole.__array_interface__["data"][0] // whole.itemsize) % CACHE_LINE_DOUBLES
    return whole[first : first + size].reshape(shape)


def aligned_zeros(*shape: int) -> Array:
    """Return an array of zeros that begins at a cache line."""
    zeros = aligned_empty(*shape)
    zeros[...] = 0.0
    return zeros


def move_blocks_last_padded(values: Array) -> Array:
    """Move the first axis, that of blocks, to the end, padded with zeros to cache lines."""
    count = len(values)
    padded = aligned_empty(*values.shape[1:], count + -count % CACHE_LINE_DOUBLES)
    padded[..., :count], padded[..., count:] = np.moveaxis(values, 0, -1), 0.0
    return padded


def move_blocks_first(values: Array) -> Array:
    """Move the last axis, that of blocks, to the front."""
    return np.ascontiguousarray(np.moveaxis(values, -1, 0))


def move_blocks_last(values: Array) -> Array:
    """Move the first axis, that of blocks, to the end."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def matmul_blocks_last(first: Array, second: Array) -> Array:
    """Multiply matrices with blocks last, (i, j, b) and (j, k, b)."""
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))


#: The largest distance of a row from the origin of its frame, in units of the norm of F: up to it transitions and their
#: inverses are of moderate size.
_MAX_FRAME_RADIUS = 3.0
#: Rows whose observation rows are computed together.
ROWS_PER_GROUP = 8


class FrameSeries:
    """Taylor series of ``H e^(F t)`` and of its product with C(t), in the time t since the origin of a frame.

    max_offset, F_norm: The largest t, and the norm of F.
    column_observables: The observables that occur in each column of measurements.
    terms: Taylor terms for all observables and, last, a row of zeros; (k, o + 1, s + n).
    columns: For each column of measurements: the slice of the stochastic states that are observed, the slice of those
        that process noise affects, and the terms, without entries that are always zero: for the observed states, for
        all deterministic states, and for the covariances with the affected ones; (k, o + 1, r).
    """

    def __init__(
        self, model: StateSpaceModel, max_offset: float, F_norm: float, column_observables: Sequence[IndexArray] = ()
    ) -> None:
        n, size = model.n_stochastic, model.size
        self._F_norm, self._n_stochastic, self._column_observables = F_norm, n, column_observables
        self._F = np.zeros((size, size))
        self._F[:n, :n], self._F[n:, n:] = model.F[:n, :n] / F_norm, model.F[n:, n:] / F_norm
        self._noise_intensity = model.noise_intensity / F_norm
        F, self._H = self._F[:n, :n], np.concatenate([model.H, np.zeros((1, size))])
        # The derivatives of e^(F t) C(t) at zero, and the powers of -F' in them.
        rows, noises, powers = [self._H], [np.zeros((n, n))], [np.eye(n)]
        terms = [np.concatenate([rows[0], np.zeros((len(self._H), n))], axis=1)]
        largest = np.abs(terms[0])
        weight, n_small = 1.0, 0
        # Up to three negligible terms in a row, relative to each entry: they begin with different powers.
        while len(terms) < 60 and n_small < 3:
            rows.append(rows[-1] @ self._F)
            noises.append(F @ noises[-1] + self._noise_intensity @ powers[-1])
            powers.append(-powers[-1] @ F.T)
            weight *= 1.0 / len(terms)
            terms.append(weight * np.concatenate([rows[-1], self._H[:, :n] @ noises[-1]], axis=1))
            size_of_term = np.abs(terms[-1]) * (max_offset * F_norm) ** (len(terms) - 1)
            n_small = n_small + 1 if (size_of_term <= 1e-17 * largest).all() and len(terms) > 2 else 0
            largest = np.maximum(size_of_term, largest)
        self.n_terms = max(1, len(terms) - n_small)
        self.terms = np.stack(terms[: self.n_terms])
        self._row_terms, self._noise_terms, self._F_powers = rows, noises, powers
        self.columns = []
        for index in column_observables:
            nonzero = np.asarray(self.terms[:, index].any(axis=(0, 1)))
            states, affected = _nonzero_slice(nonzero[:n]), _nonzero_slice(nonzero[size:])
            parts = self.terms[..., states], self.terms[..., n:size], self.terms[..., size:][..., affected]
            self.columns.append((states, affected, np.concatenate(parts, axis=2)))

    def evaluate_powers(self, times: Array) -> Array:
        """Return powers of scaled times since the origin, from the zeroth on, shape (k, ...)."""
        x = times * self._F_norm
        powers = aligned_empty(self.n_terms, *times.shape)
        powers[0] = 1.0
        for k in range(1, self.n_terms):
            np.multiply(powers[k - 1], x, out=powers[k])
        return powers

    def find_frame_radius(self, noise_variance: Array) -> float:
        """Return the largest radius at which process noise is at most 300 times the measurement noise variance.

        Rounding errors are proportional to the first, and results to the second. Shapes: noise_variance (o,).
        """
        radii = np.geomspace(_MAX_FRAME_RADIUS, 0.01, 24) / self._F_norm
        n = self._n_stochastic
        both = np.einsum("koi,kst->osit", self.terms[:, :-1], self.evaluate_powers(np.stack([radii, -radii])))
        # The variance of process noise in a measurement is its row times its covariances with all states.
        rows, noises = np.abs(both[..., :n, :]), np.abs(both[..., self._F.shape[0] :, :])
        ratio = np.einsum("osit,osit->ost", rows, noises) / noise_variance[:, None, None]
        # Infinite ratios and NaN are too large as well.
        small = np.flatnonzero((ratio <= 300.0).all(axis=(0, 1)))
        return float(radii[small[0]] if len(small) else radii[-1])

    @cached_property
    def _stacked_terms(self) -> Array:
        """Terms of all observables of all columns, stacked, shape (r, k)."""
        columns = zip(self.columns, self._column_observables, strict=True)
        parts = [terms[:, number].T for (_, _, terms), index in columns for number in index]
        return np.concatenate([np.zeros((0, self.n_terms)), *parts])

    def build_rows(self, offsets: Array, observable_index: IndexArray) -> list[Array]:
        """Return the observation rows of each column in the frames of some consecutive rows, shapes (r, p, u).

        Shapes: offsets (p, u), observable_index (p, w, u).
        """
        powers, stop, rows = self.evaluate_powers(offsets), 0, []
        whole = aligned_empty(len(self._stacked_terms), *offsets.shape)
        # Explicit shapes: there are no terms if no column observes a state.
        flat = whole.reshape(len(whole), offsets.size)
        np.matmul(self._stacked_terms, powers.reshape(-1, offsets.size), out=flat)
        for j, ((_, _, terms), index) in enumerate(zip(self.columns, self._column_observables, strict=True)):
            observed, width = observable_index[:, j], terms.shape[2]
            start, stop = stop, stop + len(index) * width
            if len(index) == 1:
                rows.append(whole[start:stop])
                flat[start:stop, np.flatnonzero(observed != index[0])] = 0.0
                continue
            rows.append(aligned_zeros(width, *offsets.shape))
            for i, number in enumerate(index):
                np.copyto(rows[-1], whole[start + i * width :][:width], where=observed == number)
        return rows

    def rows_vjp(
        self, grad_terms: list[Array], offsets: Array, grad_rows: list[Array], observable_index: IndexArray
    ) -> None:
        """Add derivatives in the terms of each column, from those in the result of `build_rows`.

        Shapes: grad_terms (k, o + 1, r), offsets (p, u), grad_rows (r, p, u), observable_index (p, w, u).
        """
        powers = self.evaluate_powers(offsets).reshape(self.n_terms, -1)
        for j, (index, in_rows) in enumerate(zip(self._column_observables, grad_rows, strict=True)):
            for number in index:
                # Derivatives in the rows of missing measurements are zero.
                part = in_rows if len(index) == 1 else in_rows * (observable_index[:, j] == number)
                grad_terms[j][:, number] += powers @ part.reshape(len(in_rows), powers.shape[1]).T

    def vjp(self, gradient: StateSpaceGradient, column_gradients: list[Array]) -> None:
        """Add derivatives in F, the noise intensity and H, from those in the terms of each column, (k, o + 1, r)."""
        n, size = self._n_stochastic, len(self._F)
        grad_terms = np.zeros_like(self.terms)
        for (states, affected, _), part in zip(self.columns, column_gradients, strict=True):
            first = states.stop - states.start
            last = first + size - n
            grad_terms[..., states] += part[..., :first]
            grad_terms[..., n:size] += part[..., first:last]
            grad_terms[..., size:][..., affected] += part[..., last:]
        grad_terms /= np.cumprod([1.0, *range(1, self.n_terms)])[:, None, None]
        in_F, in_B = np.zeros_like(self._F), np.zeros_like(self._noise_intensity)
        F, H = self._F[:n, :n], self._H[:, :n]
        in_rows, in_mixed = grad_terms[..., :size], grad_terms[..., size:]
        in_row, in_noise, in_power = in_rows[-1], H.T @ in_mixed[-1], np.zeros((n, n))
        in_H = in_mixed[-1] @ self._noise_terms[self.n_terms - 1].T
        for k in range(self.n_terms - 1, 0, -1):
            in_F += self._row_terms[k - 1].T @ in_row
            in_row = in_row @ self._F.T + in_rows[k - 1]
            # The k-th derivative of the noise is F times the previous one, plus B times a power.
            in_F[:n, :n] += in_noise @ self._noise_terms[k - 1].T
            in_B += in_noise @ self._F_powers[k - 1].T
            in_F[:n, :n] -= in_power.T @ self._F_powers[k - 1]
            in_power = self._noise_intensity.T @ in_noise - in_power @ F
            in_noise = F.T @ in_noise + H.T @ in_mixed[k - 1]
            in_H += in_mixed[k - 1] @ self._noise_terms[k - 1].T
        # Nothing depends on the norm that F and B were divided by and times multiplied by.
        gradient.F += in_F / self._F_norm
        gradient.noise_intensity += 0.5 * (in_B + in_B.T) / self._F_norm
        gradient.H += in_row[:-1]
        gradient.H[:, :n] += in_H[:-1]


def build_frames(
    model: StateSpaceModel, times: Array, column_observables: Sequence[IndexArray], noise_variance: Array
) -> tuple[FrameSeries, DiscretizedModel, FrameChanges, Array]:
    """Choose the reference frames of some blocks.

    Return the series, the model over the steps from origin to origin, all changes of frames, and times since the
    origins, (p, u). All blocks change where the first frame begins and the last one ends.

    Shapes: times, since the start of the block; the last is the start of the next block: (p + 1, u);
    noise_variance, of the measurements of each observable: (o,).
    """
    places, count = len(times) - 1, times.shape[1]
    norm = _balanced_norm(model)
    radius = FrameSeries(model, _MAX_FRAME_RADIUS / norm, norm).find_frame_radius(noise_variance)
    is_change = _find_frame_changes(times[:-1], 2.0 * radius)
    # One frame after the other, block by block.
    blocks, rows = np.nonzero(is_change.T)
    is_last = np.append(blocks[1:] != blocks[:-1], True)
    is_first = np.append(True, is_last[:-1])
    last_rows = np.where(is_last, places, np.append(rows[1:], places)) - 1
    origins = 0.5 * (times[rows, blocks] + times[last_rows, blocks])
    frame_index = (np.cumsum(is_change, axis=0) - 1) + np.flatnonzero(is_first)
    offsets = times[:-1] - origins[frame_index]
    steps = np.concatenate([origins - np.where(is_first, 0.0, np.roll(origins, 1)), times[-1] - origins[is_last]])
    rows, blocks = np.concatenate([rows, np.full(count, places)]), np.concatenate([blocks, np.arange(count)])
    order = np.argsort(rows, kind="stable")
    distinct, step_index = np.unique(steps[order], return_inverse=True)
    edges = np.searchsorted(rows[order], np.arange(places + 2)).tolist()
    changes = [(blocks[order[a:b]], step_index[a:b]) for a, b in pairwise(edges)]
    series = FrameSeries(model, float(np.abs(offsets).max(initial=0.0)), norm, column_observables)
    return series, DiscretizedModel(model, distinct), changes, offsets


def _find_frame_changes(times: Array, max_length: float) -> Mask:
    """Return in which rows new frames begin, shape (p, u); blocks change together, some of them early, to save time."""
    is_change, first = np.zeros(times.shape, dtype=bool), times[0]
    is_change[0] = True
    for changing, now in zip(is_change[1:], times[1:], strict=True):
        length = now - first
        if length.max(initial=0.0) > max_length:
            np.greater(length, 0.7 * max_length, out=changing)
            first = np.where(changing, now, first)
    return is_change


def _nonzero_slice(mask: Mask) -> slice:
    """Return the smallest slice that contains all true entries."""
    index = np.flatnonzero(mask)
    return slice(int(index[0]), int(index[-1]) + 1) if len(index) else slice(0, 0)


def _balanced_norm(model: StateSpaceModel) -> float:
    """Return the maximum row sum of F after balancing."""
    n, norm = model.n_stochastic, 0.0
    for part in (model.F[:n, :n], model.F[n:, n:]):
        if part.size:
            balanced = matrix_balance(part, permute=False)[0]
            norm = max(norm, float(np.abs(balanced).sum(axis=1).max()))
    return norm or 1.0


class IrregularBlocks:
    """Irregular blocks, filtered and reduced together with their measurements to ``z = H x + e``.

    values, R: All measurements, (b, m, 1), and their noise variances, (n,).
    triangular_factor: R of the QR factorization of whitened observation matrix and measurements; (u, s + 1, s + 1).
    H, Phi, Q_root, half_log_det: As in `ReducedBlocks`.
    z, residual_ss: The reduced measurements, (u, s, 1), and the sum of squares of the residuals; (u, 1).
    state_shift: The contribution of measurements to the mean of the stochastic states at the end; (u, n).
    covariance_error: Error of the log evidence from relative errors of covariances.
    noise_std: Standard deviation of the process noise in the state at the end; (u, n).
    """

    # observation_rows: The results of `FrameSeries.build_rows` for groups of rows; `vjp` consumes them.
    # moments_before_change: Moments D before the changes of frames in a row; (c, n, s + 1 + n).
    # Phi_deterministic: Transitions of deterministic states from the start; (p + 1, q, q, u).
    # whitened_rows: Whitened H for the state at the start, whitened measurements, and gains; (p, w, s + 1 + n, u).
    # S_inverse_roots: Inverse standard deviations of the innovations; (p, w, u).
    # moments: D at the end of the filter, and during `vjp` at the current row; (n, s + 1 + n, u).
    # reflectors, tau: Householder reflectors and factors of the QR factorization; (u, s + 1, m) and (u, s + 1).
    # row_order: The order of rows in the factorization, if they are not of similar size; (u, m).

    def __init__(self, model: StateSpaceModel, layout: BlockLayout, group_index: int, R: Array, values: Array) -> None:
        times, self._observable_index, measurement_index, columns = layout.get_irregular_rows(group_index)
        y = values[layout.chunk_groups[group_index].single_blocks.blocks.ravel()]
        y = y.reshape(len(y), layout.rows_per_block, -1)
        self.model, self.n_blocks = model, len(y)
        R = np.append(R, 1.0)[measurement_index]
        min_variance = _estimate_min_noise_variance(self._observable_index, R, len(model.H))
        frames = build_frames(model, times, columns, min_variance)
        self._series, self._discretized, self._changes, self._offsets = frames
        self._filter(move_blocks_last_padded(y), R)
        self.reflectors, self.tau, self.row_order = _factor_householder(self.whitened_H_and_z)
        n, s, b = model.n_stochastic, model.size, self.n_blocks
        self.triangular_factor = U = np.triu(self.reflectors[:, :, : s + 1].swapaxes(1, 2))
        self.H, self.z, self.residual_ss = U[:, :-1, :-1], U[:, :-1, -1:], U[:, -1, -1:] ** 2
        self.half_log_det = np.asarray(-np.log(self.S_inverse_roots[:, :, :b]).sum(axis=(0, 1)))
        final = self.moments[..., :b].transpose(2, 0, 1)
        self.Phi, self.Q_root = np.zeros((2, b, s, s))
        self.Phi[:, :n], self.state_shift = final[..., :s], -final[..., s]
        self.Phi[:, n:, n:] = self.Phi_deterministic[-1][..., :b].transpose(2, 0, 1)
        self.Q_root[:, :n, :n] = factor_semidefinite(final[..., s + 1 :])
        self.noise_std = np.sqrt(np.abs(np.einsum("uii->ui", final[..., s + 1 :])))

    def _filter(self, y: Array, R: Array) -> None:
        """Run the filter through all rows.

        Shapes: y, R (p, w, u).
        """
        (rows, width, count), n, q = y.shape, self.model.n_stochastic, self.model.size - self.model.n_stochastic
        D, Phi = aligned_zeros(n, n + q + 1 + n, count), aligned_zeros(q, q, count)
        D[:, :n], Phi[:] = np.eye(n)[:, :, None], np.eye(q)[:, :, None]
        self.moments, self.covariance_error, self._buffer = D, 0.0, aligned_empty(*D.shape)
        self.whitened_rows = aligned_empty(rows, width, D.shape[1], count)
        self.S_inverse_roots = scales = aligned_empty(rows, width, count)
        self.Phi_deterministic, self.moments_before_change = aligned_zeros(rows + 1, q, q, count), {}
        self._observation_rows: list[list[Array]] = []
        largest_signal = np.zeros((width, count))
        for i in range(rows + 1):
            if i % ROWS_PER_GROUP == 0 and i < rows:
                group = slice(i, min(i + ROWS_PER_GROUP, rows))
                observation_rows = self._series.build_rows(self._offsets[group], self._observable_index[group])
                self._observation_rows.append(observation_rows)
            if len(self._changes[i][0]):
                self.moments_before_change[i] = self._change_frames(i, Phi)
            self.Phi_deterministic[i] = Phi
            if i == rows:
                break
            # Errors of covariances are proportional to variances, which grow through a frame and in the step to the
            # next one: estimate them in the first rows.
            is_first = i == group.start or len(self._changes[i][0]) > 0
            state_std = np.sqrt(np.abs(np.einsum("iib->ib", D[:, n + q + 1 :]))) if is_first else None
            for j, (states, _, _) in enumerate(self._series.columns):
                row = observation_rows[j][:, i - group.start]
                self._condition((i, j), row, Phi, y[i, j], R[i, j])
                if state_std is not None:
                    observed_std = state_std[states]
                    signal = np.einsum("ib,ib->b", np.abs(row[: len(observed_std)]), observed_std) ** 2
                    np.maximum(signal, largest_signal[j], out=largest_signal[j])
                    error = float(np.einsum("b,b,b->", largest_signal[j], scales[i, j], scales[i, j]))
                    self.covariance_error += (group.stop - i) * error

    def _condition(self, position: tuple[int, int], row: Array, Phi: Array, y: Array, R: Array) -> None:
        """Update D with a measurement of each block; also sets its whitened row and its scale.

        Shapes: row (r, u), Phi, of the deterministic states: (q, q, u), y, R (u,).
        """
        whitened_row, S_inverse_root = self.whitened_rows[position], self.S_inverse_roots[position]
        (states, affected, _), D, n, q = self._series.columns[position[1]], self.moments, len(self.moments), len(Phi)
        first = states.stop - states.start
        H = row[:first]
        # The dependence of a measurement on the state at the start, its value, and its covariance with the state.
        np.einsum("ib,ikb->kb", H, D[states], out=whitened_row)
        if q:
            whitened_row[n : n + q] += np.einsum("ib,ikb->kb", row[first : first + q], Phi)
        whitened_row[n + q] += y
        gain = whitened_row[n + q + 1 :]
        gain[affected] += row[first + q :]
        # The inverse standard deviation.
        np.einsum("ib,ib->b", H, gain[states], out=S_inverse_root)
        S_inverse_root += R
        whitened_row *= np.divide(1.0, np.sqrt(S_inverse_root, out=S_inverse_root), out=S_inverse_root)
        D -= np.multiply(gain[:, None], whitened_row, out=self._buffer)

    def _change_frames(self, position: int, Phi_deterministic: Array) -> Array:
        """Transform the moments and the transitions of deterministic states to new frames; return D before that."""
        (changing, steps), s, D = self._changes[position], self.model.size + 1, self.moments
        blocks = _slice_or_index(changing, D.shape[-1])
        # Products of many small matrices: blocks first.
        Phi, before = self._discretized.stochastic.Phi[steps], move_blocks_first(D[..., blocks])
        after = Phi @ before
        after[..., s:] = after[..., s:] @ Phi.swapaxes(-1, -2)
        after[..., s:] += self._discretized.stochastic.Q[steps]
        D[..., blocks] = np.moveaxis(after, 0, -1)
        if len(Phi_deterministic):
            step_Phi = move_blocks_last(self._discretized.deterministic.Phi[steps])
            Phi_deterministic[..., blocks] = matmul_blocks_last(step_Phi, Phi_deterministic[..., blocks])
        return before

    @property
    def whitened_H_and_z(self) -> Array:
        """Whitened observation matrix and measurements, shape (p, w, s + 1, b)."""
        return self.whitened_rows[:, :, : self.model.size + 1, : self.n_blocks]

    @cached_property
    def orthogonal_factor(self) -> Array:
        """Q of the QR factorization, with zero rows if m <= s, shape (u, m, s + 1); overwrites `reflectors`."""
        for reflectors, tau in zip(self.reflectors, self.tau, strict=True):
            lapack.dorgqr(reflectors.T, tau, overwrite_a=1)
        if self.row_order is not None:
            np.put_along_axis(self.reflectors, self.row_order[:, None], self.reflectors.copy(), axis=2)
        return self.reflectors.swapaxes(1, 2)

    @property
    def basis(self) -> Array:
        """As in `ReducedBlocks`, shape (u, m, s)."""
        return self.orthogonal_factor[:, :, :-1]

    @property
    def residual_error(self) -> float:
        """Squared error of the log evidence from relative errors of measurements, estimated from every fourth row."""
        rows = self.whitened_H_and_z[::4]
        H, z = rows[:, :, :-1], rows[:, :, -1]
        residual = z - np.einsum("pwsu,su->pwu", H, _solve_upper_triangular(self.H, self.z[:, :, 0]).T)
        return 4 * float(np.sum((residual * z) ** 2))

    @property
    def n_elements(self) -> int:
        """Approximate number of elements of all arrays."""
        rows = (part for parts in self._observation_rows for part in parts)
        parts = self.reflectors, self.whitened_rows, self.S_inverse_roots, self.Phi_deterministic
        return sum(part.size for part in (*parts, *self.moments_before_change.values(), *rows))

    def measurement_gradient(self, start_means: Array, reduced_scores: Array, grad_whitened_H: Array) -> Array:
        """Return derivatives in whitened observation matrices and measurements, shape (p, w, s + 1, u).

        Frees the factorization. Shapes: start_means, reduced_scores (u, s, 1), grad_whitened_H (u, s, s).
        """
        # e x' and e, with e the scores in all directions of the factor, plus what depends on covariances.
        e = np.concatenate([reduced_scores, self.triangular_factor[:, -1:, -1:]], axis=1)
        parts = np.concatenate([e * start_means.swapaxes(-1, -2), -e], axis=2)
        parts[:, :-1, :-1] += grad_whitened_H
        scores = np.asarray(self.orthogonal_factor @ parts)
        # The adjoint needs memory.
        del self.reflectors, self.orthogonal_factor
        rows, width, count = self._observable_index.shape
        return move_blocks_last_padded(scores[:, : rows * width]).reshape(rows, width, scores.shape[2], count)

    def vjp(
        self, gradient: StateSpaceGradient, grad_whitened: Array, grad_moments: Array, grad_Phi_modes: Array
    ) -> Array:
        """Add derivatives in the model; return those in values and in noise variances, shape (2, p, w, b).

        Those in the log standard deviations of the innovations are minus one each.
        """
        rows, width, count = self._observable_index.shape
        grad_terms = [np.zeros_like(terms) for _, _, terms in self._series.columns]
        grad_values = aligned_zeros(2, rows, width, count)
        grad_D, in_Phi = move_blocks_last_padded(grad_moments), move_blocks_last_padded(grad_Phi_modes)
        # Room for an observation row, its covariance with the state, and a whitened row.
        sizes = self.model.size, self.model.n_stochastic, grad_D.shape[1]
        adjoint = grad_D, in_Phi, tuple(aligned_zeros(size, count) for size in sizes)
        in_steps = [self._frame_change_vjp(rows, grad_D, in_Phi)]
        for start in range((rows - 1) // ROWS_PER_GROUP * ROWS_PER_GROUP, -1, -ROWS_PER_GROUP):
            group = slice(start, min(start + ROWS_PER_GROUP, rows))
            # Derivatives take the place of the rows.
            observation_rows = self._observation_rows.pop()
            for i in range(group.stop - 1, start - 1, -1):
                for j in range(width - 1, -1, -1):
                    row = observation_rows[j][:, i - start]
                    self._measurement_vjp((i, j), row, grad_whitened[i, j], adjoint, grad_values[:, i, j])
                if len(self._changes[i][0]):
                    in_steps.append(self._frame_change_vjp(i, grad_D, in_Phi))
            index = self._observable_index[group]
            self._series.rows_vjp(grad_terms, self._offsets[group], observation_rows, index)
        steps = np.concatenate([step_index for _, step_index in reversed(self._changes)])
        self._discretized.vjp(gradient, steps, *(np.concatenate(parts) for parts in zip(*in_steps, strict=True)))
        self._series.vjp(gradient, grad_terms)
        return grad_values[..., : self.n_blocks]

    def _measurement_vjp(
        self, position: tuple[int, int], row: Array, grad_whitened: Array, adjoint: AdjointState, grad_y_and_R: Array
    ) -> None:
        """Undo a measurement; compute derivatives in its value and variance, those in its row replace the row."""
        n, s, (states, affected, _) = self.model.n_stochastic, self.model.size + 1, self._series.columns[position[1]]
        first = states.stop - states.start
        behind = first + s - 1 - n
        whitened, scale, D = self.whitened_rows[position], self.S_inverse_roots[position], self.moments
        grad_D, in_Phi, (row_buffer, covariance_buffer, minus) = adjoint
        H, gain, (in_value, in_R) = row_buffer[:behind], whitened[s:], grad_y_and_R
        H[:] = row[:behind]
        D += np.multiply(gain[:, None], whitened, out=self._buffer)
        # Minus the derivatives in the row before it was whitened.
        np.einsum("ib,ikb->kb", gain, grad_D, out=minus)
        in_gain = minus[s:]
        in_gain += np.einsum("ikb,kb->ib", grad_D, whitened, out=covariance_buffer)
        minus[:s] -= grad_whitened
        minus *= scale
        np.einsum("kb,kb->b", minus, whitened, out=in_R)
        in_R -= scale
        in_R *= 0.5
        half = np.multiply(in_R, gain[states], out=covariance_buffer[:first])
        in_R *= scale
        np.negative(minus[s - 1], out=in_value)
        in_gain[states] -= in_R * H[:first]
        in_H = np.einsum("ikb,kb->ib", D[states], minus, out=row[:first])
        np.subtract(half, in_H, out=in_H)
        grad_D[states] -= np.multiply(H[:first, None], minus, out=self._buffer[:first])
        if len(in_Phi):
            row[first:behind] = -np.einsum("ikb,kb->ib", self.Phi_deterministic[position[0]], minus[n : s - 1])
            in_Phi -= H[first:, None] * minus[n : s - 1]
        np.negative(in_gain[affected], out=row[behind:])

    def _frame_change_vjp(self, position: int, grad_D: Array, grad_Phi: Array) -> tuple[Array, Array, Array]:
        """Undo the changes of frames in a row; return derivatives in Phi and Q of the steps between the origins.

        Also those in Phi of deterministic states; shapes (c, n, n), (c, n, n) and (c, q, q).
        """
        (changing, steps), s = self._changes[position], self.model.size + 1
        before = self.moments_before_change[position]
        blocks = _slice_or_index(changing, grad_D.shape[-1])
        # Products of many small matrices: blocks first.
        Phi, in_D = self._discretized.stochastic.Phi[steps], move_blocks_first(grad_D[..., blocks])
        # Derivatives in the symmetric covariance.
        in_Q = 0.5 * (in_D[..., s:] + in_D[..., s:].swapaxes(-1, -2))
        in_Phi = in_D[..., :s] @ before[..., :s].swapaxes(-1, -2)
        in_Phi += 2.0 * in_Q @ (Phi @ before[..., s:])
        in_D[..., s:] = in_Q @ Phi
        grad_D[..., blocks] = np.moveaxis(Phi.swapaxes(-1, -2) @ in_D, 0, -1)
        self.moments[..., blocks] = np.moveaxis(before, 0, -1)
        in_deterministic = np.zeros((len(changing), *grad_Phi.shape[:2]))
        if len(grad_Phi):
            after = grad_Phi[..., blocks]
            known = np.broadcast_to(np.eye(len(after))[:, :, None], after.shape)
            # The first change is that from the start of the block.
            if position:
                known = self.Phi_deterministic[position - 1][..., blocks]
            in_deterministic = np.einsum("ikb,jkb->bij", after, known)
            step_Phi = move_blocks_last(self._discretized.deterministic.Phi[steps])
            grad_Phi[..., blocks] = np.einsum("jib,jkb->ikb", step_Phi, after)
        return in_Phi, in_Q, in_deterministic


def _slice_or_index(index: IndexArray, count: int) -> IndexArray | slice:
    """Return a slice if all blocks are selected: it avoids copies."""
    return slice(None) if len(index) == count else index


def _estimate_min_noise_variance(observable_index: IndexArray, R: Array, n_observables: int) -> Array:
    """Estimate the smallest noise variance of each observable, from 2000 measurements; ignore few exact values."""
    every = max(1, observable_index.size // 2000)
    index, variance = observable_index.ravel()[::every], R.ravel()[::every]
    estimates = np.full(n_observables, np.inf)
    for number in np.unique(index[index >= 0]):
        estimates[number] = np.quantile(variance[index == number], 0.1)
    return estimates


def _factor_householder(whitened_rows: Array) -> tuple[Array, Array, IndexArray | None]:
    """Factor whitened observation matrices and measurements; return reflectors, tau and row order.

    Shapes: whitened_rows (p, w, s + 1, u).
    """
    places, width, size, count = whitened_rows.shape
    rows, length = places * width, max(places * width, size)
    # Columns that are a power of two apart would push each other out of the cache.
    reflectors = np.zeros((count, size * length + 9))[:, : size * length].reshape(count, size, length)
    flat, tau = whitened_rows.reshape(rows, size, count), np.zeros((count, size))
    # 128 rows are transposed at a time: source and target both stay in the cache.
    for start in range(0, rows, 128):
        part = slice(start, min(start + 128, rows))
        reflectors[:, :, part] = flat[part].transpose(2, 1, 0)
    order = order_by_magnitude(reflectors[:, :-1])
    if order is not None:
        reflectors[:] = np.take_along_axis(reflectors, order[:, None], axis=2)
    for number, matrix in enumerate(reflectors):
        tau[number] = lapack.dgeqrf(matrix.T, overwrite_a=1)[1]
    return reflectors, tau, order


def _solve_upper_triangular(U: Array, z: Array) -> Array:
    """Solve ``U x = z`` for many upper triangular U, shape (u, s); components that are not determined are zero.

    Shapes: U (u, s, s), z (u, s).
    """
    x = np.zeros_like(z)
    for i in range(z.shape[1] - 1, -1, -1):
        pivot = U[:, i, i]
        remainder = z[:, i] - np.einsum("us,us->u", U[:, i, i + 1 :], x[:, i + 1 :])
        is_determined = np.abs(pivot) > 1e-13 * np.abs(U[:, :, i]).max(axis=1, initial=0.0)
        np.divide(remainder, pivot, out=x[:, i], where=is_determined)
    return x
