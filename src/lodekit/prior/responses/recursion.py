"""The recursion ``x[i+1] = P[i] x[i] + w[i]`` over many rows, without a loop over them.

Rows are cut into blocks. What each block adds to its end, from a state of zero at its start, is found for all blocks at
once; the states at their starts obey a recursion of the same kind that is shorter by the length of a block; and then
all blocks are run through side by side. Where steps are equal, everything is a product of large matrices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["run_through"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
BLOCK = 64
#: Equal steps in a row, from which on they have a recursion of their own.
_LONG = 512
#: Different steps that are held in memory at the same time.
_PIECE = 1 << 15


def run_through(matrices: Array, which: Numbers, forcing: Array, start: Array, block: int = BLOCK) -> Array:
    """Return the states after each step, shape (s, k, n), of k recursions with the same matrices.

    Parameters
    ----------
    matrices : array, shape (u, s, s)
        P, for each different step.
    which : array, shape (n,)
        Which of them each step is.
    forcing : array, shape (s, k, n)
        w.
    start : array, shape (s, k)
        The state before the first step.
    block : int
        Length of the blocks.
    """
    count = len(which)
    if len(matrices) == 1:
        return _equal(matrices[0], forcing, start, block)
    changes = np.concatenate([[0], np.flatnonzero(np.diff(which)) + 1, [count]])
    long = np.flatnonzero(np.diff(changes) >= _LONG)
    if len(long) == 1 and len(changes) == 2:
        return _equal(matrices[which[0]], forcing, start, block)
    cuts = np.unique(np.concatenate([[0, count], changes[long], changes[long + 1]]))
    is_long = np.isin(cuts[:-1], changes[long])
    states, now = np.empty(forcing.shape), start
    for first, last, equal in zip(cuts[:-1], cuts[1:], is_long, strict=True):
        if equal:
            states[:, :, first:last] = _equal(matrices[which[first]], forcing[:, :, first:last], now, block)
            now = states[:, :, last - 1]
            continue
        for low in range(first, last, _PIECE):
            high = min(low + _PIECE, last)
            own = matrices[which[low:high]]
            states[:, :, low:high] = _different(own, forcing[:, :, low:high], now, block)
            now = states[:, :, high - 1]
    return states


def _blocks(forcing: Array, block: int) -> Array:
    """Return the forcing cut into blocks, filled up with zeros, shape (block, s, k, blocks)."""
    size, many, count = forcing.shape
    blocks = -(-count // block)
    padded = np.zeros((size, many, blocks * block))
    padded[:, :, :count] = forcing
    return np.ascontiguousarray(padded.reshape(size, many, blocks, block).transpose(3, 0, 1, 2))


def _equal(matrix: Array, forcing: Array, start: Array, block: int) -> Array:
    size, many, count = forcing.shape
    if count <= block:
        states, now = np.empty((count, size, many)), start
        for i in range(count):
            now = matrix @ now + forcing[:, :, i]
            states[i] = now
        return states.transpose(1, 2, 0)
    rows = _blocks(forcing, block).reshape(block, size, -1)
    powers = [np.eye(size)]
    for _ in range(block):
        powers.append(powers[-1] @ matrix)
    ends = np.hstack(powers[-2::-1]) @ rows.reshape(block * size, -1)
    ends = ends.reshape(size, many, -1)
    starts = np.concatenate([start[:, :, None], _equal(powers[-1], ends[:, :, :-1], start, block)], axis=2)
    now, moved = starts.reshape(size, -1), np.empty((size, rows.shape[-1]))
    for i in range(block):
        np.matmul(matrix, now, out=moved)
        rows[i] += moved
        now = rows[i]
    return rows.reshape(block, size, many, -1).transpose(1, 2, 3, 0).reshape(size, many, -1)[:, :, :count]


def _different(matrices: Array, forcing: Array, start: Array, block: int) -> Array:
    """Return the states where every step has a matrix of its own, shape (n, s, s)."""
    size, many, count = forcing.shape
    if count <= block:
        states, now = np.empty((count, size, many)), start
        for i in range(count):
            now = matrices[i] @ now + forcing[:, :, i]
            states[i] = now
        return states.transpose(1, 2, 0)
    rows = np.ascontiguousarray(_blocks(forcing, block).transpose(0, 3, 1, 2))  # (block, blocks, s, k)
    blocks = rows.shape[1]
    own = np.broadcast_to(np.eye(size), (blocks * block, size, size)).copy()
    own[:count] = matrices
    own = np.ascontiguousarray(own.reshape(blocks, block, size, size).transpose(1, 0, 2, 3))
    whole = np.zeros((blocks, size, size + many))
    whole[:, :, :size] = np.eye(size)
    for matrix, row in zip(own, rows, strict=True):
        whole = matrix @ whole
        whole[:, :, size:] += row
    ends = whole[:-1, :, size:].transpose(1, 2, 0)
    before = _different(whole[:-1, :, :size], ends, start, block)
    now = np.concatenate([start[:, :, None], before], axis=2).transpose(2, 0, 1)
    for i in range(block):
        rows[i] += np.einsum("bij,bjk->bik", own[i], now)
        now = rows[i]
    return rows.transpose(2, 3, 1, 0).reshape(size, many, -1)[:, :, :count]
