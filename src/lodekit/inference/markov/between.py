"""Between blocks only the state is carried: a square-root filter forward, scores and their information backward.

A block says of the state x at its start what ``c = R x + noise`` says, with noise of unit variance, and moves it by
``T x + g + noise``. Covariances are kept as roots: noise may be a millionth of the signal, and states without noise
have singular covariances. Backward go the derivative r of the log evidence in the mean of a state, and the
information N that all later data have of it; both are sums without subtractions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["Carried", "Smoothed", "carry", "inform", "smooth"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Roots that change by no more than rounding have settled.
_SETTLED = 4e-16


@dataclass(frozen=True)
class Carried:
    """What does not depend on values, for each block, shapes (b, s, s).

    Parameters
    ----------
    root : array
        Of the covariance of the state at the start of a block, given all blocks before it.
    later : array
        The same, given this block, too.
    gain : array
        What ``c - R m`` is multiplied by to be added to the mean.
    unseen : array
        A root E with ``E E' = (1 + R P R')^-1``.
    closed : array
        How the mean at the start of a block moves to the next one, ``T (1 - gain R)``.
    half_log : array, shape (b,)
        Half the logarithm of the determinant of ``1 + R P R'``.
    """

    root: Array
    later: Array
    gain: Array
    unseen: Array
    closed: Array
    half_log: Array


def carry(start: Array, patterns: Numbers, R: Array, T: Array, V: Array) -> Carried:
    """Return the filter of covariances through all blocks.

    Parameters
    ----------
    start : array, shape (s, s)
        A root of the covariance at the start of the first block.
    patterns : array of int, shape (b,)
        The pattern of each block.
    R, T, V : arrays, shapes (u, s, s)
        Of each pattern: what it says of the state, how it moves it, and a root of the noise of that.
    """
    blocks, size = len(patterns), len(start)
    root, later = np.empty((blocks, size, size)), np.empty((blocks, size, size))
    gain, unseen = np.empty((blocks, size, size)), np.empty((blocks, size, size))
    half_log, now, last, settled = np.empty(blocks), start, -1, False
    stacked = np.zeros((2 * size, size), order="F")
    stacked[size:] = np.eye(size)
    moved = np.zeros((2 * size, size), order="F")
    turned_V = V.swapaxes(-1, -2)
    for b, u in enumerate(patterns.tolist()):
        settled = settled and u == last
        if settled:
            for part in (root, later, gain, unseen):
                part[b] = part[b - 1]
            half_log[b] = half_log[b - 1]
            continue
        stacked[:size] = R[u] @ now
        Q, U = _factorize(stacked)
        found, _ = lapack.dtrtrs(U, now.T, trans=1)
        root[b], later[b] = now, found.T
        gain[b], unseen[b] = found.T @ Q[:size, :size].T, Q[:size, size:]
        half_log[b] = float(np.log(np.abs(np.diag(U))).sum())
        moved[:size] = (T[u] @ found.T).T
        moved[size:] = turned_V[u]
        (factor, _, _, _) = lapack.dgeqrf(moved)
        # Signs of rows are a matter of taste; with these, a root that settles can be seen to.
        following = (np.triu(factor[:size]) * np.where(np.diag(factor) < 0, -1.0, 1.0)[:, None]).T
        settled = u == last and bool(np.abs(following - now).max(initial=0.0) <= _SETTLED * np.abs(now).max(initial=0.0))
        now, last = following, u
    closed = T[patterns] @ (np.eye(size) - gain @ R[patterns])
    return Carried(root, later, gain, unseen, closed, half_log)


def _factorize(matrix: Array) -> tuple[Array, Array]:
    """Return a complete QR factorization of a matrix, shape (2 s, s): Q of shape (2 s, 2 s), and R of (s, s)."""
    rows, size = matrix.shape
    factor, tau, _, _ = lapack.dgeqrf(matrix)
    whole = np.zeros((rows, rows), order="F")
    whole[:, :size] = factor
    Q, _, _ = lapack.dorgqr(whole, tau)
    return Q, np.triu(factor[:size])


@dataclass(frozen=True)
class Smoothed:
    """What depends on values, for each block and k sets of values at once.

    Parameters
    ----------
    seen : array, shape (b, s, k)
        ``c - R m``.
    updated : array, shape (b, s, k)
        The mean of the state at the start of a block, given this and all blocks before it.
    scores : array, shape (b + 1, s, k)
        Derivative of the log evidence in the mean of the state at the start of each block; zeros after the last.
    means : array, shape (b, s, k)
        Of the state at the start of each block, given everything.
    """

    seen: Array
    updated: Array
    scores: Array
    means: Array


def smooth(carried: Carried, patterns: Numbers, R: Array, T: Array, c: Array, g: Array) -> Smoothed:
    """Return means through all blocks and back.

    Parameters
    ----------
    carried : Carried
    patterns, R, T
        As in `carry`.
    c, g : arrays, shape (b, s, k)
        What each block says of the state, and what it adds to it.
    """
    blocks, size, count = c.shape
    seen, updated = np.empty(c.shape), np.empty(c.shape)
    mean = np.zeros((size, count))
    own_R, own_T, gain = list(R), list(T), carried.gain
    for b, u in enumerate(patterns.tolist()):
        d = c[b] - own_R[u] @ mean
        after = mean + gain[b] @ d
        seen[b], updated[b] = d, after
        mean = own_T[u] @ after + g[b]
    weighed = carried.unseen.swapaxes(-1, -2) @ seen
    told = R[patterns].swapaxes(-1, -2) @ (carried.unseen @ weighed)
    scores = np.zeros((blocks + 1, size, count))
    back = carried.closed.swapaxes(-1, -2)
    for b in range(blocks - 1, -1, -1):
        scores[b] = told[b] + back[b] @ scores[b + 1]
    ahead = T[patterns].swapaxes(-1, -2) @ scores[1:]
    means = updated + carried.later @ (carried.later.swapaxes(-1, -2) @ ahead)
    return Smoothed(seen, updated, scores, means)


def inform(carried: Carried, patterns: Numbers, R: Array) -> Array:
    """Return the information that all later data have of the state at the start of each block, shape (b + 1, s, s).

    Parameters
    ----------
    carried : Carried
    patterns, R
        As in `carry`.
    """
    blocks, size = len(patterns), R.shape[-1]
    half = carried.unseen.swapaxes(-1, -2) @ R[patterns]
    own = half.swapaxes(-1, -2) @ half
    found = np.zeros((blocks + 1, size, size))
    closed = carried.closed
    for b in range(blocks - 1, -1, -1):
        found[b] = own[b] + closed[b].T @ found[b + 1] @ closed[b]
    return found
