"""Blocks of which each is one of its own: a filter inside each, from measurement to measurement, all blocks at once.

It starts from the state at the start of its block, which is not known but is not random either: means are numbers plus
a row of numbers for that state. So it whitens measurements as a Cholesky factor would, at a cost that does not grow
with the length of a block. Blocks come last in all arrays. The way back is the adjoint of the same recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.inside import InsideSlopes, Motion, add_to

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

    def pull(self, total: InsideSlopes, in_white: Array, in_last: Array, in_quiet: Array) -> Array:
        """Add derivatives in steps and rows; return those in values and in variances, shape (2, p, w, u).

        The logarithms of the deviations count minus one each.

        Parameters
        ----------
        total : InsideSlopes
            Grows.
        in_white, in_last, in_quiet : arrays
            Derivatives in `white` without what is added to the mean, in `last`, and in `quiet` at the end.
        """
        motion, n, s = self.motion, self.motion.space.noisy, self.motion.space.size + 1
        count, places, width = self.observed.shape
        H = _last(motion.readings[self.observed])
        in_H, found = np.zeros_like(H), np.zeros((2, places, width, count))
        in_steps, in_others = np.zeros((2, places, n, n, count)), np.zeros((places, *in_quiet.shape))
        D = in_last
        for i in range(places - 1, -1, -1):
            Phi = _last(motion.noisy.transitions[self.steps[:, i + 1]])
            before = [self.carried[i]]
            for xi in self.white[i]:
                before.append(before[-1] - xi[s:, None] * xi)
            # The covariance is symmetric, whatever was done to its two halves.
            half = 0.5 * (D[:, s:] + D[:, s:].swapaxes(0, 1))
            known = before[-1]
            in_steps[0, i] = np.einsum("ikb,jkb->ijb", D[:, :s], known[:, :s])
            in_steps[0, i] += 2.0 * _mul(half, _mul(Phi, known[:, s:]))
            in_steps[1, i] = half
            D = np.einsum("jib,jkb->ikb", Phi, np.concatenate([D[:, :s], _mul(half, Phi)], axis=1))
            if len(in_quiet):
                moved = _last(motion.quiet.transitions[self.steps[:, i + 1]])
                in_others[i] = np.einsum("ikb,jkb->ijb", in_quiet, self.quiet[i])
                in_quiet = np.einsum("jib,jkb->ikb", moved, in_quiet)
            for j in range(width - 1, -1, -1):
                h, hq, xi, sigma = H[i, j, :n], H[i, j, n:], self.white[i, j], self.deviations[i, j]
                in_xi = -np.einsum("ib,ikb->kb", xi[s:], D)
                in_xi[:s] += in_white[i, j]
                in_xi[s:] -= np.einsum("ikb,kb->ib", D, xi)
                in_row = in_xi / sigma
                in_variance = -0.5 * ((in_xi * xi).sum(axis=0) + 1.0) / sigma**2
                in_row[s:] += in_variance * h
                in_H[i, j, :n] = np.einsum("ikb,kb->ib", before[j], in_row) + in_variance * sigma * xi[s:]
                D += h[:, None] * in_row
                if len(hq):
                    in_H[i, j, n:] = np.einsum("ikb,kb->ib", self.quiet[i], in_row[n : s - 1])
                    in_quiet = in_quiet + hq[:, None] * in_row[n : s - 1]
                found[0, i, j], found[1, i, j] = in_row[s - 1], in_variance
        self._add(total, in_steps, in_others, in_H)
        return found

    def _add(self, total: InsideSlopes, in_steps: Array, in_others: Array, in_H: Array) -> None:
        numbers = self.steps[:, 1:].T.ravel()
        for whole, part in ((total.noisy, in_steps[0]), (total.noises, in_steps[1]), (total.quiet, in_others)):
            if part.size:
                add_to(whole, numbers, part.transpose(0, 3, 1, 2).reshape(len(numbers), *part.shape[1:3]))
        add_to(total.readings, self.observed.ravel(), in_H.transpose(3, 0, 1, 2).reshape(self.observed.size, -1))


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
