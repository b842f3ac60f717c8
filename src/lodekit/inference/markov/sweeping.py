"""Blocks of which each is one of its own: a filter inside each, from measurement to measurement, all blocks at once.

It starts from the state at the start of its block, which is not known but is not random either: means are numbers plus
a row of numbers for that state. So it whitens measurements as a Cholesky factor would, at a cost that does not grow
with the length of a block. Blocks come last in all arrays. States are those of each place, for those who look at them;
`framed` is faster where only measurements count.
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
    """Blocks of a chunk with their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; that of the row of zeros for none.
    carried : array, shape (p, n, s + 1 + n, u)
        At each place, how the mean of the states that noise drives follows from the state at the start, minus the rest
        of it, and their covariance; empty where the way back is not wanted.
    quiet : array, shape (p + 1, q, q, u)
        How the other states follow from those at the start.
    white : array, shape (p, w, s + 1 + n, u)
        What whitened measurements say of the state at the start, they themselves, and what they add to the mean.
    deviations : array, shape (p, w, u)
        What they were divided by.
    last : array, shape (n, s + 1 + n, u)
        What `carried` is at the end.
    doubt : float
        What relative errors of covariances do to the log evidence.
    """

    motion: Motion
    steps: Numbers
    observed: Numbers
    carried: Array
    quiet: Array
    white: Array
    deviations: Array
    last: Array
    doubt: float

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, given its measurements, shape (u, s, s)."""
        n, size = self.motion.space.noisy, self.motion.space.size
        found = np.zeros((self.steps.shape[0], size, size))
        found[:, :n] = self.last[:, :size].transpose(2, 0, 1)
        found[:, n:, n:] = self.quiet[-1].transpose(2, 0, 1)
        return found

    @property
    def noise(self) -> Array:
        """The covariance of the state at the end, given that at the start and the measurements, shape (u, n, n)."""
        return self.last[:, self.motion.space.size + 1 :].transpose(2, 0, 1)


def _last(values: Array) -> Array:
    """Return the first dimension as the last one."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def _mul(first: Array, second: Array) -> Array:
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))


def sweep(motion: Motion, steps: Numbers, observed: Numbers, values: Array, variance: Array, *, keep: bool) -> Swept:
    """Return blocks of a chunk.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps, that to the following block included.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; -1 for none.
    values, variance : arrays, shape (u, p, w)
        Of the measurements, and of their noise; zero and one for none.
    keep : bool
        Whether the way back is wanted.
    """
    count, places, width = observed.shape
    n, size = motion.space.noisy, motion.space.size
    s = size + 1
    observed = np.where(observed >= 0, observed, len(motion.readings) - 1)
    H, y, R = _last(motion.readings[observed]), _last(values), _last(variance)
    D, A = np.zeros((n, s + n, count)), np.zeros((size - n, size - n, count))
    D[:, :n], A[:] = np.eye(n)[:, :, None], np.eye(size - n)[:, :, None]
    white, deviations = np.zeros((places, width, s + n, count)), np.zeros((places, width, count))
    quiet, kept = np.zeros((places + 1, *A.shape)), np.zeros((places if keep else 0, *D.shape))
    largest, doubt, update = np.zeros((width, count)), 0.0, np.zeros_like(D)
    for i in range(places + 1):
        if i:
            step = steps[:, i]
            Phi = _last(motion.noisy.transitions[step])
            D = _mul(Phi, D)
            D[:, s:] = np.einsum("ijb,kjb->ikb", D[:, s:], Phi)
            D[:, s:] += _last(motion.noisy.noises[step])
            if len(A):
                A = _mul(_last(motion.quiet.transitions[step]), A)
        quiet[i] = A
        if i == places:
            break
        if keep:
            kept[i] = D
        for j in range(width):
            h, hq = H[i, j, :n], H[i, j, n:]
            # How a measurement follows from the state at the start, its value, and its covariance with the state.
            row = np.einsum("ib,ikb->kb", h, D)
            if len(hq):
                row[n:size] += np.einsum("ib,ikb->kb", hq, A)
            row[size] += y[i, j]
            signal = (h * row[s:]).sum(axis=0)
            sigma = np.sqrt(signal + R[i, j])
            row /= sigma
            white[i, j], deviations[i, j] = row, sigma
            np.multiply(row[s:, None], row, out=update)
            D -= update
            np.maximum(largest[j], signal, out=largest[j])
            doubt += float(np.sum(largest[j] / sigma**2))
    return Swept(motion, steps, observed, kept, quiet, white, deviations, D, doubt)
