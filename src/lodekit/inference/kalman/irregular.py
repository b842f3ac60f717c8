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
start, minus its remainder, and their covariance. Blocks are the last axis u of all arrays, and padded with empty ones:
processors load 64 bytes at once, and half as fast if rows do not begin at a cache line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matrix_balance

from lodekit.inference.kalman.block_model import BlockGradient, DiscretizedModel, ModelGradient, scatter_add
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)
IndexArray = NDArray[np.intp]
#: Numbers of type float64 in a cache line.
_CACHE_LINE_DOUBLES = 8


@dataclass(frozen=True)
class BlockRows:
    """The rows of some irregular blocks, side by side.

    n_blocks: How many of the u blocks are not padding.
    times: Since the start of the block; the last is the start of the next block; (p + 1, u).
    observable_index, measurement_index: What was measured in each row; -1 for none; (p, w, u).
    """

    n_blocks: int
    times: Array
    observable_index: IndexArray
    measurement_index: IndexArray

    @classmethod
    def of(cls, dt: Array, observable_index: IndexArray, measurement_index: IndexArray) -> BlockRows:
        """Arrange blocks side by side, with padding.

        Shapes: dt (u, p + 1), observable_index, measurement_index (u, p, w).
        """
        times = np.cumsum(move_blocks_last(pad_to_cache_line(dt)), axis=0)
        index = (pad_to_cache_line(part, -1).transpose(1, 2, 0) for part in (observable_index, measurement_index))
        return cls(len(dt), times, *(np.ascontiguousarray(part) for part in index))

    @cached_property
    def column_observables(self) -> tuple[IndexArray, ...]:
        """The observables that occur in the first column, in the second, and so on."""
        every = (np.unique(self.observable_index[:, j]) for j in range(self.observable_index.shape[1]))
        return tuple(own[own >= 0] for own in every)


def aligned_empty(*shape: int) -> Array:
    """Return an uninitialized array that begins at a cache line."""
    size = math.prod(shape)
    whole = np.empty(size + _CACHE_LINE_DOUBLES)
    first = -(whole.__array_interface__["data"][0] // whole.itemsize) % _CACHE_LINE_DOUBLES
    return whole[first : first + size].reshape(shape)


def aligned_zeros(*shape: int) -> Array:
    """Return an array of zeros that begins at a cache line."""
    found = aligned_empty(*shape)
    found[...] = 0.0
    return found


def pad_to_cache_line(values: NDArray[Scalar], fill_value: int = 0) -> NDArray[Scalar]:
    """Pad the first axis, that of blocks, to a multiple of a cache line.

    Examples
    --------
    >>> pad_to_cache_line(np.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    more = -len(values) % _CACHE_LINE_DOUBLES
    return np.concatenate([values, np.full((more, *values.shape[1:]), fill_value, dtype=values.dtype)])


def move_blocks_last_padded(values: Array) -> Array:
    """Move the first axis, that of blocks, to the end, padded with zeros to cache lines."""
    count = len(values)
    found = aligned_empty(*values.shape[1:], count + -count % _CACHE_LINE_DOUBLES)
    found[..., :count], found[..., count:] = np.moveaxis(values, 0, -1), 0.0
    return found


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

    max_offset: The largest t.
    F_norm: The norm of F.
    terms: Taylor terms for all observables and, last, a row of zeros; (k, o + 1, s + n).
    """

    def __init__(self, model: StateSpaceModel, max_offset: float, F_norm: float) -> None:
        n, size = model.n_stochastic, model.size
        self._F_norm, self._n_stochastic = F_norm, n
        self._F = np.zeros((size, size))
        self._F[:n, :n], self._F[n:, n:] = model.F[:n, :n] / F_norm, model.F[n:, n:] / F_norm
        self._noise_intensity = model.noise_intensity / F_norm
        own, self._H = self._F[:n, :n], np.concatenate([model.H, np.zeros((1, size))])
        # The derivatives of e^(F t) C(t) at zero, and the powers of -F' in them.
        rows, noises, powers = [self._H], [np.zeros((n, n))], [np.eye(n)]
        terms = [np.concatenate([rows[0], np.zeros((len(self._H), n))], axis=1)]
        largest = np.abs(terms[0])
        weight, small = 1.0, 0
        # Up to three negligible terms in a row, relative to each entry: they begin with different powers.
        while len(terms) < 60 and small < 3:
            rows.append(rows[-1] @ self._F)
            noises.append(own @ noises[-1] + self._noise_intensity @ powers[-1])
            powers.append(-powers[-1] @ own.T)
            weight *= 1.0 / len(terms)
            terms.append(weight * np.concatenate([rows[-1], self._H[:, :n] @ noises[-1]], axis=1))
            part = np.abs(terms[-1]) * (max_offset * F_norm) ** (len(terms) - 1)
            small = small + 1 if (part <= 1e-17 * largest).all() and len(terms) > 2 else 0
            largest = np.maximum(part, largest)
        self.n_terms = max(1, len(terms) - small)
        self.terms = np.stack(terms[: self.n_terms])
        self._row_terms, self._noise_terms, self._F_powers = rows, noises, powers

    def evaluate_powers(self, times: Array) -> Array:
        """Return powers of scaled times since the origin, from the zeroth on, shape (k, ...)."""
        x = times * self._F_norm
        found = aligned_empty(self.n_terms, *times.shape)
        found[0] = 1.0
        for k in range(1, self.n_terms):
            np.multiply(found[k - 1], x, out=found[k])
        return found

    def build_column(self, observable_index: IndexArray) -> FrameColumn:
        """Return the series of a column of measurements, from the indices of its observables."""
        n, size = self._n_stochastic, len(self._F)
        nonzero = np.asarray(self.terms[:, observable_index].any(axis=(0, 1)))
        own, noise = _nonzero_slice(nonzero[:n]), _nonzero_slice(nonzero[size:])
        parts = self.terms[..., own], self.terms[..., n:size], self.terms[..., size:][..., noise]
        index, n_states = tuple(observable_index.tolist()), own.stop - own.start
        return FrameColumn(index, own, noise, n_states, np.concatenate(parts, axis=2))

    def find_frame_radius(self, noise_variance: Array) -> float:
        """Return the largest radius at which process noise is at most 300 times the measurement noise variance.

        Rounding errors are proportional to the first, and results to the second. Shapes: noise_variance (o,).
        """
        tried = np.geomspace(_MAX_FRAME_RADIUS, 0.01, 24) / self._F_norm
        n = self._n_stochastic
        both = np.einsum("koi,kst->osit", self.terms[:, :-1], self.evaluate_powers(np.stack([tried, -tried])))
        # The variance of process noise in a measurement is its row times its covariances with all states.
        rows, noises = np.abs(both[..., :n, :]), np.abs(both[..., self._F.shape[0] :, :])
        ratio = np.einsum("osit,osit->ost", rows, noises) / noise_variance[:, None, None]
        # Infinite ratios and NaN are too large as well.
        small = np.flatnonzero((ratio <= 300.0).all(axis=(0, 1)))
        return float(tried[small[0]] if len(small) else tried[-1])

    def vjp(self, grad_terms: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in F, (s, s), in the noise intensity, (n, n), and in H with its row of zeros, (o + 1, s).

        Shapes: grad_terms (k, o + 1, s + n).
        """
        n, size = self._n_stochastic, len(self._F)
        in_F, in_B = np.zeros_like(self._F), np.zeros_like(self._noise_intensity)
        own, H = self._F[:n, :n], self._H[:, :n]
        scaled = grad_terms / np.cumprod([1.0, *range(1, self.n_terms)])[:, None, None]
        in_plain, in_mixed = scaled[..., :size], scaled[..., size:]
        slope, in_noise, in_power = in_plain[-1], H.T @ in_mixed[-1], np.zeros((n, n))
        in_H = in_mixed[-1] @ self._noise_terms[self.n_terms - 1].T
        for k in range(self.n_terms - 1, 0, -1):
            in_F += self._row_terms[k - 1].T @ slope
            slope = slope @ self._F.T + in_plain[k - 1]
            # The k-th derivative of the noise is F times the previous one, plus B times a power.
            in_F[:n, :n] += in_noise @ self._noise_terms[k - 1].T
            in_B += in_noise @ self._F_powers[k - 1].T
            in_F[:n, :n] -= in_power.T @ self._F_powers[k - 1]
            in_power = self._noise_intensity.T @ in_noise - in_power @ own
            in_noise = own.T @ in_noise + H.T @ in_mixed[k - 1]
            in_H += in_mixed[k - 1] @ self._noise_terms[k - 1].T
        slope[:, :n] += in_H
        # Nothing depends on the norm that F and B were divided by and times multiplied by.
        return in_F / self._F_norm, 0.5 * (in_B + in_B.T) / self._F_norm, slope


class FrameColumn(NamedTuple):
    """The series of a column of measurements, without entries that are always zero.

    observable_index: The indices of the observables.
    state_slice, covariance_slice: The stochastic states that are observed, and those that process noise affects.
    n_states: The number of observed ones.
    terms: Terms for these states, for all deterministic states, and for these covariances; (k, o + 1, r).
    """

    observable_index: tuple[int, ...]
    state_slice: slice
    covariance_slice: slice
    n_states: int
    terms: Array


@dataclass(frozen=True)
class ReferenceFrames:
    """The reference frames of some blocks.

    discretized: The model over the times from origin to origin.
    changes: For each row, and after the last one: the blocks that change to a new frame, the index of the step from
        origin to origin in `discretized`, (c,), and their position among all changes. All blocks change where the first
        frame begins and the last one ends.
    time_offsets: Times since the origins; (p, u).
    columns: The series of the columns of measurements.
    """

    series: FrameSeries
    discretized: DiscretizedModel
    changes: tuple[tuple[IndexArray, IndexArray, slice], ...]
    time_offsets: Array
    columns: tuple[FrameColumn, ...]

    @cached_property
    def _stacked_terms(self) -> Array:
        """Terms of all observables of all columns, stacked, shape (r, k)."""
        parts = [column.terms[:, number].T for column in self.columns for number in column.observable_index]
        return np.concatenate([np.zeros((0, self.series.n_terms)), *parts])

    def build_rows(self, where: slice, observable_index: IndexArray) -> list[Array]:
        """Return what each column observes in the frames of some consecutive rows, shapes (r, p, u).

        Shapes: observable_index (p, w, u).
        """
        powers, stop, found = self.series.evaluate_powers(self.time_offsets[where]), 0, []
        shape, n_entries = powers.shape[1:], math.prod(powers.shape[1:])
        whole = aligned_empty(len(self._stacked_terms), *shape)
        # Explicit shapes: there are no terms if no column observes a state.
        np.matmul(self._stacked_terms, powers.reshape(-1, n_entries), out=whole.reshape(len(whole), n_entries))
        for column, seen in zip(self.columns, observable_index.swapaxes(0, 1), strict=True):
            width = column.terms.shape[2]
            start, stop = stop, stop + len(column.observable_index) * width
            if len(column.observable_index) == 1:
                found.append(whole[start:stop])
                found[-1].reshape(width, n_entries)[:, np.flatnonzero(seen != column.observable_index[0])] = 0.0
                continue
            found.append(aligned_zeros(width, *shape))
            for i, number in enumerate(column.observable_index):
                np.copyto(found[-1], whole[start + i * width :][:width], where=seen == number)
        return found

    def rows_vjp(
        self, grad_terms: list[Array], where: slice, grad_rows: list[Array], observable_index: IndexArray
    ) -> None:
        """Add derivatives in the terms of each column, from those in the result of `build_rows`.

        Shapes: grad_terms (k, o + 1, r), grad_rows (r, p, u), observable_index (p, w, u).
        """
        powers = self.series.evaluate_powers(self.time_offsets[where])
        weights, seen = powers.reshape(len(powers), -1), observable_index.swapaxes(0, 1)
        for column, slopes, own, which in zip(self.columns, grad_terms, grad_rows, seen, strict=True):
            for number in column.observable_index:
                # Derivatives in the rows of missing measurements are zero.
                part = own if len(column.observable_index) == 1 else own * (which == number)
                slopes[:, number] += weights @ part.reshape(len(own), weights.shape[1]).T

    def vjp(self, grad_terms: list[Array]) -> tuple[Array, Array, Array]:
        """Return derivatives as `FrameSeries.vjp` does, from those in the terms of each column.

        Shapes: grad_terms (k, o + 1, r).
        """
        n, size = self.discretized.model.n_stochastic, self.discretized.model.size
        found = np.zeros_like(self.series.terms)
        for column, own in zip(self.columns, grad_terms, strict=True):
            first, last = column.n_states, column.n_states + size - n
            found[..., column.state_slice] += own[..., :first]
            found[..., n:size] += own[..., first:last]
            found[..., size:][..., column.covariance_slice] += own[..., last:]
        return self.series.vjp(found)


def build_frames(model: StateSpaceModel, block_rows: BlockRows, noise_variance: Array) -> ReferenceFrames:
    """Choose the reference frames of some blocks, for measurement noise variances of shape (o,)."""
    times = block_rows.times
    places, count = len(times) - 1, times.shape[1]
    norm = _balanced_norm(model)
    radius = FrameSeries(model, _MAX_FRAME_RADIUS / norm, norm).find_frame_radius(noise_variance)
    cut = _find_frame_changes(times[:-1], 2.0 * radius)
    # One frame after the other, block by block.
    blocks, where = np.nonzero(cut.T)
    is_last = np.append(blocks[1:] != blocks[:-1], True)
    until = np.where(is_last, places, np.append(where[1:], places)) - 1
    origins = 0.5 * (times[where, blocks] + times[until, blocks])
    numbers = (np.cumsum(cut, axis=0) - 1) + np.flatnonzero(np.append(True, is_last[:-1]))
    since = times[:-1] - origins[numbers]
    is_first = np.append(True, is_last[:-1])
    gone = np.concatenate([origins - np.where(is_first, 0.0, np.roll(origins, 1)), times[-1] - origins[is_last]])
    where, blocks = np.concatenate([where, np.full(count, places)]), np.concatenate([blocks, np.arange(count)])
    order = np.argsort(where, kind="stable")
    whole, which = np.unique(gone[order], return_inverse=True)
    where, blocks = where[order], blocks[order]
    edges = np.searchsorted(where, np.arange(places + 2)).tolist()
    cuts = tuple((blocks[a:b], which[a:b], slice(a, b)) for a, b in pairwise(edges))
    series = FrameSeries(model, float(np.abs(since).max(initial=0.0)), norm)
    columns = tuple(series.build_column(seen) for seen in block_rows.column_observables)
    return ReferenceFrames(series, DiscretizedModel(model, whole), cuts, since, columns)


def _find_frame_changes(times: Array, max_length: float) -> NDArray[np.bool_]:
    """Return where new frames begin, shape (p, u): few changes cost as much as many, so some blocks change early."""
    found, first = np.zeros(times.shape, dtype=bool), times[0]
    found[0] = True
    for own, now in zip(found[1:], times[1:], strict=True):
        gone = now - first
        if gone.max(initial=0.0) > max_length:
            np.greater(gone, 0.7 * max_length, out=own)
            first = np.where(own, now, first)
    return found


def _nonzero_slice(mask: NDArray[np.bool_]) -> slice:
    """Return the smallest slice that contains all true entries."""
    own = np.flatnonzero(mask)
    return slice(int(own[0]), int(own[-1]) + 1) if len(own) else slice(0, 0)


def _balanced_norm(model: StateSpaceModel) -> float:
    """Return the maximum row sum of F after balancing."""
    n, found = model.n_stochastic, 0.0
    for part in (model.F[:n, :n], model.F[n:, n:]):
        if part.size:
            balanced = matrix_balance(part, permute=False)[0]
            found = max(found, float(np.abs(balanced).sum(axis=1).max()))
    return found or 1.0


@dataclass(frozen=True)
class IrregularBlocks:
    """Irregular blocks with their measurements whitened, given the state at the start of each.

    rows: The rows, with u blocks.
    observation_rows: The results of `ReferenceFrames.build_rows` for groups of rows; `vjp` consumes them.
    moments_before_change: Moments D before the changes of frames in a row; (c, n, s + 1 + n).
    Phi_deterministic: Transitions of deterministic states from the start; (p + 1, q, q, u).
    whitened_rows: Whitened observation matrix for the state at the start, whitened measurements, and gains;
        (p, w, s + 1 + n, u).
    S_inverse_roots: Inverse standard deviations of the innovations; (p, w, u).
    final_moments: D at the end; (n, s + 1 + n, u).
    covariance_error: Error of the log evidence from relative errors of covariances.
    """

    model: StateSpaceModel
    rows: BlockRows
    frames: ReferenceFrames
    observation_rows: list[list[Array]]
    moments_before_change: dict[int, Array]
    Phi_deterministic: Array
    whitened_rows: Array
    S_inverse_roots: Array
    final_moments: Array
    covariance_error: float

    @property
    def n_blocks(self) -> int:
        """The number of blocks without padding."""
        return self.rows.n_blocks

    @property
    def whitened_H_and_z(self) -> Array:
        """Whitened observation matrix and measurements, shape (p, w, s + 1, b)."""
        return self.whitened_rows[:, :, : self.model.size + 1, : self.n_blocks]

    @property
    def half_log_det(self) -> Array:
        """Half the log determinants of the measurement covariances, shape (b,)."""
        return np.asarray(-np.log(self.S_inverse_roots[:, :, : self.n_blocks]).sum(axis=(0, 1)))

    @property
    def Phi(self) -> Array:
        """Transitions to the start of the next block, given the measurements, shape (b, s, s)."""
        n, size = self.model.n_stochastic, self.model.size
        found = np.zeros((self.n_blocks, size, size))
        found[:, :n] = self.final_moments[:, :size, : self.n_blocks].transpose(2, 0, 1)
        found[:, n:, n:] = self.Phi_deterministic[-1][..., : self.n_blocks].transpose(2, 0, 1)
        return found

    @property
    def state_shift(self) -> Array:
        """What measurements add to the stochastic states at the end, shape (b, n)."""
        return -self.final_moments[:, self.model.size, : self.n_blocks].T

    @property
    def Q(self) -> Array:
        """Covariances of the states at the end, given those at the start and the measurements, shape (b, n, n)."""
        return self.final_moments[:, self.model.size + 1 :, : self.n_blocks].transpose(2, 0, 1)

    @property
    def n_elements(self) -> int:
        """Approximate number of elements of all arrays."""
        rows = (part for parts in self.observation_rows for part in parts)
        parts = self.whitened_rows, self.S_inverse_roots, self.Phi_deterministic, *self.moments_before_change.values()
        return sum(part.size for part in (*parts, *rows))

    def move_blocks_last_padded(self, scores: Array) -> Array:
        """Rearrange arrays of measurements, (b, m, k), as `whitened_rows`, (p, w, k, u)."""
        places, width, count = self.rows.observable_index.shape
        return move_blocks_last_padded(scores[:, : places * width]).reshape(places, width, scores.shape[2], count)

    def vjp(
        self, gradient: ModelGradient, grad_whitened: Array, grad_final_moments: Array, grad_Phi_deterministic: Array
    ) -> Array:
        """Add derivatives in the model; return those in values and in noise variances, shape (2, p, w, b).

        Those in the log standard deviations of the innovations are minus one each.
        """
        rows, width, count = self.rows.observable_index.shape
        in_terms = [np.zeros_like(column.terms) for column in self.frames.columns]
        found = aligned_zeros(2, rows, width, count)
        adjoint = _AdjointState.of(self, grad_final_moments, grad_Phi_deterministic)
        self._frame_change_vjp(rows, adjoint)
        for start in range((rows - 1) // ROWS_PER_GROUP * ROWS_PER_GROUP, -1, -ROWS_PER_GROUP):
            group = slice(start, min(start + ROWS_PER_GROUP, rows))
            # Derivatives take the place of the rows.
            own = self.observation_rows.pop()
            for i in range(group.stop - 1, start - 1, -1):
                for j in range(width - 1, -1, -1):
                    self._measurement_vjp((i, j), own[j][:, i - start], grad_whitened[i, j], adjoint, found[:, i, j])
                self._frame_change_vjp(i, adjoint)
            self.frames.rows_vjp(in_terms, group, own, self.rows.observable_index[group])
        inner = BlockGradient.zeros(self.frames.discretized)
        steps = np.concatenate([index for _, index, _ in self.frames.changes])
        scatter_add(inner.Phi, steps, adjoint.grad_steps[0])
        scatter_add(inner.Q, steps, adjoint.grad_steps[1])
        if adjoint.grad_deterministic_steps.size:
            scatter_add(inner.Phi_deterministic, steps, adjoint.grad_deterministic_steps)
        gradient.add_blocks(self.frames.discretized, inner)
        gradient.add_terms(*self.frames.vjp(in_terms))
        return found[..., : self.n_blocks]

    def _measurement_vjp(
        self,
        position: tuple[int, int],
        row: Array,
        grad_whitened: Array,
        adjoint: _AdjointState,
        grad_value_and_variance: Array,
    ) -> None:
        """Undo a measurement; compute derivatives in its value and variance, those in its row replace the row."""
        n, s, column = self.model.n_stochastic, self.model.size + 1, self.frames.columns[position[1]]
        states, first = column.state_slice, column.n_states
        behind = first + s - 1 - n
        xi, scale = self.whitened_rows[position], self.S_inverse_roots[position]
        D, minus = adjoint.grad_moments, adjoint.negative_gradient
        h, mixed, (in_value, in_variance) = adjoint.row_buffer[:behind], xi[s:], grad_value_and_variance
        h[:] = row[:behind]
        adjoint.moments += np.multiply(mixed[:, None], xi, out=adjoint.update_buffer)
        # Minus the derivatives in the row before it was whitened.
        np.einsum("ib,ikb->kb", mixed, D, out=minus)
        in_mixed = minus[s:]
        in_mixed += np.einsum("ikb,kb->ib", D, xi, out=adjoint.covariance_buffer)
        minus[:s] -= grad_whitened
        minus *= scale
        np.einsum("kb,kb->b", minus, xi, out=in_variance)
        in_variance -= scale
        in_variance *= 0.5
        half = np.multiply(in_variance, mixed[states], out=adjoint.covariance_buffer[:first])
        in_variance *= scale
        np.negative(minus[s - 1], out=in_value)
        in_mixed[states] -= in_variance * h[:first]
        own = np.einsum("ikb,kb->ib", adjoint.moments[states], minus, out=row[:first])
        np.subtract(half, own, out=own)
        D[states] -= np.multiply(h[:first, None], minus, out=adjoint.update_buffer[:first])
        if len(adjoint.grad_Phi_deterministic):
            row[first:behind] = -np.einsum("ikb,kb->ib", self.Phi_deterministic[position[0]], minus[n : s - 1])
            adjoint.grad_Phi_deterministic = adjoint.grad_Phi_deterministic - h[first:, None] * minus[n : s - 1]
        np.negative(in_mixed[column.covariance_slice], out=row[behind:])

    def _frame_change_vjp(self, position: int, adjoint: _AdjointState) -> None:
        """Undo the changes of frames in a row."""
        (changing, steps, where), motion = self.frames.changes[position], self.frames.discretized
        if not len(changing):
            return
        s, before = self.model.size + 1, self.moments_before_change[position]
        blocks = slice_or_index(changing, adjoint.grad_moments.shape[-1])
        # Products of many small matrices: blocks first.
        Phi, own = motion.stochastic.Phi[steps], move_blocks_first(adjoint.grad_moments[..., blocks])
        # Derivatives in the symmetric covariance.
        half = 0.5 * (own[..., s:] + own[..., s:].swapaxes(-1, -2))
        in_Phi = own[..., :s] @ before[..., :s].swapaxes(-1, -2)
        in_Phi += 2.0 * half @ (Phi @ before[..., s:])
        adjoint.grad_steps[0, where], adjoint.grad_steps[1, where] = in_Phi, half
        own[..., s:] = half @ Phi
        adjoint.grad_moments[..., blocks] = np.moveaxis(Phi.swapaxes(-1, -2) @ own, 0, -1)
        adjoint.moments[..., blocks] = np.moveaxis(before, 0, -1)
        if len(adjoint.grad_Phi_deterministic):
            own = adjoint.grad_Phi_deterministic[..., blocks]
            known = np.broadcast_to(np.eye(len(own))[:, :, None], own.shape)
            # The first change is that from the start of the block.
            if position:
                known = self.Phi_deterministic[position - 1][..., blocks]
            adjoint.grad_deterministic_steps[where] = np.einsum("ikb,jkb->bij", own, known)
            adjoint.grad_Phi_deterministic = adjoint.grad_Phi_deterministic.copy()
            moved = move_blocks_last(motion.deterministic.Phi[steps])
            adjoint.grad_Phi_deterministic[..., blocks] = np.einsum("jib,jkb->ikb", moved, own)


@dataclass
class _AdjointState:
    """The state of the adjoint recursion.

    grad_moments, grad_Phi_deterministic: Derivatives in D and in transitions of deterministic states;
        (n, s + 1 + n, u) and (q, q, u).
    moments, update_buffer: D, and a buffer for its updates; (n, s + 1 + n, u).
    row_buffer, covariance_buffer, negative_gradient: Buffers for an observation row, its covariance with the state,
        and minus the derivatives in a row before it was whitened; (s, u), (n, u) and (s + 1 + n, u).
    grad_steps, grad_deterministic_steps: Derivatives in transitions and noise covariances of all changes of frames, and
        in transitions of deterministic states; (2, c, n, n) and (c, q, q).
    """

    grad_moments: Array
    grad_Phi_deterministic: Array
    moments: Array
    update_buffer: Array
    row_buffer: Array
    covariance_buffer: Array
    negative_gradient: Array
    grad_steps: Array
    grad_deterministic_steps: Array

    @classmethod
    def of(cls, blocks: IrregularBlocks, grad_final_moments: Array, grad_Phi_deterministic: Array) -> _AdjointState:
        """Return the state at the end of the blocks."""
        D, A = (move_blocks_last_padded(part) for part in (grad_final_moments, grad_Phi_deterministic))
        (n, width, count), q = D.shape, len(A)
        changes = sum(len(changing) for changing, _, _ in blocks.frames.changes)
        steps, others = np.zeros((2, changes, n, n)), np.zeros((changes, q, q))
        room = aligned_zeros(n + q, count), aligned_zeros(n, count), aligned_zeros(width, count)
        return cls(D, A, aligned_zeros(*D.shape), aligned_zeros(*D.shape), *room, steps, others)


def slice_or_index(index: IndexArray, count: int) -> IndexArray | slice:
    """Return a slice if all blocks are selected: it avoids copies."""
    return slice(None) if len(index) == count else index


def filter_irregular_blocks(
    model: StateSpaceModel, block_rows: BlockRows, values: Array, noise_variance: Array
) -> IrregularBlocks:
    """Run the filter through irregular blocks.

    Shapes: values (b, p, w), noise_variance (m,).
    """
    rows, width, count = block_rows.observable_index.shape
    n, q, observed = model.n_stochastic, model.size - model.n_stochastic, block_rows.observable_index
    R, y = np.append(noise_variance, 1.0)[block_rows.measurement_index], move_blocks_last_padded(values)
    frames = build_frames(model, block_rows, _estimate_min_noise_variance(observed, R, len(model.H)))
    D, A = aligned_zeros(n, n + q + 1 + n, count), aligned_zeros(q, q, count)
    D[:, :n], A[:], buffer = np.eye(n)[:, :, None], np.eye(q)[:, :, None], aligned_empty(*D.shape)
    whitened, scales = aligned_empty(rows, width, D.shape[1], count), aligned_empty(rows, width, count)
    transitions, before, largest, error = aligned_zeros(rows + 1, q, q, count), {}, np.zeros((width, count)), 0.0
    observation_rows: list[list[Array]] = []
    for i in range(rows + 1):
        if i % ROWS_PER_GROUP == 0 and i < rows:
            group = slice(i, min(i + ROWS_PER_GROUP, rows))
            observation_rows.append(frames.build_rows(group, observed[group]))
        if len(frames.changes[i][0]):
            before[i], A = _change_frames(frames, i, D, A)
        transitions[i] = A
        if i == rows:
            break
        # Errors of covariances are proportional to variances, which grow through a frame: look at the first rows.
        state_std = np.sqrt(np.abs(np.einsum("iib->ib", D[:, n + q + 1 :]))) if i == group.start else None
        for j, (column, own) in enumerate(zip(frames.columns, observation_rows[-1], strict=True)):
            row = own[:, i - group.start]
            _condition((D, A, buffer), column, row, y[i, j], R[i, j], whitened[i, j], scales[i, j])
            if state_std is not None:
                seen = state_std[column.state_slice]
                signal = np.einsum("ib,ib->b", np.abs(row[: len(seen)]), seen) ** 2
                np.maximum(signal, largest[j], out=largest[j])
                weight = group.stop - group.start
                error += weight * float(np.einsum("b,b,b->", largest[j], scales[i, j], scales[i, j]))
    return IrregularBlocks(model, block_rows, frames, observation_rows, before, transitions, whitened, scales, D, error)


def _condition(
    moments: tuple[Array, Array, Array],
    column: FrameColumn,
    row: Array,
    y: Array,
    noise_variance: Array,
    whitened_row: Array,
    S_inverse_root: Array,
) -> None:
    """Update D with a measurement of each block; also sets its whitened row and its scale.

    Shapes: moments D, transitions of deterministic states, and a buffer for D; row (r, u), y, noise_variance (u,),
    whitened_row (s + 1 + n, u), S_inverse_root (u,).
    """
    D, A, buffer = moments
    n, q, first = len(D), len(A), column.n_states
    h, h_deterministic, noise = row[:first], row[first : first + q], row[first + q :]
    # How a measurement depends on the state at the start, its value, and its covariance with the state.
    np.einsum("ib,ikb->kb", h, D[column.state_slice], out=whitened_row)
    if q:
        whitened_row[n : n + q] += np.einsum("ib,ikb->kb", h_deterministic, A)
    whitened_row[n + q] += y
    gain = whitened_row[n + q + 1 :]
    gain[column.covariance_slice] += noise
    # The inverse standard deviation.
    np.einsum("ib,ib->b", h, gain[column.state_slice], out=S_inverse_root)
    S_inverse_root += noise_variance
    whitened_row *= np.divide(1.0, np.sqrt(S_inverse_root, out=S_inverse_root), out=S_inverse_root)
    D -= np.multiply(gain[:, None], whitened_row, out=buffer)


def _estimate_min_noise_variance(observable_index: IndexArray, noise_variance: Array, n_observables: int) -> Array:
    """Estimate the smallest noise variance of each observable, from 2000 measurements; ignore few exact values."""
    every = max(1, observable_index.size // 2000)
    seen, own = observable_index.ravel()[::every], noise_variance.ravel()[::every]
    found = np.full(n_observables, np.inf)
    for number in np.unique(seen[seen >= 0]):
        found[number] = np.quantile(own[seen == number], 0.1)
    return found


def _change_frames(
    frames: ReferenceFrames, position: int, moments: Array, Phi_deterministic: Array
) -> tuple[Array, Array]:
    """Transform moments to new frames; return those before the change, and the transitions of deterministic states."""
    motion, s, (changing, steps, _) = frames.discretized, moments.shape[1] - len(moments), frames.changes[position]
    blocks = slice_or_index(changing, moments.shape[-1])
    # Products of many small matrices: blocks first.
    Phi, before = motion.stochastic.Phi[steps], move_blocks_first(moments[..., blocks])
    moved = Phi @ before
    moved[..., s:] = moved[..., s:] @ Phi.swapaxes(-1, -2)
    moved[..., s:] += motion.stochastic.Q[steps]
    moments[..., blocks] = np.moveaxis(moved, 0, -1)
    if len(Phi_deterministic):
        Phi_deterministic = Phi_deterministic.copy()
        Phi_deterministic[..., blocks] = matmul_blocks_last(
            move_blocks_last(motion.deterministic.Phi[steps]), Phi_deterministic[..., blocks]
        )
    return before, Phi_deterministic
