"""States seen from a time nearby: in such a frame nothing moves, and a step costs no product of matrices.

With ``y(t) = e^(-F (t - o)) x(t)`` a measurement reads ``H e^(F (t - o)) y``, and noise adds up to
``C(t - o) = int_0^(t - o) e^(-F s) B e^(-F' s) ds``. What a frame carries is the covariance of y without C, which
measurements alone change, and which is moved to another origin as a covariance is moved in time. So all that is needed
at a place are ``H e^(F (t - o))`` and its product with C: Taylor's series in the time since the origin, whose terms
serve all times. Origins stand in the middle of what is seen from them. Where a frame would become so long that these
matrices are large, or steps are, the next one begins, for those blocks that need it soon.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matrix_balance

from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.lanes import empty, zeros
from lodekit.inference.markov.states import Space

__all__ = ["Column", "Cuts", "Frames", "Part", "Series", "make_frames"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: How far a frame may reach from its origin in units of the norm of F, at most and at least: so far transitions and
#: their inverses are of moderate size.
_LONGEST, _SHORTEST = 3.0, 0.01
#: Blocks that have come so far through a frame change it where another block has to: few changes cost as much as many.
_SOON = 0.7
#: How large what noise does from the origin of a frame to its ends may be beside the noise of measurements: rounding is
#: in proportion to the first, and what is computed to the second.
_LOUD = 300.0
#: The most terms of a series, what those that are left out may be, and how many such ones have to follow each other.
_TERMS, _SMALL, _IN_A_ROW = 60, 1e-17, 3


class Series:
    """Rows of observables, and these times the noise in a frame, as series in the time since its origin.

    Parameters
    ----------
    space : Space
    longest : float
        The longest time from an origin.
    norm : float
        Of F.

    Attributes
    ----------
    rows : array, shape (k, o + 1, s + n)
        Terms of the rows of all observables, and of their products with the noise; those of a row of zeros are last.
    """

    def __init__(self, space: Space, longest: float, norm: float) -> None:
        n, size = space.noisy, space.size
        self._norm, self._noisy = norm, n
        self._F = np.zeros((size, size))
        self._F[:n, :n], self._F[n:, n:] = space.matrix[:n, :n] / norm, space.matrix[n:, n:] / norm
        self._B = space.density / norm
        own, self._H = self._F[:n, :n], np.concatenate([space.readings, np.zeros((1, size))])
        # The derivatives at zero of e^(F t) C(t), and the powers of minus F transposed, which have B before them there.
        rows, noises, powers = [self._H], [np.zeros((n, n))], [np.eye(n)]
        terms = [np.concatenate([rows[0], np.zeros((len(self._H), n))], axis=1)]
        largest = np.abs(terms[0])
        weight, small = 1.0, 0
        # Terms matter in proportion to the entry that they are added to: these begin with different powers.
        while len(terms) < _TERMS and small < _IN_A_ROW:
            rows.append(rows[-1] @ self._F)
            noises.append(own @ noises[-1] + self._B @ powers[-1])
            powers.append(-powers[-1] @ own.T)
            weight *= 1.0 / len(terms)
            terms.append(weight * np.concatenate([rows[-1], self._H[:, :n] @ noises[-1]], axis=1))
            part = np.abs(terms[-1]) * (longest * norm) ** (len(terms) - 1)
            small = small + 1 if (part <= _SMALL * largest).all() and len(terms) > 2 else 0
            largest = np.maximum(part, largest)
        self.count = max(1, len(terms) - small)
        self.rows = np.stack(terms[: self.count])
        self._rows, self._noises, self._powers = rows[: self.count], noises[: self.count], powers[: self.count]

    def weights(self, times: Array) -> Array:
        """Return powers of times since the origin, from the zeroth on, shape (k, ...).

        Parameters
        ----------
        times : array
        """
        x = times * self._norm
        found = empty(self.count, *times.shape)
        found[0] = 1.0
        for k in range(1, self.count):
            np.multiply(found[k - 1], x, out=found[k])
        return found

    def column(self, seen: Numbers) -> Column:
        """Return what all measurements of a column have in common."""
        count, n, size = self.rows.shape[1], self._noisy, len(self._F)
        often = np.bincount(seen.ravel(), minlength=count)
        numbers = np.flatnonzero(often[: count - 1])
        there = np.asarray(self.rows[:, numbers].any(axis=(0, 1)))
        own, noise = _range(there[:n]), _range(there[size:])
        parts = self.rows[..., own], self.rows[..., n:size], self.rows[..., size:][..., noise]
        is_plain = bool(len(numbers) == 1 and often[numbers[0]] == seen.size)
        return Column(tuple(numbers.tolist()), own, noise, np.concatenate(parts, axis=2), is_plain)

    def reach(self, variance: Array) -> float:
        """Return how far frames may reach from their origins.

        Parameters
        ----------
        variance : array, shape (o,)
            Of the noise of the measurements of each observable; infinite where there are none.
        """
        tried = np.geomspace(_LONGEST, _SHORTEST, 24) / self._norm
        n = self._noisy
        both = np.einsum("koi,kst->osit", self.rows[:, :-1], self.weights(np.stack([tried, -tried])))
        # What noise does to a measurement is what its row says of its covariances with all states.
        rows, noises = np.abs(both[..., :n, :]), np.abs(both[..., self._F.shape[0] :, :])
        loud = np.einsum("osit,osit->ost", rows, noises) / variance[:, None, None]
        # Numbers that are not finite are not quiet.
        quiet = np.flatnonzero((loud <= _LOUD).all(axis=(0, 1)))
        return float(tried[quiet[0]] if len(quiet) else tried[-1])

    def pull(self, in_terms: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in F, (s, s), in the density of the noise, (n, n), and in the rows, (o + 1, s).

        Parameters
        ----------
        in_terms : array, shape (k, o + 1, s + n)
            Those in `rows`.
        """
        n, size, in_F, in_B = self._noisy, len(self._F), np.zeros_like(self._F), np.zeros_like(self._B)
        own, H = self._F[:n, :n], self._H[:, :n]
        scaled = in_terms / np.cumprod([1.0, *range(1, self.count)])[:, None, None]
        in_plain, in_mixed = scaled[..., :size], scaled[..., size:]
        slope, in_noise, in_power = in_plain[-1], H.T @ in_mixed[-1], np.zeros((n, n))
        in_H = in_mixed[-1] @ self._noises[-1].T
        for k in range(self.count - 1, 0, -1):
            in_F += self._rows[k - 1].T @ slope
            slope = slope @ self._F.T + in_plain[k - 1]
            # The noise's k-th derivative is F times the one before, and B times a power.
            in_F[:n, :n] += in_noise @ self._noises[k - 1].T
            in_B += in_noise @ self._powers[k - 1].T
            in_F[:n, :n] -= in_power.T @ self._powers[k - 1]
            in_power = self._B.T @ in_noise - in_power @ own
            in_noise = own.T @ in_noise + H.T @ in_mixed[k - 1]
            in_H += in_mixed[k - 1] @ self._noises[k - 1].T
        slope[:, :n] += in_H
        # Whatever F and the density were divided by, times were multiplied by: nothing depends on it.
        return in_F / self._norm, 0.5 * (in_B + in_B.T) / self._norm, slope


@dataclass(frozen=True)
class Column:
    """Measurements of which there is one at each place: what they read, without all that is always zero.

    Parameters
    ----------
    numbers : tuple of int
        Of the observables.
    states, noise : slices
        Among the states that noise drives, those that are read, and those with which noise makes a covariance.
    terms : array, shape (k, o + 1, r)
        Terms for these states, for all that nothing drives, and for these covariances.
    is_plain : bool
        Whether all measurements are of the same observable.
    """

    numbers: tuple[int, ...]
    states: slice
    noise: slice
    terms: Array
    is_plain: bool


@dataclass(frozen=True)
class Cuts:
    """Blocks that change to a new frame at some place.

    Parameters
    ----------
    blocks : array of int, shape (c,)
        Their numbers in the chunk.
    gone : array of int, shape (c,)
        Numbers of lengths in `Frames.motion`: of the time from one origin to the next.
    start : int
        How many such changes come before.
    """

    blocks: Numbers
    gone: Numbers
    start: int

    @property
    def where(self) -> slice:
        """Where they stand among all changes."""
        return slice(self.start, self.start + len(self.blocks))


@dataclass(frozen=True)
class Frames:
    """The frames of the blocks of a chunk.

    Parameters
    ----------
    series : Series
    motion : Motion
        Over the times from origin to origin.
    cuts : tuple of Cuts
        For each place, that behind the last one included: where the first frame begins, and where the last one ends,
        all blocks change.
    since : array, shape (p, u)
        Times since the origins.
    columns : tuple of Column
        Of the measurements at each place.
    """

    series: Series
    motion: Motion
    cuts: tuple[Cuts, ...]
    since: Array
    columns: tuple[Column, ...]

    def part(self, start: int, stop: int) -> Part:
        """Return some consecutive places.

        Parameters
        ----------
        start, stop : int
            The first of them, and the first behind them.
        """
        return Part(self.columns, self._terms, self.series.weights(self.since[start:stop]))

    @cached_property
    def _terms(self) -> Array:
        """Terms of all observables of all columns, one below the other."""
        parts = [column.terms[:, number].T for column in self.columns for number in column.numbers]
        return np.concatenate([np.zeros((0, self.series.count)), *parts])

    def pull(self, in_terms: list[Array]) -> tuple[Array, Array, Array]:
        """Return derivatives as `Series.pull` does, from those in the terms of each column.

        Parameters
        ----------
        in_terms : list of arrays, shapes (k, o + 1, r)
        """
        n, size, found = self.motion.space.noisy, self.motion.space.size, np.zeros_like(self.series.rows)
        for column, own in zip(self.columns, in_terms, strict=True):
            first = column.states.stop - column.states.start
            found[..., column.states] += own[..., :first]
            found[..., n:size] += own[..., first : first + size - n]
            found[..., size:][..., column.noise] += own[..., first + size - n :]
        return self.series.pull(found)


@dataclass(frozen=True)
class Part:
    """Some consecutive places of the blocks of a chunk.

    Parameters
    ----------
    columns : tuple of Column
    terms : array, shape (r, k)
        Of all observables of all columns, one below the other.
    weights : array, shape (k, p, u)
        Powers of the times since the origins.
    """

    columns: tuple[Column, ...]
    terms: Array
    weights: Array

    def readings(self, observed: Numbers) -> list[Array]:
        """Return what each column reads in the frames of its places, shapes (r, p, u).

        Parameters
        ----------
        observed : array of int, shape (p, w, u)
            The numbers of the observables; that of the row of zeros for none.
        """
        shape, stop, found = self.weights.shape[1:], 0, []
        # There may be no row at all, where nothing was measured.
        size, whole = prod(shape), empty(len(self.terms), *shape)
        np.matmul(self.terms, self.weights.reshape(len(self.weights), size), out=whole.reshape(len(whole), size))
        for column, seen in zip(self.columns, observed.swapaxes(0, 1), strict=True):
            width = column.terms.shape[2]
            start, stop = stop, stop + len(column.numbers) * width
            if column.is_plain:
                found.append(whole[start:stop])
                continue
            found.append(zeros(width, *shape))
            for i, number in enumerate(column.numbers):
                np.copyto(found[-1], whole[start + i * width :][:width], where=seen == number)
        return found

    def pull(self, in_terms: list[Array], in_readings: list[Array], observed: Numbers) -> None:
        """Add derivatives in the terms of each column, from those in `readings`.

        Parameters
        ----------
        in_terms : list of arrays, shapes (k, o + 1, r)
            They grow.
        in_readings : list of arrays, shapes (r, p, u)
        observed : array of int, shape (p, w, u)
            As in `readings`.
        """
        weights, seen = self.weights.reshape(len(self.weights), -1), observed.swapaxes(0, 1)
        for column, slopes, own, which in zip(self.columns, in_terms, in_readings, seen, strict=True):
            for number in column.numbers:
                part = own if column.is_plain else own * (which == number)
                slopes[:, number] += weights @ part.reshape(len(own), -1).T


def make_frames(space: Space, lengths: Array, steps: Numbers, observed: Numbers, variance: Array) -> Frames:
    """Return the frames of the blocks of a chunk.

    Parameters
    ----------
    space : Space
    lengths : array
        All different lengths of steps.
    steps : array of int, shape (u, p + 1)
        The numbers of the steps, that to the following block included.
    observed : array of int, shape (p, w, u)
        The numbers of the observables; that of the row of zeros for none.
    variance : array, shape (o,)
        Of the noise of the measurements of each observable; infinite where there are none.
    """
    times = np.cumsum(lengths[steps.T], axis=0)
    places, count = len(times) - 1, times.shape[1]
    norm = _norm_of(space)
    cut = _cut(times[:-1], 2.0 * Series(space, _LONGEST / norm, norm).reach(variance))
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
    cuts = tuple(Cuts(blocks[a:b], which[a:b], a) for a, b in pairwise(edges))
    series = Series(space, float(np.abs(since).max(initial=0.0)), norm)
    columns = tuple(series.column(seen) for seen in observed.swapaxes(0, 1))
    return Frames(series, Motion(space, whole), cuts, since, columns)


def _cut(times: Array, long: float) -> NDArray[np.bool_]:
    """Return where new frames begin, shape (p, u)."""
    found, first = np.zeros(times.shape, dtype=bool), times[0]
    found[0] = True
    for own, now in zip(found[1:], times[1:], strict=True):
        gone = now - first
        if gone.max(initial=0.0) > long:
            np.greater(gone, _SOON * long, out=own)
            first = np.where(own, now, first)
    return found


def _range(there: NDArray[np.bool_]) -> slice:
    """Return from where on and up to where something is there."""
    own = np.flatnonzero(there)
    return slice(int(own[0]), int(own[-1]) + 1) if len(own) else slice(0, 0)


def _norm_of(space: Space) -> float:
    """Return the largest sum of a row of F, in units of states that make it small."""
    n, found = space.noisy, 0.0
    for part in (space.matrix[:n, :n], space.matrix[n:, n:]):
        if part.size:
            balanced = matrix_balance(part, permute=False)[0]
            found = max(found, float(np.abs(balanced).sum(axis=1).max()))
    return found or 1.0
