"""Measurements inside blocks taken one after the other, all blocks at once: the way forward of `framed`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.framed import GROUP, Framed, all_or
from lodekit.inference.markov.frames import Column, Cuts, Frames, make_frames
from lodekit.inference.markov.lanes import (
    Places,
    empty,
    multiply,
    put_first,
    put_last,
    put_side_by_side,
    zeros,
)
from lodekit.inference.markov.states import Space

__all__ = ["sweep_framed"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So many measurements tell how much noise they have.
_SOME = 2000


def sweep_framed(space: Space, own: Places, values: Array, variance: Array) -> Framed:
    """Return blocks of a chunk.

    Parameters
    ----------
    space : Space
    own : Places
    values : array, shape (b, p, w)
        Of the measurements; zero for none.
    variance : array, shape (m,)
        Of the noise of all measurements there are.
    """
    places, width, count = own.observed.shape
    n, q, R = space.noisy, space.size - space.noisy, np.append(variance, 1.0)[own.numbers]
    frames, y = make_frames(space, own, _quiet(own.observed, R, len(space.readings))), put_side_by_side(values)
    taken = _Taken.start(n, q, count)
    white, scales = empty(places, width, taken.D.shape[1], count), empty(places, width, count)
    quiet, past, largest, doubt = zeros(places + 1, q, q, count), {}, np.zeros((width, count)), 0.0
    readings: list[list[Array]] = []
    for i in range(places + 1):
        if i % GROUP == 0 and i < places:
            group = slice(i, min(i + GROUP, places))
            readings.append(frames.part(group.start, group.stop).readings(own.observed[group]))
        if len(frames.cuts[i].blocks):
            past[i], taken.A = _change(frames, frames.cuts[i], taken.D, taken.A)
        quiet[i] = taken.A
        if i == places:
            break
        deviations = taken.deviations if i == group.start else None
        for j, (column, rows) in enumerate(zip(frames.columns, readings[-1], strict=True)):
            row = rows[:, i - group.start]
            taken.take(column, row, y[i, j], R[i, j], white[i, j], scales[i, j])
            if deviations is not None:
                # Entries of covariances err as the deviations are large, and these grow through a frame.
                read = deviations[column.states]
                signal = np.einsum("ib,ib->b", np.abs(row[: len(read)]), read) ** 2
                np.maximum(signal, largest[j], out=largest[j])
                often = group.stop - group.start
                doubt += often * float(np.einsum("b,b,b->", largest[j], scales[i, j], scales[i, j]))
    return Framed(space, own, frames, readings, past, quiet, white, scales, taken.D, doubt)


@dataclass
class _Taken:
    """What is known of states when some measurements were taken.

    Parameters
    ----------
    D : array, shape (n, s + 1 + n, u)
        How the mean of the states that noise drives follows from the state at the start, minus the rest of it, and
        their covariance.
    A : array, shape (q, q, u)
        How the other states follow from those at the start.
    update : array, shape (n, s + 1 + n, u)
        Room for what changes D.
    """

    D: Array
    A: Array
    update: Array

    @classmethod
    def start(cls, n: int, q: int, count: int) -> _Taken:
        """Return what is known at the start of so many blocks.

        Parameters
        ----------
        n, q, count : int
            How many states noise drives, how many others and how many blocks there are.
        """
        D, A = zeros(n, n + q + 1 + n, count), zeros(q, q, count)
        D[:, :n], A[:] = np.eye(n)[:, :, None], np.eye(q)[:, :, None]
        return cls(D, A, empty(*D.shape))

    @property
    def deviations(self) -> Array:
        """Those of the states that noise drives, shape (n, u)."""
        variances = np.einsum("iib->ib", self.D[:, self.D.shape[1] - len(self.D) :])
        return np.asarray(np.sqrt(np.abs(variances)))

    def take(self, column: Column, own: Array, y: Array, variance: Array, white: Array, scale: Array) -> None:
        """Take a measurement of each block.

        Parameters
        ----------
        column : Column
        own : array, shape (r, u)
            What it reads.
        y, variance : arrays, shape (u,)
            Its value, and the variance of its noise.
        white, scale : arrays, shapes (s + 1 + n, u) and (u,)
            Where `Framed.white` and `Framed.scales` are to be.
        """
        n, q, first = len(self.D), len(self.A), column.states.stop - column.states.start
        h, hq, noise = own[:first], own[first : first + q], own[first + q :]
        # How a measurement follows from the state at the start, its value, and its covariance with the state.
        np.einsum("ib,ikb->kb", h, self.D[column.states], out=white)
        if q:
            white[n : n + q] += np.einsum("ib,ikb->kb", hq, self.A)
        white[n + q] += y
        mixed = white[n + q + 1 :]
        mixed[column.noise] += noise
        # One over the deviation.
        np.einsum("ib,ib->b", h, mixed[column.states], out=scale)
        scale += variance
        white *= np.divide(1.0, np.sqrt(scale, out=scale), out=scale)
        self.D -= np.multiply(mixed[:, None], white, out=self.update)


def _quiet(observed: Numbers, variance: Array, count: int) -> Array:
    """Return about the smallest variance of the noise of each observable; exact values are few, and do not count."""
    every = max(1, observed.size // _SOME)
    seen, own = observed.ravel()[::every], variance.ravel()[::every]
    found = np.full(count, np.inf)
    for number in np.unique(seen[seen >= 0]):
        found[number] = np.quantile(own[seen == number], 0.1)
    return found


def _change(frames: Frames, cuts: Cuts, D: Array, A: Array) -> tuple[Array, Array]:
    """Move what is known of states to new frames, for some blocks; return what was known of these, and A."""
    motion, s, blocks = frames.motion, D.shape[1] - len(D), all_or(cuts.blocks, D.shape[-1])
    # Products of many small matrices: blocks first.
    Phi, before = motion.noisy.transitions[cuts.gone], put_first(D[..., blocks])
    moved = Phi @ before
    moved[..., s:] = moved[..., s:] @ Phi.swapaxes(-1, -2)
    moved[..., s:] += motion.noisy.noises[cuts.gone]
    D[..., blocks] = np.moveaxis(moved, 0, -1)
    if len(A):
        A = A.copy()
        A[..., blocks] = multiply(put_last(motion.quiet.transitions[cuts.gone]), A[..., blocks])
    return before, A
