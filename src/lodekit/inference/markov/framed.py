"""Blocks of which each is one of its own: a filter inside each, from measurement to measurement, all blocks at once.

It starts from the state at the start of its block, which is not known but is not random either: means are numbers plus
a row of numbers for that state. So it whitens measurements as a Cholesky factor would, at a cost that does not grow
with the length of a block. States are seen from frames in which they do not move. Blocks come last in all arrays, and
some that have nothing to say fill them up (`lanes`). The way back is the adjoint of the same recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.frames import Frames
from lodekit.inference.markov.inside import InsideSlopes, Total, add_to
from lodekit.inference.markov.lanes import (
    Places,
    put_first,
    put_last,
    put_side_by_side,
    zeros,
)
from lodekit.inference.markov.states import Space

__all__ = ["GROUP", "Framed", "all_or"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Places that are worked on together.
GROUP = 8


@dataclass(frozen=True)
class Framed:
    """Blocks of a chunk with their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    space : Space
    places : Places
        With u blocks.
    frames : Frames
    readings : list of lists of arrays, shapes (r, g, u)
        What each column reads in its frames, for some consecutive places each. The way back takes them away.
    past : dict of int to array, shape (c, n, s + 1 + n)
        Before the changes of frames at a place, how the mean of the states that noise drives follows from the state at
        the start, minus the rest of it, and their covariance.
    quiet : array, shape (p + 1, q, q, u)
        How the other states follow from those at the start.
    white : array, shape (p, w, s + 1 + n, u)
        What whitened measurements say of the state at the start, they themselves, and what they add to the mean.
    scales : array, shape (p, w, u)
        What they were multiplied by: one over their deviations.
    last : array, shape (n, s + 1 + n, u)
        The same at the end.
    doubt : float
        What relative errors of covariances do to the log evidence.
    """

    space: Space
    places: Places
    frames: Frames
    readings: list[list[Array]]
    past: dict[int, Array]
    quiet: Array
    white: Array
    scales: Array
    last: Array
    doubt: float

    @property
    def blocks(self) -> int:
        """How many blocks have something to say."""
        return self.places.blocks

    @property
    def design(self) -> Array:
        """What whitened measurements say of the state at the start, and they themselves, shape (p, w, s + 1, b)."""
        return self.white[:, :, : self.space.size + 1, : self.blocks]

    @property
    def half_log(self) -> Array:
        """Half the logarithms of the determinants of covariances of measurements, shape (b,)."""
        return np.asarray(-np.log(self.scales[:, :, : self.blocks]).sum(axis=(0, 1)))

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, given its measurements, shape (b, s, s)."""
        n, size = self.space.noisy, self.space.size
        found = np.zeros((self.blocks, size, size))
        found[:, :n] = self.last[:, :size, : self.blocks].transpose(2, 0, 1)
        found[:, n:, n:] = self.quiet[-1][..., : self.blocks].transpose(2, 0, 1)
        return found

    @property
    def added(self) -> Array:
        """What measurements add to the states that noise drives until the end, shape (b, n)."""
        return -self.last[:, self.space.size, : self.blocks].T

    @property
    def noise(self) -> Array:
        """The covariance of the state at the end, given that at the start and the measurements, shape (b, n, n)."""
        return self.last[:, self.space.size + 1 :, : self.blocks].transpose(2, 0, 1)

    @property
    def count(self) -> int:
        """About how many numbers it has."""
        readings = (part for parts in self.readings for part in parts)
        parts = self.white, self.scales, self.quiet, *self.past.values(), *readings
        return sum(part.size for part in parts)

    def put_side_by_side(self, scores: Array) -> Array:
        """Return something of each measurement as `white` has it, shape (p, w, k, u).

        Parameters
        ----------
        scores : array, shape (b, m, k)
        """
        places, width, count = self.places.observed.shape
        return put_side_by_side(scores[:, : places * width]).reshape(places, width, scores.shape[2], count)

    def pull(self, total: Total, in_white: Array, in_last: Array, in_quiet: Array) -> Array:
        """Add derivatives in the system; return those in values and in variances, shape (2, p, w, b).

        The logarithms of the deviations count minus one each.

        Parameters
        ----------
        total : Total
            Grows.
        in_white, in_last, in_quiet : arrays
            Derivatives in `white` without what is added to the mean, and, blocks first, in `last` and in `quiet` at
            the end.
        """
        places, width, count = self.places.observed.shape
        in_terms = [np.zeros_like(column.terms) for column in self.frames.columns]
        found = zeros(2, places, width, count)
        way = _Way.of(self, in_last, in_quiet)
        self._pull_change(places, way)
        for start in range((places - 1) // GROUP * GROUP, -1, -GROUP):
            stop = min(start + GROUP, places)
            part, observed = self.frames.part(start, stop), self.places.observed[start:stop]
            # Numbers that were used make room for derivatives in them.
            rows = self.readings.pop()
            for i in range(stop - 1, start - 1, -1):
                for j in range(width - 1, -1, -1):
                    self._pull_measured((i, j), rows[j][:, i - start], in_white[i, j], way, found[:, i, j])
                self._pull_change(i, way)
            part.pull(in_terms, rows, observed)
        self._add_changes(total, way)
        total.add_parts(*self.frames.pull(in_terms))
        return found[..., : self.blocks]

    def _pull_measured(self, place: tuple[int, int], row: Array, in_white: Array, way: _Way, found: Array) -> None:
        """Go back over a measurement; find derivatives in its value and variance, those in its row take its place."""
        n, s, column = self.space.noisy, self.space.size + 1, self.frames.columns[place[1]]
        states, first = column.states, column.states.stop - column.states.start
        behind = first + s - 1 - n
        xi, scale, D, minus = self.white[place], self.scales[place], way.D, way.minus
        h, mixed, (in_value, in_variance) = way.row[:behind], xi[s:], found
        h[:] = row[:behind]
        way.known += np.multiply(mixed[:, None], xi, out=way.update)
        # Minus derivatives in what it says.
        np.einsum("ib,ikb->kb", mixed, D, out=minus)
        in_mixed = minus[s:]
        in_mixed += np.einsum("ikb,kb->ib", D, xi, out=way.mixed)
        minus[:s] -= in_white
        minus *= scale
        np.einsum("kb,kb->b", minus, xi, out=in_variance)
        in_variance -= scale
        in_variance *= 0.5
        half = np.multiply(in_variance, mixed[states], out=way.mixed[:first])
        in_variance *= scale
        np.negative(minus[s - 1], out=in_value)
        in_mixed[states] -= in_variance * h[:first]
        own = np.einsum("ikb,kb->ib", way.known[states], minus, out=row[:first])
        np.subtract(half, own, out=own)
        D[states] -= np.multiply(h[:first, None], minus, out=way.update[:first])
        if len(way.A):
            row[first:behind] = -np.einsum("ikb,kb->ib", self.quiet[place[0]], minus[n : s - 1])
            way.A = way.A - h[first:, None] * minus[n : s - 1]
        np.negative(in_mixed[column.noise], out=row[behind:])

    def _pull_change(self, place: int, way: _Way) -> None:
        """Go back over a change of frames at some place."""
        cuts, motion, s = self.frames.cuts[place], self.frames.motion, self.space.size + 1
        if not len(cuts.blocks):
            return
        # Products of many small matrices: blocks first.
        blocks, before = all_or(cuts.blocks, way.D.shape[-1]), self.past[place]
        Phi, own = motion.noisy.transitions[cuts.gone], put_first(way.D[..., blocks])
        # The covariance is symmetric, whatever was done to its two halves.
        half = 0.5 * (own[..., s:] + own[..., s:].swapaxes(-1, -2))
        in_transition = own[..., :s] @ before[..., :s].swapaxes(-1, -2)
        in_transition += 2.0 * half @ (Phi @ before[..., s:])
        way.in_steps[0, cuts.where], way.in_steps[1, cuts.where] = in_transition, half
        own[..., s:] = half @ Phi
        way.D[..., blocks] = np.moveaxis(Phi.swapaxes(-1, -2) @ own, 0, -1)
        way.known[..., blocks] = np.moveaxis(before, 0, -1)
        if len(way.A):
            moved, own = put_last(motion.quiet.transitions[cuts.gone]), way.A[..., blocks]
            # The first change is that from the start of the block.
            known = self.quiet[place - 1][..., blocks] if place else np.eye(len(own))[:, :, None] + np.zeros(own.shape)
            way.in_others[cuts.where] = np.einsum("ikb,jkb->bij", own, known)
            way.A = way.A.copy()
            way.A[..., blocks] = np.einsum("jib,jkb->ikb", moved, own)

    def _add_changes(self, total: Total, way: _Way) -> None:
        inner = InsideSlopes.of(self.frames.motion)
        gone = np.concatenate([cuts.gone for cuts in self.frames.cuts])
        add_to(inner.noisy, gone, way.in_steps[0])
        add_to(inner.noises, gone, way.in_steps[1])
        if way.in_others.size:
            add_to(inner.quiet, gone, way.in_others)
        total.add(self.frames.motion, inner)


@dataclass
class _Way:
    """Where the way back is.

    Parameters
    ----------
    D, A : arrays, shapes (n, s + 1 + n, u) and (q, q, u)
        Derivatives in what is known of the states that noise drives, and of the others.
    known, update : arrays, shape (n, s + 1 + n, u)
        What is known, and room for what changes that.
    row, mixed, minus : arrays, shapes (s, u), (n, u) and (s + 1 + n, u)
        Room for what a measurement reads, its covariance with the state, and minus derivatives in what it says.
    in_steps, in_others : arrays, shapes (2, c, n, n) and (c, q, q)
        Derivatives in transitions and noises of all changes of frames, and in transitions of the other states.
    """

    D: Array
    A: Array
    known: Array
    update: Array
    row: Array
    mixed: Array
    minus: Array
    in_steps: Array
    in_others: Array

    @classmethod
    def of(cls, own: Framed, in_last: Array, in_quiet: Array) -> _Way:
        """Return its beginning, which is the end.

        Parameters
        ----------
        own : Framed
        in_last, in_quiet : arrays
            Derivatives there, blocks first.
        """
        D, A = (put_side_by_side(part) for part in (in_last, in_quiet))
        (n, width, count), q = D.shape, len(A)
        changes = sum(len(cuts.blocks) for cuts in own.frames.cuts)
        steps, others = np.zeros((2, changes, n, n)), np.zeros((changes, q, q))
        room = zeros(n + q, count), zeros(n, count), zeros(width, count)
        return cls(D, A, zeros(*D.shape), zeros(*D.shape), *room, steps, others)


def all_or(blocks: Numbers, count: int) -> Numbers | slice:
    """Return a slice where all blocks are meant: nothing is copied then.

    Parameters
    ----------
    blocks : array of int
        The numbers of some blocks.
    count : int
        How many there are.
    """
    return slice(None) if len(blocks) == count else blocks
