"""Blocks of which each is one of its own: a filter inside each, from measurement to measurement, all blocks at once.

It starts from the state at the start of its block, which is not known but is not random either: means are numbers plus
a row of numbers for that state. So it whitens measurements as a Cholesky factor would, at a cost that does not grow
with the length of a block. States are seen from frames in which they do not move. Blocks come last in all arrays. The
way back is the adjoint of the same recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.frames import Cuts, Frames, make_frames
from lodekit.inference.markov.inside import InsideSlopes, Total, add_to
from lodekit.inference.markov.states import Space

__all__ = ["Swept", "sweep"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So many measurements tell how much noise they have.
_SOME = 2000


@dataclass(frozen=True)
class Swept:
    """Blocks of a chunk with their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    space : Space
    frames : Frames
    observed : array of int, shape (p, w, u)
        The numbers of the observables; that of the row of zeros for none.
    rows : array, shape (w, s, p, u)
        Of the measurements, in the frames of their places.
    past : tuple of arrays, shapes (n, s + 1 + n, c)
        Before each change of frames, how the mean of the states that noise drives follows from the state at the start,
        minus the rest of it, and their covariance.
    quiet : array, shape (p + 1, q, q, u)
        How the other states follow from those at the start.
    white : array, shape (p, w, s + 1 + n, u)
        What whitened measurements say of the state at the start, they themselves, and what they add to the mean.
    deviations : array, shape (p, w, u)
        What they were divided by.
    last : array, shape (n, s + 1 + n, u)
        The same at the end.
    doubt : float
        What relative errors of covariances do to the log evidence.
    """

    space: Space
    frames: Frames
    observed: Numbers
    rows: Array
    past: tuple[Array, ...]
    quiet: Array
    white: Array
    deviations: Array
    last: Array
    doubt: float

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, given its measurements, shape (u, s, s)."""
        n, size = self.space.noisy, self.space.size
        found = np.zeros((self.last.shape[-1], size, size))
        found[:, :n] = self.last[:, :size].transpose(2, 0, 1)
        found[:, n:, n:] = self.quiet[-1].transpose(2, 0, 1)
        return found

    @property
    def noise(self) -> Array:
        """The covariance of the state at the end, given that at the start and the measurements, shape (u, n, n)."""
        return self.last[:, self.space.size + 1 :].transpose(2, 0, 1)

    @property
    def count(self) -> int:
        """About how many numbers it has."""
        parts = self.rows, self.white, self.deviations, self.quiet, self.observed, *self.past
        return sum(part.size for part in parts)

    def pull(self, total: Total, in_white: Array, in_last: Array, in_quiet: Array) -> Array:
        """Add derivatives in the system; return those in values and in variances, shape (2, p, w, u).

        The logarithms of the deviations count minus one each. Rows are overwritten by derivatives: blocks are used up.

        Parameters
        ----------
        total : Total
            Grows.
        in_white, in_last, in_quiet : arrays
            Derivatives in `white` without what is added to the mean, in `last`, and in `quiet` at the end.
        """
        n, s, q = self.space.noisy, self.space.size + 1, len(in_quiet)
        places, width, count = self.observed.shape
        series = self.frames.series
        found, noises = np.zeros((2, places, width, count)), self.frames.noises(self.frames.weights())
        # Numbers that were used make room for derivatives in them.
        in_rows, in_noises = self.rows, noises
        changes = sum(len(cuts.blocks) for cuts in self.frames.cuts)
        in_steps, in_others = np.zeros((2, changes, n, n)), np.zeros((changes, q, q))
        D, A, update, known = in_last, in_quiet, np.zeros_like(in_last), np.zeros_like(in_last)
        for i in range(places - 1, -1, -1):
            # Inside a frame what was known before is what is known without what came since: nothing has moved.
            for (row, start, stop), first in zip(series.ranges if i + 1 < places else (), series.edges, strict=False):
                own = slice(first, first + stop - start)
                known[row, s + start : s + stop] -= noises[own, i + 1]
                in_noises[own, i + 1] = D[row, s + start : s + stop]
            if len(self.frames.cuts[i + 1].blocks):
                known[..., _all_or(self.frames.cuts[i + 1].blocks, count)] = self.past[i + 1]
                D, A = self._pull_change(i + 1, D, A, in_steps, in_others)
            for j in range(width - 1, -1, -1):
                h, xi, sigma = self.rows[j, :, i].copy(), self.white[i, j], self.deviations[i, j]
                known += np.multiply(xi[s:, None], xi, out=update)
                in_xi = np.einsum("ib,ikb->kb", xi[s:], D)
                np.negative(in_xi, out=in_xi)
                in_xi[:s] += in_white[i, j]
                in_xi[s:] -= np.einsum("ikb,kb->ib", D, xi)
                in_variance = -0.5 * (np.einsum("kb,kb->b", in_xi, xi) + 1.0) / sigma**2
                in_xi /= sigma
                found[0, i, j], found[1, i, j] = in_xi[s - 1], in_variance
                in_xi[s:] += in_variance * h[:n]
                in_rows[j, :n, i] = np.einsum("ikb,kb->ib", known, in_xi) + (in_variance * sigma) * xi[s:]
                D += np.multiply(h[:n, None], in_xi, out=update)
                if q:
                    in_rows[j, n:, i] = np.einsum("ikb,kb->ib", self.quiet[i], in_xi[n : s - 1])
                    A = A + h[n:, None] * in_xi[n : s - 1]
        self._add_changes(total, in_steps, in_others)
        weights = self.frames.weights()
        self._add_series(total, weights, in_rows, self.frames.pull_noises(weights, in_noises))
        return found

    def _pull_change(self, place: int, D: Array, A: Array, in_steps: Array, in_others: Array) -> tuple[Array, Array]:
        """Return derivatives before frames change at a place, from those behind."""
        cuts, motion, s = self.frames.cuts[place], self.frames.motion, self.space.size + 1
        blocks, before = _all_or(cuts.blocks, D.shape[-1]), self.past[place]
        Phi, own = _last(motion.noisy.transitions[cuts.gone]), D[..., blocks]
        # The covariance is symmetric, whatever was done to its two halves.
        half = 0.5 * (own[:, s:] + own[:, s:].swapaxes(0, 1))
        in_transition = np.einsum("ikb,jkb->ijb", own[:, :s], before[:, :s])
        in_transition += 2.0 * _mul(half, _mul(Phi, before[:, s:]))
        in_steps[0, cuts.where], in_steps[1, cuts.where] = in_transition.transpose(2, 0, 1), half.transpose(2, 0, 1)
        D[..., blocks] = np.einsum("jib,jkb->ikb", Phi, np.concatenate([own[:, :s], _mul(half, Phi)], axis=1))
        if len(A):
            moved, own = _last(motion.quiet.transitions[cuts.gone]), A[..., blocks]
            in_others[cuts.where] = np.einsum("ikb,jkb->bij", own, self.quiet[place - 1][..., blocks])
            A = A.copy()
            A[..., blocks] = np.einsum("jib,jkb->ikb", moved, own)
        return D, A

    def _add_changes(self, total: Total, in_steps: Array, in_others: Array) -> None:
        frames, inner = self.frames, InsideSlopes.of(self.frames.motion)
        gone = np.concatenate([cuts.gone for cuts in frames.cuts])
        add_to(inner.noisy, gone, in_steps[0])
        if in_others.size:
            add_to(inner.quiet, gone, in_others)
        total.add(frames.motion, inner)
        in_noises = np.zeros_like(frames.steps.noises)
        add_to(in_noises, np.concatenate([cuts.last for cuts in frames.cuts]), in_steps[1])
        in_matrix, in_density = frames.steps.pull(np.zeros_like(in_noises), in_noises)
        total.matrix[: len(in_matrix), : len(in_matrix)] += in_matrix
        total.density += in_density

    def _add_series(self, total: Total, weights: Array, in_rows: Array, in_noises: Array) -> None:
        series = self.frames.series
        in_terms = np.zeros_like(series.rows)
        for own, seen in zip(in_rows, self.observed.swapaxes(0, 1), strict=True):
            for number in _numbers(seen, in_terms.shape[1] - 1):
                mask = seen == number
                part = own if mask.all() else own * mask
                in_terms[:, number] += weights @ part.reshape(len(own), -1).T
        total.add_parts(*series.pull(in_terms, in_noises))


def _numbers(seen: Numbers, nothing: int) -> list[int]:
    """Return the observables that were seen."""
    return np.flatnonzero(np.bincount(seen.ravel(), minlength=nothing)[:nothing]).tolist()


def _last(values: Array) -> Array:
    """Return the first dimension as the last one."""
    return np.ascontiguousarray(values.transpose(*range(1, values.ndim), 0))


def _mul(first: Array, second: Array) -> Array:
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))


def _all_or(blocks: Numbers, count: int) -> Numbers | slice:
    """Return a slice where all blocks are meant: nothing is copied then."""
    return slice(None) if len(blocks) == count else blocks


def _rows_of(frames: Frames, weights: Array, observed: Numbers) -> Array:
    """Return the rows of measurements in the frames of their places, shape (w, s, p, u).

    Parameters
    ----------
    frames : Frames
    weights : array
        Of the frames.
    observed : array of int, shape (p, w, u)
        The numbers of the observables; that of the row of zeros for none.
    """
    places, width, count = observed.shape
    _, nothing, size = frames.series.rows.shape
    found = np.zeros((width, size, places, count))
    for own, seen in zip(found, observed.swapaxes(0, 1), strict=True):
        for number in _numbers(seen, nothing - 1):
            mask, rows = seen == number, frames.series.rows[:, number].T
            if mask.all():
                np.matmul(rows, weights, out=own.reshape(size, -1))
            else:
                own += (rows @ weights).reshape(own.shape) * mask
    return found


def sweep(space: Space, lengths: Array, steps: Numbers, observed: Numbers, values: Array, variance: Array) -> Swept:
    """Return blocks of a chunk.

    Parameters
    ----------
    space : Space
    lengths : array
        All different lengths of steps.
    steps : array of int, shape (u, p + 1)
        The numbers of the steps, that to the following block included.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; -1 for none.
    values, variance : arrays, shape (u, p, w)
        Of the measurements, and of their noise; zero and one for none.
    """
    count, places, width = observed.shape
    n, size = space.noisy, space.size
    s = size + 1
    frames = make_frames(space, lengths, steps, _quiet(observed, variance, len(space.readings)))
    series = frames.series
    observed = _last(np.where(observed >= 0, observed, len(space.readings)))
    weights = frames.weights()
    H, noises, y, R = _rows_of(frames, weights, observed), frames.noises(weights), _last(values), _last(variance)
    D, A = np.zeros((n, s + n, count)), np.zeros((size - n, size - n, count))
    D[:, :n], A[:] = np.eye(n)[:, :, None], np.eye(size - n)[:, :, None]
    white, squares = np.zeros((places, width, s + n, count)), np.zeros((places, width, count))
    quiet, past, variances = np.zeros((places + 1, *A.shape)), [], np.zeros((places, n, count))
    update, diagonal = np.zeros_like(D), np.einsum("iib->ib", D[:, s:])
    for i in range(places + 1):
        past.append(D[..., _all_or(frames.cuts[i].blocks, count)].copy())
        if len(frames.cuts[i].blocks):
            A = _change(frames, frames.cuts[i], D, A)
        quiet[i] = A
        if i == places:
            break
        for (k, start, stop), first in zip(series.ranges, series.edges, strict=False):
            D[k, s + start : s + stop] += noises[first : first + stop - start, i]
        variances[i] = diagonal
        for j in range(width):
            h, hq = H[j, :n, i], H[j, n:, i]
            # How a measurement follows from the state at the start, its value, and its covariance with the state.
            row = np.einsum("ib,ikb->kb", h, D, out=white[i, j])
            if len(hq):
                row[n:size] += np.einsum("ib,ikb->kb", hq, A)
            row[size] += y[i, j]
            squares[i, j] = np.einsum("ib,ib->b", h, row[s:]) + R[i, j]
            row /= np.sqrt(squares[i, j])
            D -= np.multiply(row[s:, None], row, out=update)
    doubt = _doubt(H[:, :n], variances, squares)
    return Swept(space, frames, observed, H, tuple(past), quiet, white, np.sqrt(squares), D, doubt)


def _quiet(observed: Numbers, variance: Array, count: int) -> Array:
    """Return about the smallest variance of the noise of each observable; exact values are few, and do not count."""
    every = max(1, observed.size // _SOME)
    seen, own = observed.ravel()[::every], variance.ravel()[::every]
    found = np.full(count, np.inf)
    for number in _numbers(np.where(seen >= 0, seen, count), count):
        found[number] = np.quantile(own[seen == number], 0.1)
    return found


def _doubt(rows: Array, variances: Array, squares: Array) -> float:
    """Return what relative errors of covariances do to the log evidence: entries err as the deviations are large."""
    deviations = np.sqrt(np.maximum(variances, 0.0))
    signal = np.einsum("wipb,pib->pwb", np.abs(rows), deviations) ** 2
    return float(np.sum(np.maximum.accumulate(signal, axis=0) / squares))


def _change(frames: Frames, cuts: Cuts, D: Array, A: Array) -> Array:
    """Move what is known of states to new frames, for some blocks; return A."""
    motion, s = frames.motion, D.shape[1] - len(D)
    blocks = _all_or(cuts.blocks, D.shape[-1])
    Phi = _last(motion.noisy.transitions[cuts.gone])
    moved = _mul(Phi, D[..., blocks])
    moved[:, s:] = np.einsum("ijb,kjb->ikb", moved[:, s:], Phi)
    moved[:, s:] += _last(frames.steps.noises[cuts.last])
    D[..., blocks] = moved
    if len(A):
        A = A.copy()
        A[..., blocks] = _mul(_last(motion.quiet.transitions[cuts.gone]), A[..., blocks])
    return A
