"""A filter inside blocks, from measurement to measurement, all blocks at once, with the states of each place.

It starts from the state at the start of its block, which is not known but is not random either: means are a row of
numbers for that state, and what measurements add to it is left to those who have their values. Blocks come last in all
arrays. `framed` is faster where only measurements count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.inside import Motion

__all__ = ["Swept", "sweep"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Swept:
    """Blocks of a chunk with the rows of their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    observed : array of int, shape (u, p, w)
        The numbers of the observables; that of the row of zeros for none.
    carried : array, shape (p, n, s + n, u)
        At each place, before its measurements, how the mean of the states that noise drives follows from the state at
        the start, and their covariance.
    quiet : array, shape (p, q, q, u)
        How the other states follow from those at the start.
    white : array, shape (p, w, s + n, u)
        What whitened measurements say of the state at the start, and what they add to the mean.
    deviations : array, shape (p, w, u)
        What they were divided by.
    """

    observed: Numbers
    carried: Array
    quiet: Array
    white: Array
    deviations: Array


def _last(values: Array) -> Array:
    """Return the first dimension as the last one."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def _mul(first: Array, second: Array) -> Array:
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))


def sweep(motion: Motion, steps: Numbers, observed: Numbers, variance: Array) -> Swept:
    """Return blocks of a chunk.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps; that to the following block does not count.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; -1 for none.
    variance : array, shape (u, p, w)
        Of the noise of the measurements; one for none.
    """
    count, places, width = observed.shape
    n, s = motion.space.noisy, motion.space.size
    observed = np.where(observed >= 0, observed, len(motion.readings) - 1)
    H, R = _last(motion.readings[observed]), _last(variance)
    D, A = np.zeros((n, s + n, count)), np.zeros((s - n, s - n, count))
    D[:, :n], A[:] = np.eye(n)[:, :, None], np.eye(s - n)[:, :, None]
    white, deviations = np.zeros((places, width, s + n, count)), np.zeros((places, width, count))
    quiet, carried = np.zeros((places, *A.shape)), np.zeros((places, *D.shape))
    for i in range(places):
        if i:
            step = steps[:, i]
            Phi = _last(motion.noisy.transitions[step])
            D = _mul(Phi, D)
            D[:, s:] = np.einsum("ijb,kjb->ikb", D[:, s:], Phi)
            D[:, s:] += _last(motion.noisy.noises[step])
            if len(A):
                A = _mul(_last(motion.quiet.transitions[step]), A)
        quiet[i], carried[i] = A, D
        for j in range(width):
            h, hq = H[i, j, :n], H[i, j, n:]
            # How a measurement follows from the state at the start, and its covariance with the state.
            row = np.einsum("ib,ikb->kb", h, D)
            if len(hq):
                row[n:s] += np.einsum("ib,ikb->kb", hq, A)
            deviations[i, j] = np.sqrt((h * row[s:]).sum(axis=0) + R[i, j])
            row /= deviations[i, j]
            white[i, j] = row
            D = D - row[s:, None] * row
    return Swept(observed, carried, quiet, white, deviations)
