"""States seen from a time nearby: in such a frame nothing moves, and a step costs no product of matrices.

With ``y(t) = e^(-F (t - o)) x(t)`` a measurement reads ``H e^(F (t - o)) y``, and noise adds up to
``C(t - o) = int_0^(t - o) e^(-F s) B e^(-F' s) ds``. Both are Taylor's series in the time since the origin o of the
frame, whose terms serve all times. Where a frame would become so long that these matrices are large, or steps are, the
state is moved to a new frame by its transition, for those blocks that need it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matrix_balance

from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.steps import NoisySteps

__all__ = ["Cuts", "Frames", "Part", "Series", "make_frames"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
Mask = NDArray[np.bool_]
#: How long a frame may be in units of the norm of F, at most and at least: so far transitions and their inverses are of
#: moderate size.
_LONGEST, _SHORTEST = 3.0, 0.01
#: How large what noise does until the end of a frame may be, seen from its start, beside the noise of measurements:
#: rounding is in proportion to the first, and what is computed to the second.
_LOUD = 300.0
#: The most terms of a series, and what the first one that is left out may be.
_TERMS, _SMALL = 60, 1e-17


class Series:
    """Rows of observables and noises in a frame, as series in the time since its origin.

    Parameters
    ----------
    space : Space
    longest : float
        The longest time since an origin.
    norm : float
        Of F.

    Attributes
    ----------
    rows : array, shape (k, o + 1, s)
        Terms of the rows of all observables, and of a row of zeros.
    ranges : tuple of tuples of int
        For each row of the noise its number, and from where on and up to where it may have entries that are not zero.
    edges : list of int
        Where those of each row begin in `noises`.
    noises : array, shape (e, k)
        Terms of these entries.
    """

    def __init__(self, space: Space, longest: float, norm: float) -> None:
        n, size = space.noisy, space.size
        self._norm, self._noisy = norm, n
        self._F = np.zeros((size, size))
        self._F[:n, :n], self._F[n:, n:] = space.matrix[:n, :n] / norm, space.matrix[n:, n:] / norm
        own, readings = self._F[:n, :n], np.concatenate([space.readings, np.zeros((1, size))])
        rows, noises = [readings], [space.density / norm]
        largest = [np.abs(rows[0]), np.abs(noises[0])]
        weight, small = 1.0, 0
        # Terms matter in proportion to the entry that they are added to: these begin with different powers.
        while len(noises) < _TERMS and small < 3:
            rows.append(rows[-1] @ self._F)
            half = own @ noises[-1]
            noises.append(-(half + half.T))
            weight *= longest * norm / len(rows)
            parts = weight * np.abs(rows[-1]), weight * np.abs(noises[-1])
            is_small = all((part <= _SMALL * most).all() for part, most in zip(parts, largest, strict=True))
            small = small + 1 if is_small else 0
            largest = [np.maximum(part, most) for part, most in zip(parts, largest, strict=True)]
        self.count = len(noises)
        self.rows = np.stack(rows)
        self._all_noises = np.stack(noises)
        there = np.any(self._all_noises != 0, axis=0)
        ranges = [(row, np.flatnonzero(own)) for row, own in enumerate(there) if own.any()]
        self.ranges = tuple((row, int(own[0]), int(own[-1]) + 1) for row, own in ranges)
        self.edges = np.cumsum([0, *(stop - start for _, start, stop in self.ranges)]).tolist()
        entries = [self._all_noises[:, row, start:stop] for row, start, stop in self.ranges]
        self.noises = np.ascontiguousarray(np.concatenate(entries, axis=1).T) if entries else np.zeros((0, self.count))

    def weights(self, times: Array) -> Array:
        """Return powers of times since the origin, divided by factorials, from the zeroth on, shape (k + 1, ...).

        Parameters
        ----------
        times : array
        """
        x = times * self._norm
        found = np.empty((self.count, *times.shape))
        found[0] = 1.0
        for k in range(1, self.count):
            np.multiply(found[k - 1], x, out=found[k])
            found[k] /= k
        return found

    def numbers(self, seen: Numbers) -> list[int]:
        """Return which observables were seen."""
        count = self.rows.shape[1]
        return np.flatnonzero(np.bincount(seen.ravel(), minlength=count)[: count - 1]).tolist()

    def length(self, variance: Array) -> float:
        """Return how long frames may be.

        Parameters
        ----------
        variance : array, shape (o,)
            Of the noise of the measurements of each observable; infinite where there are none.
        """
        tried = np.geomspace(_LONGEST, _SHORTEST, 24) / self._norm
        weights, n = self.weights(tried), self._noisy
        diagonal = np.einsum("kii->ki", self._all_noises)[:-1]
        deviations = np.sqrt(np.maximum(diagonal.T @ weights[1:], 0.0))
        rows = np.abs(np.einsum("koi,kt->oit", self.rows[:, :-1, :n], weights))
        loud = np.einsum("oit,it->ot", rows, deviations) ** 2 / variance[:, None]
        # Numbers that are not finite are not quiet.
        quiet = np.flatnonzero((loud <= _LOUD).all(axis=0))
        return float(tried[quiet[0]] if len(quiet) else tried[-1])

    def pull(self, in_readings: Array, in_noises: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in F, (s, s), in the density of the noise, (n, n), and in the rows, (o + 1, s).

        Parameters
        ----------
        in_readings : array, shape (k, o + 1, s)
            Those in `Series.rows`.
        in_noises : array, shape (e, k)
            Those in `noises`.
        """
        n, in_F = self._noisy, np.zeros_like(self._F)
        slope = in_readings[-1]
        for k in range(self.count - 1, 0, -1):
            in_F += self.rows[k - 1].T @ slope
            slope = slope @ self._F.T + in_readings[k - 1]
        first_readings = slope
        parts = np.zeros((self.count, n, n))
        for (row, start, stop), first in zip(self.ranges, self.edges, strict=False):
            parts[:, row, start:stop] = in_noises[first : first + stop - start].T
        parts = 0.5 * (parts + parts.swapaxes(-1, -2))
        own, slope = self._F[:n, :n], parts[-1]
        for k in range(self.count - 1, 0, -1):
            in_F[:n, :n] -= 2.0 * slope @ self._all_noises[k - 1]
            half = own.T @ slope
            slope = parts[k - 1] - (half + half.T)
        # Whatever F and the density were divided by, times were multiplied by: nothing depends on it.
        return in_F / self._norm, slope / self._norm, first_readings


@dataclass(frozen=True)
class Cuts:
    """Blocks that change to a new frame at some place.

    Parameters
    ----------
    blocks : array of int, shape (c,)
        Their numbers in the chunk.
    gone, last : arrays of int, shape (c,)
        Numbers of lengths: in `Frames.motion` of the time since the origin, in `Frames.steps` of the last step alone.
    start : int
        How many such changes come before.
    """

    blocks: Numbers
    gone: Numbers
    last: Numbers
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
        Over the times at whose end frames change, without noise.
    steps : NoisySteps
        Of the states that noise drives, over the last steps before frames change.
    cuts : tuple of Cuts
        For each place, that behind the last one included.
    since : array, shape (p, u)
        Times since the origins.
    stays : array of bool, shape (p, u)
        Whether the frame is that of the place before.
    """

    series: Series
    motion: Motion
    steps: NoisySteps
    cuts: tuple[Cuts, ...]
    since: Array
    stays: Mask

    def part(self, start: int, stop: int) -> Part:
        """Return some consecutive places.

        Parameters
        ----------
        start, stop : int
            The first of them, and the first behind them.
        """
        before = max(start - 1, 0)
        weights = self.series.weights(self.since[[before, *range(start, stop)]])
        return Part(self.series, weights, self.stays[start:stop])


@dataclass(frozen=True)
class Part:
    """Some consecutive places of the blocks of a chunk.

    Parameters
    ----------
    series : Series
    weights : array, shape (k, p + 1, u)
        Powers of the times since the origins, at the place before them and at all of them.
    stays : array of bool, shape (p, u)
        Whether the frame is that of the place before.
    """

    series: Series
    weights: Array
    stays: Mask

    def noises(self) -> Array:
        """Return what noise adds to covariances until each place, in the order of the series, shape (e, p, u)."""
        # The noise begins with the first power of time.
        powers = self.weights[1:]
        sums = (self.series.noises[:, :-1] @ powers.reshape(len(powers), -1)).reshape(-1, *powers.shape[1:])
        found = sums[:, 1:] - sums[:, :-1]
        found *= self.stays
        return np.asarray(found)

    def readings(self, observed: Numbers) -> Array:
        """Return the rows of measurements in the frames of their places, shape (w, s, p, u).

        Parameters
        ----------
        observed : array of int, shape (p, w, u)
            The numbers of the observables; that of the row of zeros for none.
        """
        places, width, count = observed.shape
        size, weights = self.series.rows.shape[2], self.weights[:, 1:].reshape(len(self.weights), -1)
        found = np.zeros((width, size, places, count))
        for own, seen in zip(found, observed.swapaxes(0, 1), strict=True):
            for number in self.series.numbers(seen):
                rows, mask = self.series.rows[:, number].T @ weights, seen == number
                np.copyto(own, rows.reshape(own.shape), where=True if mask.all() else mask)
        return found

    def pull(self, in_terms: tuple[Array, Array], in_readings: Array, in_noises: Array, observed: Numbers) -> None:
        """Add derivatives in the terms of rows and of noises, from those in rows and noises.

        Parameters
        ----------
        in_terms : tuple of arrays, shapes (k, o + 1, s) and (e, k)
            They grow.
        in_readings, in_noises : arrays
            Those in what has the same name.
        observed : array of int, shape (p, w, u)
            As in `readings`.
        """
        weights = self.weights[:, 1:].reshape(len(self.weights), -1)
        for own, seen in zip(in_readings, observed.swapaxes(0, 1), strict=True):
            for number in self.series.numbers(seen):
                mask = seen == number
                part = own if mask.all() else own * mask
                in_terms[0][:, number] += weights @ part.reshape(len(own), -1).T
        slopes = in_noises * self.stays
        in_sums = np.zeros((len(slopes), slopes.shape[1] + 1, slopes.shape[2]))
        in_sums[:, 1:] = slopes
        in_sums[:, :-1] -= slopes
        powers = self.weights[1:]
        in_terms[1][:, :-1] += in_sums.reshape(len(slopes), powers[0].size) @ powers.reshape(len(powers), -1).T


def make_frames(space: Space, lengths: Array, steps: Numbers, variance: Array) -> Frames:
    """Return the frames of the blocks of a chunk.

    Parameters
    ----------
    space : Space
    lengths : array
        All different lengths of steps.
    steps : array of int, shape (u, p + 1)
        The numbers of the steps, that to the following block included.
    variance : array, shape (o,)
        Of the noise of the measurements of each observable; infinite where there are none.
    """
    h = lengths[steps.T]
    places = len(h) - 1
    norm = _norm_of(space)
    series = Series(space, _LONGEST / norm, norm)
    long = series.length(variance)
    since, gone, cut = np.zeros_like(h), np.zeros_like(h), np.zeros(h.shape, dtype=bool)
    for i in range(1, places + 1):
        np.add(since[i - 1], h[i], out=gone[i])
        cut[i] = gone[i] > long if i < places else True
        since[i] = np.where(cut[i], 0.0, gone[i])
    where, blocks = np.nonzero(cut)
    whole, first = np.unique(gone[where, blocks], return_inverse=True)
    single, second = np.unique(h[where, blocks], return_inverse=True)
    edges = np.searchsorted(where, np.arange(places + 2)).tolist()
    cuts = tuple(Cuts(blocks[a:b], first[a:b], second[a:b], a) for a, b in pairwise(edges))
    since = since[:-1]
    series = Series(space, float(since.max(initial=0.0)), norm)
    stays = ~cut[:-1]
    stays[0] = False
    n = space.noisy
    motion = Motion(replace(space, density=np.zeros_like(space.density)), whole)
    return Frames(series, motion, NoisySteps(space.matrix[:n, :n], space.density, single), cuts, since, stays)


def _norm_of(space: Space) -> float:
    """Return the largest sum of a row of F, in units of states that make it small."""
    n, found = space.noisy, 0.0
    for part in (space.matrix[:n, :n], space.matrix[n:, n:]):
        if part.size:
            balanced = matrix_balance(part, permute=False)[0]
            found = max(found, float(np.abs(balanced).sum(axis=1).max()))
    return found or 1.0
