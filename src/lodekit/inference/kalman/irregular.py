"""Many blocks side by side: they come last in all arrays, and rows begin where a line of the cache does.

Processors load 64 bytes at once, and half as fast where these lie in two lines of the cache. Rows of blocks, of which
there are as many as it happens to be, would begin anywhere. So they are filled up with blocks that have nothing to say.
What does not depend on hyperparameters is made once: `BlockRows`.

States seen from a time nearby: in such a frame nothing moves, and a step costs no product of matrices.

With ``y(t) = e^(-F (t - o)) x(t)`` a measurement reads ``H e^(F (t - o)) y``, and noise adds up to
``C(t - o) = int_0^(t - o) e^(-F s) B e^(-F' s) ds``. What a frame carries is the covariance of y without C, which
measurements alone change, and which is moved to another origin as a covariance is moved in time. So all that is needed
at a place are ``H e^(F (t - o))`` and its product with C: Taylor's series in the time since the origin, whose terms
serve all times. Origins stand in the middle of what is seen from them. Where a frame would become so long that these
matrices are large, or steps are, the next one begins, for those blocks that need it soon.

Blocks of which each is one of its own: a filter inside each, from measurement to measurement, all blocks at once.

It starts from the state at the start of its block, which is not known but is not random either: means are numbers plus
a row of numbers for that state. So it whitens measurements as a Cholesky factor would, at a cost that does not grow
with the length of a block. States are seen from frames in which they do not move. Blocks come last in all arrays, and
some that have nothing to say fill them up (`lanes`). The way back is the adjoint of the same recursion.

Measurements inside blocks taken one after the other, all blocks at once: the way forward of `framed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matrix_balance

from lodekit.inference.kalman.block_model import BlockGradient, DiscretizedModel, ModelGradient, scatter_add
from lodekit.inference.kalman.state_space import StateSpaceModel

Array = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)
IndexArray = NDArray[np.intp]
#: Numbers in a line of the cache.
_CACHE_LINE_DOUBLES = 8


@dataclass(frozen=True)
class BlockRows:
    """The places of some blocks that share nothing, side by side, with what was measured there.

    n_blocks: How many of the u blocks have something to say.
    times: Since the start of the block, that of the following block included; (p + 1, u).
    observable_index, measurement_index: The numbers of the observables, and those of the measurements; -1 for none;
        (p, w, u).
    """

    n_blocks: int
    times: Array
    observable_index: IndexArray
    measurement_index: IndexArray

    @classmethod
    def of(cls, dt: Array, observable_index: IndexArray, measurement_index: IndexArray) -> BlockRows:
        """Return some blocks, filled up.

        Shapes: dt (u, p + 1), observable_index, measurement_index (u, p, w).
        """
        times = np.cumsum(move_blocks_last(pad_to_cache_line(dt)), axis=0)
        both = (
            np.ascontiguousarray(pad_to_cache_line(part, -1).transpose(1, 2, 0))
            for part in (observable_index, measurement_index)
        )
        return cls(len(dt), times, *both)

    @cached_property
    def column_observables(self) -> tuple[IndexArray, ...]:
        """The numbers of all observables of the first measurement at each place, of the second, and so on."""
        every = (np.unique(self.observable_index[:, j]) for j in range(self.observable_index.shape[1]))
        return tuple(own[own >= 0] for own in every)


def aligned_empty(*shape: int) -> Array:
    """Return room for numbers, the first at the beginning of a line of the cache."""
    size = prod(shape)
    whole = np.empty(size + _CACHE_LINE_DOUBLES)
    first = -(whole.__array_interface__["data"][0] // whole.itemsize) % _CACHE_LINE_DOUBLES
    return whole[first : first + size].reshape(shape)


def aligned_zeros(*shape: int) -> Array:
    """Return zeros, the first at the beginning of a line of the cache."""
    found = aligned_empty(*shape)
    found[...] = 0.0
    return found


def pad_to_cache_line(values: NDArray[Scalar], fill_value: int = 0) -> NDArray[Scalar]:
    """Return something of each block, with so many blocks more that they fill lines of the cache.

    Shapes: values (u, ...).

    Examples
    --------
    >>> pad_to_cache_line(np.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    more = -len(values) % _CACHE_LINE_DOUBLES
    return np.concatenate([values, np.full((more, *values.shape[1:]), fill_value, dtype=values.dtype)])


def move_blocks_last_padded(values: Array) -> Array:
    """Return the first dimension, that of blocks, as the last one, filled up with zeros to lines of the cache.

    Shapes: values (u, ...).

    Examples
    --------
    >>> move_blocks_last_padded(np.ones((3, 2)))[1].tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    count = len(values)
    found = aligned_empty(*values.shape[1:], count + -count % _CACHE_LINE_DOUBLES)
    found[..., :count], found[..., count:] = np.moveaxis(values, 0, -1), 0.0
    return found


def move_blocks_first(values: Array) -> Array:
    """Return the last dimension, that of blocks, as the first one."""
    return np.ascontiguousarray(np.moveaxis(values, -1, 0))


def move_blocks_last(values: Array) -> Array:
    """Return the first dimension, that of blocks, as the last one."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def matmul_blocks_last(first: Array, second: Array) -> Array:
    """Return products of matrices, blocks last.

    Shapes: first, second (i, j, b) and (j, k, b).
    """
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))


#: How far a frame may reach from its origin in units of the norm of F, at most and at least: so far transitions and
#: their inverses are of moderate size.
_MAX_FRAME_RADIUS, _MIN_FRAME_RADIUS = 3.0, 0.01
#: Blocks that have come so far through a frame change it where another block has to: few changes cost as much as many.
_EARLY_CHANGE_FRACTION = 0.7
#: How large what noise does from the origin of a frame to its ends may be beside the noise of measurements: rounding is
#: in proportion to the first, and what is computed to the second.
_MAX_NOISE_RATIO = 300.0
#: The most terms of a series, what those that are left out may be, and how many such ones have to follow each other.
_MAX_TAYLOR_TERMS, _TAYLOR_TOLERANCE, _N_NEGLIGIBLE_TERMS = 60, 1e-17, 3


class FrameSeries:
    """Rows of observables, and these times the noise in a frame, as series in the time since its origin.

    longest: The longest time from an origin.
    norm: Of F.
    terms: Terms of the rows of all observables, and of their products with the noise; those of a row of zeros are
        last; (k, o + 1, s + n).
    """

    def __init__(self, model: StateSpaceModel, max_offset: float, F_norm: float) -> None:
        n, size = model.n_stochastic, model.size
        self._F_norm, self._n_stochastic = F_norm, n
        self._F = np.zeros((size, size))
        self._F[:n, :n], self._F[n:, n:] = model.F[:n, :n] / F_norm, model.F[n:, n:] / F_norm
        self._noise_intensity = model.noise_intensity / F_norm
        own, self._H = self._F[:n, :n], np.concatenate([model.H, np.zeros((1, size))])
        # The derivatives at zero of e^(F t) C(t), and the powers of minus F transposed, which have B before them there.
        rows, noises, powers = [self._H], [np.zeros((n, n))], [np.eye(n)]
        terms = [np.concatenate([rows[0], np.zeros((len(self._H), n))], axis=1)]
        largest = np.abs(terms[0])
        weight, small = 1.0, 0
        # Terms matter in proportion to the entry that they are added to: these begin with different powers.
        while len(terms) < _MAX_TAYLOR_TERMS and small < _N_NEGLIGIBLE_TERMS:
            rows.append(rows[-1] @ self._F)
            noises.append(own @ noises[-1] + self._noise_intensity @ powers[-1])
            powers.append(-powers[-1] @ own.T)
            weight *= 1.0 / len(terms)
            terms.append(weight * np.concatenate([rows[-1], self._H[:, :n] @ noises[-1]], axis=1))
            part = np.abs(terms[-1]) * (max_offset * F_norm) ** (len(terms) - 1)
            small = small + 1 if (part <= _TAYLOR_TOLERANCE * largest).all() and len(terms) > 2 else 0
            largest = np.maximum(part, largest)
        self.n_terms = max(1, len(terms) - small)
        self.terms = np.stack(terms[: self.n_terms])
        self._row_terms, self._noise_terms, self._F_powers = (
            rows[: self.n_terms],
            noises[: self.n_terms],
            powers[: self.n_terms],
        )

    def evaluate_powers(self, times: Array) -> Array:
        """Return powers of times since the origin, from the zeroth on, shape (k, ...)."""
        x = times * self._F_norm
        found = aligned_empty(self.n_terms, *times.shape)
        found[0] = 1.0
        for k in range(1, self.n_terms):
            np.multiply(found[k - 1], x, out=found[k])
        return found

    def build_column(self, observable_index: IndexArray) -> FrameColumn:
        """Return what all measurements of a column have in common, from the numbers of their observables."""
        n, size = self._n_stochastic, len(self._F)
        there = np.asarray(self.terms[:, observable_index].any(axis=(0, 1)))
        own, noise = _nonzero_slice(there[:n]), _nonzero_slice(there[size:])
        parts = self.terms[..., own], self.terms[..., n:size], self.terms[..., size:][..., noise]
        return FrameColumn(tuple(observable_index.tolist()), own, noise, np.concatenate(parts, axis=2))

    def find_frame_radius(self, noise_variance: Array) -> float:
        """Return how far frames may reach from their origins.

        Shapes: noise_variance (o,).
        """
        tried = np.geomspace(_MAX_FRAME_RADIUS, _MIN_FRAME_RADIUS, 24) / self._F_norm
        n = self._n_stochastic
        both = np.einsum("koi,kst->osit", self.terms[:, :-1], self.evaluate_powers(np.stack([tried, -tried])))
        # What noise does to a measurement is what its row says of its covariances with all states.
        rows, noises = np.abs(both[..., :n, :]), np.abs(both[..., self._F.shape[0] :, :])
        loud = np.einsum("osit,osit->ost", rows, noises) / noise_variance[:, None, None]
        # Numbers that are not finite are not quiet.
        quiet = np.flatnonzero((loud <= _MAX_NOISE_RATIO).all(axis=(0, 1)))
        return float(tried[quiet[0]] if len(quiet) else tried[-1])

    def vjp(self, grad_terms: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in F, (s, s), in the density of the noise, (n, n), and in the rows, (o + 1, s).

        Shapes: grad_terms (k, o + 1, s + n).
        """
        n, size, in_F, in_B = (
            self._n_stochastic,
            len(self._F),
            np.zeros_like(self._F),
            np.zeros_like(self._noise_intensity),
        )
        own, H = self._F[:n, :n], self._H[:, :n]
        scaled = grad_terms / np.cumprod([1.0, *range(1, self.n_terms)])[:, None, None]
        in_plain, in_mixed = scaled[..., :size], scaled[..., size:]
        slope, in_noise, in_power = in_plain[-1], H.T @ in_mixed[-1], np.zeros((n, n))
        in_H = in_mixed[-1] @ self._noise_terms[-1].T
        for k in range(self.n_terms - 1, 0, -1):
            in_F += self._row_terms[k - 1].T @ slope
            slope = slope @ self._F.T + in_plain[k - 1]
            # The noise's k-th derivative is F times the one before, and B times a power.
            in_F[:n, :n] += in_noise @ self._noise_terms[k - 1].T
            in_B += in_noise @ self._F_powers[k - 1].T
            in_F[:n, :n] -= in_power.T @ self._F_powers[k - 1]
            in_power = self._noise_intensity.T @ in_noise - in_power @ own
            in_noise = own.T @ in_noise + H.T @ in_mixed[k - 1]
            in_H += in_mixed[k - 1] @ self._noise_terms[k - 1].T
        slope[:, :n] += in_H
        # Whatever F and the density were divided by, times were multiplied by: nothing depends on it.
        return in_F / self._F_norm, 0.5 * (in_B + in_B.T) / self._F_norm, slope


@dataclass(frozen=True)
class FrameColumn:
    """Measurements of which there is one at each place: what they read, without all that is always zero.

    observable_index: Of the observables.
    state_slice, covariance_slice: Among the states that noise drives, those that are read, and those with which noise
        makes a covariance.
    terms: Terms for these states, for all that nothing drives, and for these covariances; (k, o + 1, r).
    """

    observable_index: tuple[int, ...]
    state_slice: slice
    covariance_slice: slice
    terms: Array


@dataclass(frozen=True)
class FrameChanges:
    """Blocks that change to a new frame at some place.

    blocks: Their numbers in the chunk; (c,).
    step_index: Numbers of lengths in `ReferenceFrames.motion`: of the time from one origin to the next; (c,).
    offset: How many such changes come before.
    """

    blocks: IndexArray
    step_index: IndexArray
    offset: int

    @property
    def change_slice(self) -> slice:
        """Where they stand among all changes."""
        return slice(self.offset, self.offset + len(self.blocks))


@dataclass(frozen=True)
class ReferenceFrames:
    """The frames of the blocks of a chunk.

    discretized: Over the times from origin to origin.
    changes: For each place, that behind the last one included: where the first frame begins, and where the last one
        ends, all blocks change.
    time_offsets: Times since the origins; (p, u).
    columns: Of the measurements at each place.
    """

    series: FrameSeries
    discretized: DiscretizedModel
    changes: tuple[FrameChanges, ...]
    time_offsets: Array
    columns: tuple[FrameColumn, ...]

    def select_rows(self, start: int, stop: int) -> FrameSegment:
        """Return some consecutive places."""
        return FrameSegment(
            self.columns, self._stacked_terms, self.series.evaluate_powers(self.time_offsets[start:stop])
        )

    @cached_property
    def _stacked_terms(self) -> Array:
        """Terms of all observables of all columns, one below the other."""
        parts = [column.terms[:, number].T for column in self.columns for number in column.observable_index]
        return np.concatenate([np.zeros((0, self.series.n_terms)), *parts])

    def vjp(self, grad_terms: list[Array]) -> tuple[Array, Array, Array]:
        """Return derivatives as `FrameSeries.pull` does, from those in the terms of each column.

        Shapes: grad_terms (k, o + 1, r).
        """
        n, size, found = (
            self.discretized.model.n_stochastic,
            self.discretized.model.size,
            np.zeros_like(self.series.terms),
        )
        for column, own in zip(self.columns, grad_terms, strict=True):
            first = column.state_slice.stop - column.state_slice.start
            found[..., column.state_slice] += own[..., :first]
            found[..., n:size] += own[..., first : first + size - n]
            found[..., size:][..., column.covariance_slice] += own[..., first + size - n :]
        return self.series.vjp(found)


@dataclass(frozen=True)
class FrameSegment:
    """Some consecutive places of the blocks of a chunk.

    terms: Of all observables of all columns, one below the other; (r, k).
    powers: Powers of the times since the origins; (k, p, u).
    """

    columns: tuple[FrameColumn, ...]
    terms: Array
    powers: Array

    def build_rows(self, observable_index: IndexArray) -> list[Array]:
        """Return what each column reads in the frames of its places, shapes (r, p, u).

        Shapes: observable_index (p, w, u).
        """
        shape, stop, found = self.powers.shape[1:], 0, []
        whole, places = aligned_empty(len(self.terms), *shape), math.prod(shape)
        # Where no column reads a state, there are no terms, and no -1 tells a shape.
        np.matmul(self.terms, self.powers.reshape(-1, places), out=whole.reshape(len(whole), places))
        for column, seen in zip(self.columns, observable_index.swapaxes(0, 1), strict=True):
            width = column.terms.shape[2]
            start, stop = stop, stop + len(column.observable_index) * width
            if len(column.observable_index) == 1:
                found.append(whole[start:stop])
                found[-1].reshape(width, places)[:, np.flatnonzero(seen != column.observable_index[0])] = 0.0
                continue
            found.append(aligned_zeros(width, *shape))
            for i, number in enumerate(column.observable_index):
                np.copyto(found[-1], whole[start + i * width :][:width], where=seen == number)
        return found

    def vjp(self, grad_terms: list[Array], grad_rows: list[Array], observable_index: IndexArray) -> None:
        """Add derivatives in the terms of each column, from those in `readings`.

        Shapes: grad_terms (k, o + 1, r), grad_rows (r, p, u), observable_index (p, w, u).
        """
        weights, seen = self.powers.reshape(len(self.powers), -1), observable_index.swapaxes(0, 1)
        for column, slopes, own, which in zip(self.columns, grad_terms, grad_rows, seen, strict=True):
            for number in column.observable_index:
                # Where nothing was measured nothing depends on the row.
                part = own if len(column.observable_index) == 1 else own * (which == number)
                slopes[:, number] += weights @ part.reshape(len(own), weights.shape[1]).T


def build_frames(model: StateSpaceModel, block_rows: BlockRows, noise_variance: Array) -> ReferenceFrames:
    """Return the frames of the blocks of a chunk.

    Shapes: noise_variance (o,).
    """
    times = block_rows.times
    places, count = len(times) - 1, times.shape[1]
    norm = _balanced_norm(model)
    cut = _find_frame_changes(
        times[:-1], 2.0 * FrameSeries(model, _MAX_FRAME_RADIUS / norm, norm).find_frame_radius(noise_variance)
    )
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
    cuts = tuple(FrameChanges(blocks[a:b], which[a:b], a) for a, b in pairwise(edges))
    series = FrameSeries(model, float(np.abs(since).max(initial=0.0)), norm)
    columns = tuple(series.build_column(seen) for seen in block_rows.column_observables)
    return ReferenceFrames(series, DiscretizedModel(model, whole), cuts, since, columns)


def _find_frame_changes(times: Array, max_length: float) -> NDArray[np.bool_]:
    """Return where new frames begin, shape (p, u)."""
    found, first = np.zeros(times.shape, dtype=bool), times[0]
    found[0] = True
    for own, now in zip(found[1:], times[1:], strict=True):
        gone = now - first
        if gone.max(initial=0.0) > max_length:
            np.greater(gone, _EARLY_CHANGE_FRACTION * max_length, out=own)
            first = np.where(own, now, first)
    return found


def _nonzero_slice(mask: NDArray[np.bool_]) -> slice:
    """Return from where on and up to where something is there."""
    own = np.flatnonzero(mask)
    return slice(int(own[0]), int(own[-1]) + 1) if len(own) else slice(0, 0)


def _balanced_norm(model: StateSpaceModel) -> float:
    """Return the largest sum of a row of F, in units of states that make it small."""
    n, found = model.n_stochastic, 0.0
    for part in (model.F[:n, :n], model.F[n:, n:]):
        if part.size:
            balanced = matrix_balance(part, permute=False)[0]
            found = max(found, float(np.abs(balanced).sum(axis=1).max()))
    return found or 1.0


#: Places that are worked on together.
ROWS_PER_GROUP = 8


@dataclass(frozen=True)
class IrregularBlocks:
    """Blocks of a chunk with their measurements whitened, given the state at the start of each.

    rows: With u blocks.
    observation_rows: What each column reads in its frames, for some consecutive places each. The way back takes them
        away; (r, g, u).
    moments_before_change: Before the changes of frames at a place, how the mean of the states that noise drives
        follows from the state at the start, minus the rest of it, and their covariance; (c, n, s + 1 + n).
    Phi_deterministic: How the other states follow from those at the start; (p + 1, q, q, u).
    whitened_rows: What whitened measurements say of the state at the start, they themselves, and what they add to the
        mean; (p, w, s + 1 + n, u).
    S_inverse_roots: What they were multiplied by: one over their deviations; (p, w, u).
    final_moments: The same at the end; (n, s + 1 + n, u).
    covariance_error: What relative errors of covariances do to the log evidence.
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
        """How many blocks have something to say."""
        return self.rows.n_blocks

    @property
    def whitened_H_and_z(self) -> Array:
        """What whitened measurements say of the state at the start, and they themselves, shape (p, w, s + 1, b)."""
        return self.whitened_rows[:, :, : self.model.size + 1, : self.n_blocks]

    @property
    def half_log_det(self) -> Array:
        """Half the logarithms of the determinants of covariances of measurements, shape (b,)."""
        return np.asarray(-np.log(self.S_inverse_roots[:, :, : self.n_blocks]).sum(axis=(0, 1)))

    @property
    def Phi(self) -> Array:
        """From the start of a block to that of the next one, given its measurements, shape (b, s, s)."""
        n, size = self.model.n_stochastic, self.model.size
        found = np.zeros((self.n_blocks, size, size))
        found[:, :n] = self.final_moments[:, :size, : self.n_blocks].transpose(2, 0, 1)
        found[:, n:, n:] = self.Phi_deterministic[-1][..., : self.n_blocks].transpose(2, 0, 1)
        return found

    @property
    def state_shift(self) -> Array:
        """What measurements add to the states that noise drives until the end, shape (b, n)."""
        return -self.final_moments[:, self.model.size, : self.n_blocks].T

    @property
    def Q(self) -> Array:
        """The covariance of the state at the end, given that at the start and the measurements, shape (b, n, n)."""
        return self.final_moments[:, self.model.size + 1 :, : self.n_blocks].transpose(2, 0, 1)

    @property
    def n_elements(self) -> int:
        """About how many numbers it has."""
        readings = (part for parts in self.observation_rows for part in parts)
        parts = (
            self.whitened_rows,
            self.S_inverse_roots,
            self.Phi_deterministic,
            *self.moments_before_change.values(),
            *readings,
        )
        return sum(part.size for part in parts)

    def move_blocks_last_padded(self, scores: Array) -> Array:
        """Return something of each measurement as `white` has it, shape (p, w, k, u).

        Shapes: scores (b, m, k).
        """
        places, width, count = self.rows.observable_index.shape
        return move_blocks_last_padded(scores[:, : places * width]).reshape(places, width, scores.shape[2], count)

    def vjp(
        self, gradient: ModelGradient, grad_whitened: Array, grad_final_moments: Array, grad_Phi_deterministic: Array
    ) -> Array:
        """Add derivatives in the system; return those in values and in variances, shape (2, p, w, b).

        The logarithms of the deviations count minus one each.
        """
        places, width, count = self.rows.observable_index.shape
        in_terms = [np.zeros_like(column.terms) for column in self.frames.columns]
        found = aligned_zeros(2, places, width, count)
        way = _AdjointState.of(self, grad_final_moments, grad_Phi_deterministic)
        self._frame_change_vjp(places, way)
        for start in range((places - 1) // ROWS_PER_GROUP * ROWS_PER_GROUP, -1, -ROWS_PER_GROUP):
            stop = min(start + ROWS_PER_GROUP, places)
            part, observed = self.frames.select_rows(start, stop), self.rows.observable_index[start:stop]
            # Numbers that were used make room for derivatives in them.
            rows = self.observation_rows.pop()
            for i in range(stop - 1, start - 1, -1):
                for j in range(width - 1, -1, -1):
                    self._measurement_vjp((i, j), rows[j][:, i - start], grad_whitened[i, j], way, found[:, i, j])
                self._frame_change_vjp(i, way)
            part.vjp(in_terms, rows, observed)
        self._add_frame_changes(gradient, way)
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
        """Go back over a measurement; find derivatives in its value and variance, those in its row take its place."""
        n, s, column = self.model.n_stochastic, self.model.size + 1, self.frames.columns[position[1]]
        states, first = column.state_slice, column.state_slice.stop - column.state_slice.start
        behind = first + s - 1 - n
        xi, scale, D, minus = (
            self.whitened_rows[position],
            self.S_inverse_roots[position],
            adjoint.grad_moments,
            adjoint.negative_gradient,
        )
        h, mixed, (in_value, in_variance) = adjoint.row_buffer[:behind], xi[s:], grad_value_and_variance
        h[:] = row[:behind]
        adjoint.moments += np.multiply(mixed[:, None], xi, out=adjoint.update_buffer)
        # Minus derivatives in what it says.
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
        """Go back over a change of frames at some place."""
        cuts, motion, s = self.frames.changes[position], self.frames.discretized, self.model.size + 1
        if not len(cuts.blocks):
            return
        # Products of many small matrices: blocks first.
        blocks, before = (
            slice_or_index(cuts.blocks, adjoint.grad_moments.shape[-1]),
            self.moments_before_change[position],
        )
        Phi, own = motion.stochastic.Phi[cuts.step_index], move_blocks_first(adjoint.grad_moments[..., blocks])
        # The covariance is symmetric, whatever was done to its two halves.
        half = 0.5 * (own[..., s:] + own[..., s:].swapaxes(-1, -2))
        in_transition = own[..., :s] @ before[..., :s].swapaxes(-1, -2)
        in_transition += 2.0 * half @ (Phi @ before[..., s:])
        adjoint.grad_steps[0, cuts.change_slice], adjoint.grad_steps[1, cuts.change_slice] = in_transition, half
        own[..., s:] = half @ Phi
        adjoint.grad_moments[..., blocks] = np.moveaxis(Phi.swapaxes(-1, -2) @ own, 0, -1)
        adjoint.moments[..., blocks] = np.moveaxis(before, 0, -1)
        if len(adjoint.grad_Phi_deterministic):
            moved, own = (
                move_blocks_last(motion.deterministic.Phi[cuts.step_index]),
                adjoint.grad_Phi_deterministic[..., blocks],
            )
            # The first change is that from the start of the block.
            known = (
                self.Phi_deterministic[position - 1][..., blocks]
                if position
                else np.eye(len(own))[:, :, None] + np.zeros(own.shape)
            )
            adjoint.grad_deterministic_steps[cuts.change_slice] = np.einsum("ikb,jkb->bij", own, known)
            adjoint.grad_Phi_deterministic = adjoint.grad_Phi_deterministic.copy()
            adjoint.grad_Phi_deterministic[..., blocks] = np.einsum("jib,jkb->ikb", moved, own)

    def _add_frame_changes(self, gradient: ModelGradient, adjoint: _AdjointState) -> None:
        inner = BlockGradient.zeros(self.frames.discretized)
        gone = np.concatenate([cuts.step_index for cuts in self.frames.changes])
        scatter_add(inner.Phi, gone, adjoint.grad_steps[0])
        scatter_add(inner.Q, gone, adjoint.grad_steps[1])
        if adjoint.grad_deterministic_steps.size:
            scatter_add(inner.Phi_deterministic, gone, adjoint.grad_deterministic_steps)
        gradient.add_blocks(self.frames.discretized, inner)


@dataclass
class _AdjointState:
    """Where the way back is.

    grad_moments, grad_Phi_deterministic: Derivatives in what is known of the states that noise drives, and of the
        others; (n, s + 1 + n, u) and (q, q, u).
    moments, update_buffer: What is known, and room for what changes that; (n, s + 1 + n, u).
    row_buffer, covariance_buffer, negative_gradient: Room for what a measurement reads, its covariance with the
        state, and minus derivatives in what it says; (s, u), (n, u) and (s + 1 + n, u).
    grad_steps, grad_deterministic_steps: Derivatives in transitions and noises of all changes of frames, and in
        transitions of the other states; (2, c, n, n) and (c, q, q).
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
        """Return its beginning, which is the end."""
        D, A = (move_blocks_last_padded(part) for part in (grad_final_moments, grad_Phi_deterministic))
        (n, width, count), q = D.shape, len(A)
        changes = sum(len(cuts.blocks) for cuts in blocks.frames.changes)
        steps, others = np.zeros((2, changes, n, n)), np.zeros((changes, q, q))
        room = aligned_zeros(n + q, count), aligned_zeros(n, count), aligned_zeros(width, count)
        return cls(D, A, aligned_zeros(*D.shape), aligned_zeros(*D.shape), *room, steps, others)


def slice_or_index(index: IndexArray, count: int) -> IndexArray | slice:
    """Return a slice where all blocks are meant: nothing is copied then."""
    return slice(None) if len(index) == count else index


#: So many measurements tell how much noise they have.
_N_SAMPLED_MEASUREMENTS = 2000


def filter_irregular_blocks(
    model: StateSpaceModel, block_rows: BlockRows, values: Array, noise_variance: Array
) -> IrregularBlocks:
    """Return blocks of a chunk.

    Shapes: values (b, p, w), noise_variance (m,).
    """
    places, width, count = block_rows.observable_index.shape
    n, q, R = (
        model.n_stochastic,
        model.size - model.n_stochastic,
        np.append(noise_variance, 1.0)[block_rows.measurement_index],
    )
    frames, y = (
        build_frames(model, block_rows, _estimate_min_noise_variance(block_rows.observable_index, R, len(model.H))),
        move_blocks_last_padded(values),
    )
    taken = _ConditionalMoments.initial(n, q, count)
    white, scales = aligned_empty(places, width, taken.moments.shape[1], count), aligned_empty(places, width, count)
    quiet, past, largest, doubt = aligned_zeros(places + 1, q, q, count), {}, np.zeros((width, count)), 0.0
    readings: list[list[Array]] = []
    for i in range(places + 1):
        if i % ROWS_PER_GROUP == 0 and i < places:
            group = slice(i, min(i + ROWS_PER_GROUP, places))
            readings.append(frames.select_rows(group.start, group.stop).build_rows(block_rows.observable_index[group]))
        if len(frames.changes[i].blocks):
            past[i], taken.Phi_deterministic = _change_frames(
                frames, frames.changes[i], taken.moments, taken.Phi_deterministic
            )
        quiet[i] = taken.Phi_deterministic
        if i == places:
            break
        deviations = taken.state_std if i == group.start else None
        for j, (column, rows) in enumerate(zip(frames.columns, readings[-1], strict=True)):
            row = rows[:, i - group.start]
            taken.condition(column, row, y[i, j], R[i, j], white[i, j], scales[i, j])
            if deviations is not None:
                # Entries of covariances err as the deviations are large, and these grow through a frame.
                read = deviations[column.state_slice]
                signal = np.einsum("ib,ib->b", np.abs(row[: len(read)]), read) ** 2
                np.maximum(signal, largest[j], out=largest[j])
                often = group.stop - group.start
                doubt += often * float(np.einsum("b,b,b->", largest[j], scales[i, j], scales[i, j]))
    return IrregularBlocks(model, block_rows, frames, readings, past, quiet, white, scales, taken.moments, doubt)


@dataclass
class _ConditionalMoments:
    """What is known of states when some measurements were taken.

    moments: How the mean of the states that noise drives follows from the state at the start, minus the rest of it,
        and their covariance; (n, s + 1 + n, u).
    Phi_deterministic: How the other states follow from those at the start; (q, q, u).
    update_buffer: Room for what changes D; (n, s + 1 + n, u).
    """

    moments: Array
    Phi_deterministic: Array
    update_buffer: Array

    @classmethod
    def initial(cls, n_stochastic: int, n_deterministic: int, n_blocks: int) -> _ConditionalMoments:
        """Return what is known at the start of so many blocks."""
        D, A = (
            aligned_zeros(n_stochastic, n_stochastic + n_deterministic + 1 + n_stochastic, n_blocks),
            aligned_zeros(n_deterministic, n_deterministic, n_blocks),
        )
        D[:, :n_stochastic], A[:] = np.eye(n_stochastic)[:, :, None], np.eye(n_deterministic)[:, :, None]
        return cls(D, A, aligned_empty(*D.shape))

    @property
    def state_std(self) -> Array:
        """Those of the states that noise drives, shape (n, u)."""
        variances = np.einsum("iib->ib", self.moments[:, self.moments.shape[1] - len(self.moments) :])
        return np.asarray(np.sqrt(np.abs(variances)))

    def condition(
        self,
        column: FrameColumn,
        row: Array,
        y: Array,
        noise_variance: Array,
        whitened_row: Array,
        S_inverse_root: Array,
    ) -> None:
        """Take a measurement of each block.

        Shapes: row (r, u), y, noise_variance (u,), whitened_row, S_inverse_root (s + 1 + n, u) and (u,).
        """
        n, q, first = len(self.moments), len(self.Phi_deterministic), column.state_slice.stop - column.state_slice.start
        h, hq, noise = row[:first], row[first : first + q], row[first + q :]
        # How a measurement follows from the state at the start, its value, and its covariance with the state.
        np.einsum("ib,ikb->kb", h, self.moments[column.state_slice], out=whitened_row)
        if q:
            whitened_row[n : n + q] += np.einsum("ib,ikb->kb", hq, self.Phi_deterministic)
        whitened_row[n + q] += y
        mixed = whitened_row[n + q + 1 :]
        mixed[column.covariance_slice] += noise
        # One over the deviation.
        np.einsum("ib,ib->b", h, mixed[column.state_slice], out=S_inverse_root)
        S_inverse_root += noise_variance
        whitened_row *= np.divide(1.0, np.sqrt(S_inverse_root, out=S_inverse_root), out=S_inverse_root)
        self.moments -= np.multiply(mixed[:, None], whitened_row, out=self.update_buffer)


def _estimate_min_noise_variance(observable_index: IndexArray, noise_variance: Array, n_observables: int) -> Array:
    """Return about the smallest variance of the noise of each observable; exact values are few, and do not count."""
    every = max(1, observable_index.size // _N_SAMPLED_MEASUREMENTS)
    seen, own = observable_index.ravel()[::every], noise_variance.ravel()[::every]
    found = np.full(n_observables, np.inf)
    for number in np.unique(seen[seen >= 0]):
        found[number] = np.quantile(own[seen == number], 0.1)
    return found


def _change_frames(
    frames: ReferenceFrames, changes: FrameChanges, moments: Array, Phi_deterministic: Array
) -> tuple[Array, Array]:
    """Move what is known of states to new frames, for some blocks; return what was known of these, and A."""
    motion, s, blocks = (
        frames.discretized,
        moments.shape[1] - len(moments),
        slice_or_index(changes.blocks, moments.shape[-1]),
    )
    # Products of many small matrices: blocks first.
    Phi, before = motion.stochastic.Phi[changes.step_index], move_blocks_first(moments[..., blocks])
    moved = Phi @ before
    moved[..., s:] = moved[..., s:] @ Phi.swapaxes(-1, -2)
    moved[..., s:] += motion.stochastic.Q[changes.step_index]
    moments[..., blocks] = np.moveaxis(moved, 0, -1)
    if len(Phi_deterministic):
        Phi_deterministic = Phi_deterministic.copy()
        Phi_deterministic[..., blocks] = matmul_blocks_last(
            move_blocks_last(motion.deterministic.Phi[changes.step_index]), Phi_deterministic[..., blocks]
        )
    return before, Phi_deterministic
