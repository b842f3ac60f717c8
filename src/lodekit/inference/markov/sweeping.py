"""A filter inside blocks, from measurement to measurement, all blocks at once, with the states of each place.

It starts from the state at the start of its block, which is not known but is not random either: means are a row of
numbers for that state, and what measurements add to it is left to those who have their values. Blocks come last in all
arrays. `framed` is faster where only measurements count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.lanes import multiply, put_last

__all__ = ["Swept", "sweep"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Swept:
    """A place of the blocks of a chunk, with the rows of its measurements whitened, given the state at the start.

    Parameters
    ----------
    known : array, shape (n, s + n, u)
        After its measurements, how the mean of the states that noise drives follows from the state at the start, and
        their covariance.
    quiet : array, shape (q, q, u)
        How the other states follow from those at the start.
    white : array, shape (w, s + n, u)
        What whitened measurements say of the state at the start, and what they add to the mean.
    deviations : array, shape (w, u)
        What they were divided by.
    """

    known: Array
    quiet: Array
    white: Array
    deviations: Array


def sweep(motion: Motion, steps: Numbers, observed: Numbers, variance: Array) -> Iterator[Swept]:
    """Yield the places of the blocks of a chunk.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps; that to the following block does not count.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; that of the row of zeros for none.
    variance : array, shape (u, p, w)
        Of the noise of the measurements; one for none.
    """
    count, places, width = observed.shape
    n, s = motion.space.noisy, motion.space.size
    D, A = np.zeros((n, s + n, count)), np.zeros((s - n, s - n, count))
    D[:, :n], A[:], update = np.eye(n)[:, :, None], np.eye(s - n)[:, :, None], np.zeros_like(D)
    for i in range(places):
        if i:
            step = steps[:, i]
            Phi = put_last(motion.noisy.transitions[step])
            D = multiply(Phi, D)
            D[:, s:] = np.einsum("ijb,kjb->ikb", D[:, s:], Phi)
            D[:, s:] += put_last(motion.noisy.noises[step])
            if len(A):
                A = multiply(put_last(motion.quiet.transitions[step]), A)
        H, R = put_last(motion.readings[observed[:, i]]), put_last(variance[:, i])
        white, deviations = np.zeros((width, s + n, count)), np.zeros((width, count))
        for j, (row, h) in enumerate(zip(white, H, strict=True)):
            # How a measurement follows from the state at the start, and its covariance with the state.
            np.einsum("ib,ikb->kb", h[:n], D, out=row)
            if len(A):
                row[n:s] += np.einsum("ib,ikb->kb", h[n:], A)
            deviations[j] = np.sqrt((h[:n] * row[s:]).sum(axis=0) + R[j])
            np.divide(row, deviations[j], out=row)
            D -= np.multiply(row[s:, None], row, out=update)
        yield Swept(D, A, white, deviations)
