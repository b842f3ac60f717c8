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
    carried : array, shape (p + 1, n, s + 1, u), or None
        At each place, how the mean of the states that noise drives follows from the state at the start, and minus the
        rest of it; where the way back is wanted.
    quiet : array, shape (p + 1, q, q, u)
        How the other states follow from those at the start.
    own : array, shape (p + 1, n, n, u), or None
        The covariance at each place; where the way back is wanted.
    white : array, shape (p, w, s + 1, u)
        What whitened measurements say of the state at the start, and they themselves.
    gains : array, shape (p, w, n, u)
        What they add to the mean.
    deviations : array, shape (p, w, u)
        What they were divided by.
    last : array, shape (n, s + 1, u)
        What `carried` is at the end.
    noise : array, shape (n, n, u)
        What `own` is at the end.
    doubt : float
        What relative errors of covariances do to the log evidence.
    """

    motion: Motion
    steps: Numbers
    observed: Numbers
    carried: Array | None
    quiet: Array
    own: Array | None
    white: Array
    gains: Array
    deviations: Array
    last: Array
    noise: Array
    doubt: float

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, given its measurements, shape (u, s, s)."""
        n, size = self.motion.space.noisy, self.motion.space.size
        found = np.zeros((self.steps.shape[0], size, size))
        found[:, :n] = self.last[:, :-1].transpose(2, 0, 1)
        found[:, n:, n:] = self.quiet[-1].transpose(2, 0, 1)
        return found

    def pull(self, total: InsideSlopes, in_white: Array, in_last: Array, in_quiet: Array, in_noise: Array) -> Array:
        """Add derivatives in steps and rows; return those in values and in variances, shape (2, p, w, u).

        The logarithms of the deviations count minus one each.

        Parameters
        ----------
        total : InsideSlopes
            Grows.
        in_white, in_last, in_quiet, in_noise : arrays
            Derivatives in `white`, in `last`, in `quiet` at the end, and in `noise`, symmetric.
        """
        assert self.carried is not None  # noqa: S101
        assert self.own is not None  # noqa: S101
        motion, n = self.motion, self.motion.space.noisy
        count, places, width = self.observed.shape
        H = _last(motion.rows[self.observed])
        phi, phi_quiet = motion.noisy.transitions, motion.quiet.transitions
        in_H, found = np.zeros_like(H), np.zeros((2, places, width, count))
        in_steps = np.zeros((2, places, n, n, count))
        in_others = np.zeros((places, *in_quiet.shape))
        C, S = in_last, in_noise
        for i in range(places - 1, -1, -1):
            Phi = _last(phi[self.steps[:, i + 1]])
            kept_C, kept_S = self._undo(i)
            in_steps[0, i] = _mul("ikb,jkb->ijb", C, kept_C[-1]) + 2.0 * _mul("ijb,jkb->ikb", S, _mul2(Phi, kept_S[-1]))
            in_steps[1, i] = S
            C = _mul("jib,jkb->ikb", Phi, C)
            S = _mul("jib,jkb->ikb", Phi, _mul2(S, Phi))
            if len(in_quiet):
                moved = _last(phi_quiet[self.steps[:, i + 1]])
                in_others[i] = _mul("ikb,jkb->ijb", in_quiet, self.quiet[i])
                in_quiet = _mul("jib,jkb->ikb", moved, in_quiet)
            for j in range(width - 1, -1, -1):
                h, hq, zeta, kappa, sigma = H[i, j, :n], H[i, j, n:], self.white[i, j], self.gains[i, j], self.deviations[i, j]
                in_kappa = -np.einsum("ikb,kb->ib", C, zeta) - 2.0 * np.einsum("ijb,jb->ib", S, kappa)
                in_zeta = in_white[i, j] - np.einsum("ib,ikb->kb", kappa, C)
                in_iota, in_k = in_zeta / sigma, in_kappa / sigma
                lost = (in_kappa * kappa).sum(axis=0) + (in_zeta * zeta).sum(axis=0) + 1.0
                in_variance = -0.5 * lost / sigma**2
                in_k += in_variance * h
                own_C, own_S = kept_C[j], kept_S[j]
                in_H[i, j, :n] = (
                    in_variance * sigma * kappa
                    + np.einsum("ijb,jb->ib", own_S, in_k)
                    + np.einsum("ikb,kb->ib", own_C, in_iota)
                )
                both = in_k[:, None] * h
                S = S + 0.5 * (both + both.swapaxes(0, 1))
                C = C + h[:, None] * in_iota
                if len(hq):
                    in_H[i, j, n:] = np.einsum("ikb,kb->ib", self.quiet[i], in_iota[n:-1])
                    in_quiet = in_quiet + hq[:, None] * in_iota[n:-1]
                found[0, i, j], found[1, i, j] = in_iota[-1], in_variance
        numbers = self.steps[:, 1:].T.ravel()
        for whole, part in ((total.noisy, in_steps[0]), (total.noises, in_steps[1]), (total.quiet, in_others)):
            if part.size:
                flat = part.transpose(0, 3, 1, 2).reshape(len(numbers), *part.shape[1:3])
                add_to(whole, numbers, flat)
        flat_H = in_H.transpose(3, 0, 1, 2).reshape(count * places * width, -1)
        add_to(total.rows, self.observed.ravel(), flat_H)
        return found

    def _undo(self, i: int) -> tuple[list[Array], list[Array]]:
        """Return what was carried, and its covariance, before each measurement at a place and after all of them."""
        assert self.carried is not None  # noqa: S101
        assert self.own is not None  # noqa: S101
        C, S = [self.carried[i]], [self.own[i]]
        for kappa, zeta in zip(self.gains[i], self.white[i], strict=True):
            C.append(C[-1] - kappa[:, None] * zeta)
            S.append(S[-1] - kappa[:, None] * kappa)
        return C, S


def _last(values: Array) -> Array:
    """Return the first dimension as the last one."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def _mul(what: str, first: Array, second: Array) -> Array:
    return np.asarray(np.einsum(what, first, second))


def _mul2(first: Array, second: Array) -> Array:
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
    observed = np.where(observed >= 0, observed, len(motion.rows) - 1)
    H, y, R = _last(motion.rows[observed]), _last(values), _last(variance)
    C, S, A = np.zeros((n, size + 1, count)), np.zeros((n, n, count)), np.zeros((size - n, size - n, count))
    C[:, :n], A[:] = np.eye(n)[:, :, None], np.eye(size - n)[:, :, None]
    white, gains = np.zeros((places, width, size + 1, count)), np.zeros((places, width, n, count))
    deviations, quiet = np.zeros((places, width, count)), np.zeros((places + 1, *A.shape))
    kept_C = np.zeros((places + 1, *C.shape)) if keep else None
    kept_S = np.zeros((places + 1, *S.shape)) if keep else None
    largest, doubt = np.zeros((width, count)), 0.0
    for i in range(places + 1):
        if i:
            Phi = _last(motion.noisy.transitions[steps[:, i]])
            C = _mul2(Phi, C)
            S = np.einsum("ijb,kjb->ikb", _mul2(Phi, S), Phi) + _last(motion.noisy.noises[steps[:, i]])
            if len(A):
                A = _mul2(_last(motion.quiet.transitions[steps[:, i]]), A)
        quiet[i] = A
        if kept_C is not None and kept_S is not None:
            kept_C[i], kept_S[i] = C, S
        if i == places:
            break
        for j in range(width):
            h, hq = H[i, j, :n], H[i, j, n:]
            iota = np.einsum("ib,ikb->kb", h, C)
            if len(hq):
                iota[n:-1] += np.einsum("ib,ikb->kb", hq, A)
            iota[-1] += y[i, j]
            k = np.einsum("ijb,jb->ib", S, h)
            signal = (h * k).sum(axis=0)
            sigma = np.sqrt(signal + R[i, j])
            zeta, kappa = iota / sigma, k / sigma
            white[i, j], gains[i, j], deviations[i, j] = zeta, kappa, sigma
            C = C - kappa[:, None] * zeta
            S = S - kappa[:, None] * kappa
            largest[j] = np.maximum(largest[j], signal)
            doubt += float(np.sum(largest[j] / sigma**2))
    return Swept(motion, steps, observed, kept_C, quiet, kept_S, white, gains, deviations, C, S, doubt)
