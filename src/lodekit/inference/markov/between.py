"""Between blocks only the state is carried: a square-root filter forward, scores and their information backward.

A block says of the state x at its start what ``c = R x + noise`` says, with noise of unit variance, and moves it by
``T x + g + noise``. Covariances are kept as roots: noise may be a millionth of the signal, and states without noise
have singular covariances. Backward go the derivative r of the log evidence in the mean of a state, and the
information N that all later data have of it; both are sums without subtractions. What these say of a state by
themselves, whatever was known before, is kept as a root as well: with it covariances given everything are squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["Border", "Carried", "Smoothed", "carry", "inform", "look_back", "smooth"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Roots that change by no more than rounding have settled.
_SETTLED = 4e-16


@dataclass(frozen=True)
class Border:
    """What the rest of a record says at both ends of a piece of it; nothing where the piece is all of it.

    Parameters
    ----------
    root : array, shape (s, s), optional
        Of the covariance of the state at the start, given all that is before; that of the prior where nobody says.
    mean : array, shape (s, 1), optional
        Of that state; zeros where nobody says.
    score : array, shape (s, 1), optional
        The derivative of the log evidence in the mean of the state at the end; zeros where nobody says.
    information : array, shape (s, s), optional
        What all that follows knows of that state beyond all before; zeros where nobody says.
    later : array, shape (s, s), optional
        A root B of what all that follows says of that state by itself, ``B'B``; zeros where nobody says.
    """

    root: Array | None = None
    mean: Array | None = None
    score: Array | None = None
    information: Array | None = None
    later: Array | None = None


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
    share : array
        R times `later`: a root of what the block knows already, ``R P R' (1 + R P R')^-1``.
    unseen : array
        A root E of what it does not know, ``E E' = (1 + R P R')^-1``.
    closed : array
        How the mean at the start of a block moves to the next one, ``T (1 - gain R)``.
    half_log : array, shape (b,)
        Half the logarithm of the determinant of ``1 + R P R'``.
    last : array, shape (s, s)
        A root of the covariance of the state after the last block, given all blocks.
    """

    root: Array
    later: Array
    gain: Array
    share: Array
    unseen: Array
    closed: Array
    half_log: Array
    last: Array


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
    roots, now, last, settled = np.empty((blocks, size, size)), start, -1, False
    first: list[int] = []
    stacked, moved = np.zeros((2 * size, size), order="F"), np.zeros((2 * size, size), order="F")
    unit, upper = np.eye(size), np.asfortranarray(np.triu(np.ones((size, size))))
    # What is said and where it goes are one product, and noises stand as they are needed.
    both, turned = np.concatenate([R, T], axis=1), V.swapaxes(-1, -2)
    for b, u in enumerate(patterns.tolist() if size else ()):
        settled = settled and u == last
        if not settled:
            roots[len(first)] = now
            first.append(b)
            product = both[u].dot(now)
            stacked[:size], stacked[size:] = product[:size], unit
            factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
            moved[:size], moved[size:] = lapack.dtrtrs(factor[:size], product[size:].T, trans=1)[0], turned[u]
            following = (lapack.dgeqrf(moved, overwrite_a=1)[0][:size] * upper).T
            settled = u == last and _is_same(following, now)
            now, last = following, u
    return _finish(roots[: len(first)], np.array(first, dtype=np.intp), patterns, R, T, now)


def _finish(roots: Array, first: Numbers, patterns: Numbers, R: Array, T: Array, last: Array) -> Carried:
    """Return all that follows from roots at the start of the first of some equal blocks each."""
    blocks, size = len(patterns), R.shape[-1]
    if not size:
        none = np.zeros((blocks, 0, 0))
        return Carried(none, none, none, none, none, none, np.zeros(blocks), last)
    own, unit = R[patterns[first]], np.eye(size)
    both = np.concatenate([own @ roots, np.broadcast_to(unit, own.shape)], axis=1)
    # [R P^(1/2), 1] = Q U: the lower part of Q is the inverse of U, and what is orthogonal to Q is not seen.
    Q, U = np.linalg.qr(both, mode="complete")
    later = roots @ Q[:, size:, :size]
    share, unseen = Q[:, :size, :size], Q[:, :size, size:]
    gain = later @ share.swapaxes(-1, -2)
    closed = T[patterns[first]] @ (unit - gain @ own)
    half_log = np.log(np.abs(np.einsum("bii->bi", U[:, :size]))).sum(axis=1)
    which = np.repeat(np.arange(len(first)), np.diff(first, append=blocks))
    found = (roots[which], later[which], gain[which], share[which], unseen[which], closed[which], half_log[which])
    return Carried(*found, last)


def _is_same(first: Array, second: Array) -> bool:
    """Return whether two roots are those of the same covariance, to rounding."""
    # Mostly the first deviation differs already; roots are triangular.
    one, other = abs(float(first[0, 0])), abs(float(second[0, 0]))
    if abs(one - other) > _SETTLED * other:
        return False
    P, Q = first @ first.T, second @ second.T
    scales = np.sqrt(np.abs(np.diag(Q)))
    return bool((np.abs(P - Q) <= _SETTLED * np.outer(scales, scales)).all())


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
        Derivative of the log evidence in the mean of the state at the start of each block, and after the last.
    means : array, shape (b, s, k)
        Of the state at the start of each block, given everything.
    told : array, shape (b, s, k)
        Derivatives of the log evidence in the mean of ``c``; what blocks add to the state is left out.
    last : array, shape (s, k)
        The mean of the state after the last block, given all blocks.
    """

    seen: Array
    updated: Array
    scores: Array
    means: Array
    told: Array
    last: Array


def smooth(
    carried: Carried, patterns: Numbers, R: Array, T: Array, c: Array, g: Array, border: Border | None = None
) -> Smoothed:
    """Return means through all blocks and back.

    Parameters
    ----------
    carried : Carried
    patterns, R, T
        As in `carry`.
    c, g : arrays, shape (b, s, k)
        What each block says of the state, and what it adds to it.
    border : Border, optional
        What is said at both ends.
    """
    border = border or Border()
    blocks, size, count = c.shape
    own_R, own_T, closed = R[patterns], T[patterns], carried.closed
    path = np.empty((blocks + 1, size, count))
    path[0] = 0.0 if border.mean is None else border.mean
    path[1:] = own_T @ (carried.gain @ c) + g
    for b in range(blocks):
        path[b + 1] += closed[b].dot(path[b])
    seen = c - own_R @ path[:-1]
    updated = path[:-1] + carried.gain @ seen
    weighed = carried.unseen @ (carried.unseen.swapaxes(-1, -2) @ seen)
    scores = np.empty((blocks + 1, size, count))
    scores[:-1] = own_R.swapaxes(-1, -2) @ weighed
    scores[-1] = 0.0 if border.score is None else border.score
    for b in range(blocks - 1, -1, -1):
        scores[b] += closed[b].T.dot(scores[b + 1])
    ahead = own_T.swapaxes(-1, -2) @ scores[1:]
    changes = carried.later.swapaxes(-1, -2) @ ahead
    # Small numbers that differences of values and means would not have: noise may be far below both.
    means, told = updated + carried.later @ changes, weighed - carried.share @ changes
    return Smoothed(seen, updated, scores, means, told, path[-1])


def inform(carried: Carried, patterns: Numbers, R: Array, border: Border | None = None) -> Array:
    """Return the information that all later data have of the state at the start of each block, shape (b + 1, s, s).

    Parameters
    ----------
    carried : Carried
    patterns, R
        As in `carry`.
    border : Border, optional
        What is said at both ends.
    """
    blocks, size = len(patterns), R.shape[-1]
    half = carried.unseen.swapaxes(-1, -2) @ R[patterns]
    found = np.empty((blocks + 1, size, size))
    found[:-1] = half.swapaxes(-1, -2) @ half
    found[-1] = 0.0 if border is None or border.information is None else border.information
    closed = carried.closed
    for b in range(blocks - 1, -1, -1):
        found[b] += closed[b].T.dot(found[b + 1]).dot(closed[b])
    return found


def look_back(patterns: Numbers, R: Array, T: Array, V: Array, border: Border | None = None) -> Array:
    """Return what each block and all after it say of the state at its start, as roots B of ``B'B``, (b + 1, s, s).

    Parameters
    ----------
    patterns, R, T, V
        As in `carry`.
    border : Border, optional
        What is said at both ends.
    """
    blocks, size = len(patterns), R.shape[-1]
    found = np.zeros((blocks + 1, size, size))
    if border is not None and border.later is not None:
        found[-1] = border.later
    if not size:
        return found
    both, stacked = np.concatenate([V, T], axis=2), np.zeros((2 * size, size), order="F")
    through, upper = np.zeros((2 * size, 2 * size), order="F"), np.asfortranarray(np.triu(np.ones((size, size))))
    now, last, settled = found[-1], -1, False
    for b in range(blocks - 1, -1, -1):
        u = int(patterns[b])
        settled = settled and u == last
        if not settled:
            # Said of the next state, and the noise on the way there, which is eliminated.
            through[:size], through[size:, :size], through[size:, size:] = now.dot(both[u]), np.eye(size), 0.0
            stacked[:size] = R[u]
            stacked[size:] = lapack.dgeqrf(through, overwrite_a=1)[0][size:, size:] * upper
            before = lapack.dgeqrf(stacked, overwrite_a=1)[0][:size] * upper
            settled = u == last and _is_same(before.T, now.T)
            now, last = before, u
        found[b] = now
    return found
